"""Tests for launching: whole runs with tiny flags, as users start them."""

import csv
import errno
import glob
import itertools
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf import launch
from agile_tf.agent import workers
from agile_tf.training import checkpoints
from agile_tf.training import run_lock
from agile_tf.training import schedule
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny


def _rows(run_dir):
  with open(os.path.join(run_dir, 'metrics.csv'), encoding='utf-8') as file:
    return list(csv.DictReader(file))


def _train(run_dir, **changes):
  launch.train(tiny.config(run_dir=run_dir, **changes))


def _pictures(run_dir):
  """The episodes that TensorBoard shows, by step."""
  pictures = {}
  for path in glob.glob(os.path.join(run_dir, 'events*')):
    for event in tf.compat.v1.train.summary_iterator(path):
      for value in event.summary.value:
        if value.tag.startswith('episode/'):
          pictures[event.step, value.tag] = list(value.tensor.string_val)
  return pictures


_iterate = workers.PolicyWorker.iterate


def _with_a_broken_theta(self, step):
  """An iteration of a worker whose policy is not finite any more."""
  self._policy.load({
      name: np.full_like(value, np.nan)
      for name, value in self._policy.state().items()})
  return _iterate(self, step)


def _stand_in(clock, iterate):
  """Returns a trainer with four policy workers, which are numbers."""
  trainer = mock.Mock(schedule=clock, policy_workers=list(range(4)),
                      discriminator_worker=None)
  trainer.iterate_policy.side_effect = iterate
  one_at_a_time = threading.Lock()
  trainer.compiling.side_effect = lambda _: one_at_a_time
  return trainer


class LaunchTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.train_for(cls, image_minutes=1e-6)

  def test_a_run_leaves_its_files(self):
    config = config_lib.load(os.path.join(self.run_dir, 'config.json'))
    self.assertEqual(config.steps, 64)
    rows = _rows(self.run_dir)
    self.assertEqual([int(row['steps']) // 16 for row in rows], [1, 2, 3, 4])
    self.assertTrue(all(row['success_rate'] for row in rows[1:]))
    self.assertEqual(checkpoints.steps(self.run_dir)[-1:], [66])
    events = [name for name in os.listdir(self.run_dir) if 'tfevents' in name]
    tags = set()
    for event in tf.compat.v1.train.summary_iterator(
        os.path.join(self.run_dir, events[0])):
      tags |= {value.tag for value in event.summary.value}
    self.assertContainsSubset(
        {'hyperparameters', 'episode/contact_sheet', 'episode/in_motion',
         'at_a_glance/success_rate', 'reward/false_positives',
         'policy/entropy', 'discriminator/loss',
         '_hparams_/session_start_info'}, tags)

  def test_the_same_command_goes_on(self):
    run_dir = self.create_tempdir().full_path
    for steps in (32, 40, 64):
      _train(run_dir, steps=steps, image_minutes=1e-6)
    # The same rows as in one go, but for the times.
    columns = [name for name in _rows(run_dir)[0] if 'seconds' not in name and
               name != 'steps_per_second']
    for row, expected in zip(_rows(run_dir), _rows(self.run_dir), strict=True):
      self.assertEqual([row[name] for name in columns],
                       [expected[name] for name in columns])
    ends = [checkpoints.load(path) for path in (run_dir, self.run_dir)]
    for name, value in ends[0].arrays.items():
      np.testing.assert_array_equal(value, ends[1].arrays[name], name)

    self.assertEqual(_pictures(run_dir), _pictures(self.run_dir))

  def test_two_processes_cannot_use_one_directory(self):
    run_dir = self.create_tempdir().full_path
    with run_lock.hold(run_dir):
      result = subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch',
           *tiny.flags(run_dir=run_dir)],
          stderr=subprocess.PIPE, text=True, check=False)
    self.assertEqual(result.returncode, 1)
    self.assertIn(f'in use by process {os.getpid()}', result.stderr)
    self.assertNotIn('Traceback', result.stderr)

  def test_a_loss_that_is_no_number_stops_the_run(self):
    run_dir = self.create_tempdir().full_path
    changes = dict(policy_workers=3, policy_threads=3)
    _train(run_dir, steps=24, **changes)
    before = checkpoints.steps(run_dir)
    # Nothing overflows but at once: a step of this size leaves no number.
    with self.assertRaisesRegex(
        trainer_lib.TrainingError,
        r'of policy worker [012] is nan at step \d+'):
      with mock.patch.object(
          workers.PolicyWorker, 'iterate', _with_a_broken_theta):
        _train(run_dir, steps=10_000, **changes)
    self.assertEqual(checkpoints.steps(run_dir), before)
    for value in checkpoints.load(run_dir).arrays.values():
      if value.dtype.kind == 'f':
        self.assertTrue(np.isfinite(value).all())

  def test_a_full_disk_stops_the_run(self):
    run_dir = self.create_tempdir().full_path
    _train(run_dir, steps=16)
    before = checkpoints.load(run_dir)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch.object(np, 'savez', side_effect=full):
      with self.assertRaisesRegex(checkpoints.CheckpointError, 'No space left'):
        _train(run_dir, steps=32)
    after = checkpoints.load(run_dir)
    self.assertEqual(after.values, before.values)
    _train(run_dir, steps=64)  # There is space: as if nothing had been.
    for name, value in checkpoints.load(run_dir).arrays.items():
      np.testing.assert_array_equal(
          value, checkpoints.load(self.run_dir).arrays[name], name)

  def test_another_configuration_is_refused(self):
    before = _rows(self.run_dir)
    with self.assertRaisesRegex(
        config_lib.ConfigError, r'(?s)batch_size: 4 there, 8 here'):
      _train(self.run_dir, batch_size=8)
    self.assertEqual(_rows(self.run_dir), before)

  def test_a_configuration_that_cannot_be_read_is_not_replaced(self):
    run_dir = self.create_tempdir().full_path
    path = os.path.join(run_dir, 'config.json')
    config_lib.save(tiny.config(batch_size=8), path)
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    with mock.patch('os.stat', side_effect=error):
      with self.assertRaisesRegex(
          config_lib.ConfigError, 'batch_size: 8 there, 4 here'):
        launch.check_same_run(tiny.config(run_dir=run_dir))
    with mock.patch('builtins.open', side_effect=error):
      with self.assertRaisesRegex(config_lib.ConfigError, 'Input/output'):
        launch.check_same_run(tiny.config(run_dir=run_dir))

  def test_a_refused_start_leaves_no_directory(self):
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    with self.assertRaisesRegex(config_lib.ConfigError, 'matches none'):
      _train(run_dir, instructions='nonsense')
    self.assertFalse(os.path.exists(run_dir))

  def test_run_dir_must_be_given_and_writable(self):
    with self.assertRaisesRegex(config_lib.ConfigError, 'run_dir is empty'):
      _train('')
    file = self.create_tempfile('file').full_path
    with self.assertRaisesRegex(config_lib.ConfigError, 'cannot be written'):
      _train(os.path.join(file, 'run'))

  def test_threads_share_the_run_and_hold_the_ratio(self):
    run_dir = self.create_tempdir().full_path
    _train(run_dir, policy_workers=3, policy_threads=3, steps=240,
           log_steps=48)
    values = checkpoints.load(run_dir).values
    self.assertGreaterEqual(values['steps'], 240)
    # Each of three threads may be one rollout of two steps ahead.
    self.assertAlmostEqual(values['steps'] / values['iterations'], 8, delta=.6)
    self.assertLen(values['actors'], 4)
    self.assertLen(_rows(run_dir), 5)

  def test_rows_and_checkpoints_of_threads_follow_each_other(self):
    run_dir = self.create_tempdir().full_path
    for steps in (100, 200, 300):
      _train(run_dir, policy_workers=3, policy_threads=3, steps=steps,
             log_steps=24, checkpoint_minutes=0.0005)
    steps = [int(row['steps']) for row in _rows(run_dir)]
    self.assertEqual(steps, sorted(set(steps)))
    # Each episode is counted in one row.
    episodes = [int(row['episodes']) for row in _rows(run_dir)]
    self.assertEqual(episodes, sorted(episodes))

  def test_a_checkpoint_comes_after_the_row_that_is_due(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path,
                         steps_per_discriminator_update=100)
    trainer = trainer_lib.Trainer(config)
    run = launch.Run(config, trainer, lambda: None)
    self.addCleanup(run.close)
    worker, = trainer.policy_workers
    while trainer.schedule.steps < 20:  # There is a row every 16.
      trainer.schedule.begin('policy')
      trainer.schedule.end('policy', trainer.iterate_policy(worker))
    run.save()
    row, = _rows(config.run_dir)
    steps = trainer.schedule.steps
    self.assertEqual(int(row['steps']), steps)
    resumed = trainer_lib.Trainer(config)
    other = launch.Run(config, resumed, lambda: None)
    self.addCleanup(other.close)
    self.assertEqual(resumed.schedule.steps, steps)
    other.tick()
    self.assertLen(_rows(config.run_dir), 1)

  @parameterized.product(
      where=('policy', 'discriminator', 'main'),
      error=(RuntimeError('injected'), SystemExit(0)))
  def test_an_exception_in_a_thread_ends_the_run(self, where, error):
    config = tiny.config(
        run_dir=self.create_tempdir().full_path, policy_workers=3,
        policy_threads=3, steps=100_000)
    trainer = trainer_lib.Trainer(config)
    victim = (trainer.policy_workers[1] if where == 'policy' else
              trainer.discriminator_worker)
    original, calls = victim.iterate, []

    def fail():
      calls.append(1)
      if len(calls) == 3:
        raise error

    def iterate(*steps):
      fail()
      return original(*steps)

    if where != 'main':
      victim.iterate = iterate
    with self.assertRaisesRegex(RuntimeError, r'injected|called exit\(0\)'):
      threads.drive(trainer, fail if where == 'main' else lambda: None)
    self.assertEmpty([t.name for t in threading.enumerate()
                      if t.name.startswith(('policy', 'discriminator'))])

  @parameterized.parameters('save', 'stop', 'error')
  def test_a_worker_that_hangs_ends_a_run_that_needs_it(self, what):
    release = threading.Event()
    self.addCleanup(release.set)

    def iterate(worker):
      if worker == 2 and clock.steps > 20:
        release.wait(60)
      time.sleep(0.001)
      return 1

    def tick():
      if clock.steps > 40:
        if what == 'stop':
          clock.stop()
        elif what == 'error':
          raise KeyError('injected')
        else:
          with clock.paused(0.2):
            self.fail('paused')

    clock = schedule.Schedule(10**9, 0)
    trainer = _stand_in(clock, iterate)
    expected = KeyError if what == 'error' else schedule.StalledError
    start = time.monotonic()
    with self.assertRaises(expected) as caught:
      threads.drive(trainer, tick, stall_minutes=0.2 / 60)
    self.assertLess(time.monotonic() - start, 30)
    self.assertTrue(clock.finished)
    if what != 'error':
      message = str(caught.exception)
      self.assertIn('policy-2 has been in one iteration for', message)
      self.assertIn('release.wait(60)', message)
      self.assertIn('The run has ended. It was not saved', message)
      self.assertNotIn('policy-1 ', message)

  @parameterized.parameters('removed', 'moved')
  def test_a_directory_that_goes_ends_the_run(self, how):
    folder = self.create_tempdir().full_path
    run_dir = os.path.join(folder, 'run')
    _train(run_dir, steps=16)
    saved = checkpoints.load(run_dir)
    original = trainer_lib.Trainer.iterate_policy

    def iterate(trainer, worker):
      if trainer.schedule.steps > 40 and os.path.exists(run_dir):
        if how == 'moved':
          os.rename(run_dir, os.path.join(folder, 'other'))
        else:
          shutil.rmtree(run_dir)
      return original(trainer, worker)

    with mock.patch.object(trainer_lib.Trainer, 'iterate_policy', iterate):
      with self.assertRaisesRegex(
          run_lock.RunLockError, f'{run_dir} was removed or moved'):
        _train(run_dir, steps=10_000)
    if how == 'moved':  # There it goes on, and nothing was made here.
      self.assertEqual(os.listdir(folder), ['other'])
      self.assertEqual(
          checkpoints.load(os.path.join(folder, 'other')).values, saved.values)
      _train(os.path.join(folder, 'other'), steps=32)
    else:
      self.assertEmpty(os.listdir(folder))

  def test_nothing_is_saved_in_another_directory(self):
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    os.mkdir(run_dir)
    with run_lock.hold(run_dir) as check_lock:
      _, run = launch.build(tiny.config(run_dir=run_dir), check_lock)
      self.addCleanup(run.close)
      shutil.rmtree(run_dir)
      for _ in range(2):
        with self.assertRaises(run_lock.RunLockError):
          run.save()
        os.makedirs(run_dir, exist_ok=True)
      self.assertEmpty(os.listdir(run_dir))

  @parameterized.parameters((2, 1), (3, 3))
  def test_a_slow_worker_is_reported_and_goes_on(self, count, num_threads):
    config = tiny.config(
        run_dir=self.create_tempdir().full_path, policy_workers=count,
        policy_threads=num_threads, steps=100_000)
    trainer = trainer_lib.Trainer(config)
    slow = trainer.policy_workers[-1]
    original, calls = slow.iterate, []

    def iterate(step):
      calls.append(1)
      if len(calls) == 1:
        time.sleep(1)
      return original(step)

    def tick():
      if len(calls) > 2:
        trainer.schedule.stop()

    slow.iterate = iterate
    with self.assertLogs('absl', 'WARNING') as logs:
      threads.drive(trainer, tick, stall_minutes=0.5 / 60)
    self.assertRegex('\n'.join(logs.output), 'policy.* has been in one iter')
    self.assertGreater(len(calls), 2)

  def test_first_iterations_are_one_at_a_time(self):
    """The first one compiles for the others."""
    firsts: dict[int, tuple[float, float]] = {}

    def iterate(worker):
      start = time.monotonic()
      time.sleep(.02)
      firsts.setdefault(worker, (start, time.monotonic()))
      return 1

    trainer = _stand_in(schedule.Schedule(100, 0), iterate)
    threads.drive(trainer, lambda: None)
    self.assertLen(firsts, 4)
    for (_, end), (start, _) in itertools.pairwise(sorted(firsts.values())):
      self.assertLessEqual(end, start)

  def test_a_head_start_is_saved_as_it_goes(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path,
                         discriminator_head_start=4)
    trainer = trainer_lib.Trainer(config)
    run = launch.Run(config, trainer, lambda: None)
    self.addCleanup(run.close)
    for count in range(1, 4):
      self.assertFalse(trainer.schedule.may('policy'))
      trainer.schedule.begin('discriminator')
      trainer.iterate_discriminator()
      trainer.schedule.end('discriminator')
      run.save()
      self.assertEqual(
          checkpoints.load(config.run_dir).values['iterations'], count)

  @pytest.mark.slow
  def test_a_run_beyond_the_paper_resumes_bit_for_bit(self):
    changes = dict(
        policy_workers=4, initialization='he', policy_update='averaged',
        policy_optimizer='adam', policy_epsilon=1e-8,
        discriminator_optimizer='adam', discriminator_epsilon=1e-8,
        batch_size=8, mismatched_share=0.5, reward_prediction=True,
        reward_prediction_goals=2, discriminator_actors=2,
        discriminator_head_start=3, all_workers_write=True,
        anticipated_negative_rate_steps=48, instructions='SameLocation',
        first_steps=32, first_instructions='red', first_distance=3,
        policy_features='discriminator', max_column_norm=0.0)
    whole, parts = (self.create_tempdir().full_path for _ in range(2))
    _train(whole, **changes, steps=96)
    for steps in 16, 48, 96:
      _train(parts, **changes, steps=steps)
    ends = [checkpoints.load(run_dir) for run_dir in (whole, parts)]
    self.assertEqual(*({**end.values, 'config': None} for end in ends))
    self.assertEqual(ends[0].arrays.keys(), ends[1].arrays.keys())
    for name, value in ends[0].arrays.items():
      np.testing.assert_array_equal(value, ends[1].arrays[name], name)

  def test_nothing_is_saved_once_a_worker_has_failed(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path)
    trainer = trainer_lib.Trainer(config)
    run = launch.Run(config, trainer, lambda: None)
    self.addCleanup(run.close)
    trainer.schedule.begin('policy')
    trainer.schedule.abandon(RuntimeError('injected'))
    run.save()
    self.assertEmpty(checkpoints.steps(config.run_dir))

  def test_what_is_not_finite_is_not_saved(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path)
    trainer = trainer_lib.Trainer(config)
    run = launch.Run(config, trainer, lambda: None)
    self.addCleanup(run.close)
    state = trainer.policy.state()
    name = trainer.policy.layout.names[0]
    state[name] = state[name] + np.float32(np.inf)
    trainer.policy.load(state)
    with self.assertRaisesRegex(
        trainer_lib.TrainingError, f'policy:{name} is not finite'):
      run.save()
    self.assertEmpty(checkpoints.steps(config.run_dir))

  def test_checkpoints_without_a_configuration_are_refused(self):
    run_dir = self.create_tempdir().full_path
    checkpoints.save(run_dir, 64, checkpoints.load(self.run_dir), keep=1)
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'checkpoints but no config.json'):
      _train(run_dir)

  def test_checkpoints_of_other_settings_are_refused(self):
    for changes in (dict(policy_workers=4), dict(replay_size=32),
                    dict(policy_workers=4, policy_threads=2)):
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, f'--{[*changes][-1]}: .* there'):
        trainer_lib.Trainer(tiny.config(**changes)).load(
            checkpoints.load(self.run_dir))

  @pytest.mark.slow
  def test_files_that_cannot_grow_stop_the_run_and_space_lets_it_go_on(self):
    run_dir = self.create_tempdir().full_path
    command = [sys.executable, '-m', 'agile_tf.launch',
               *tiny.flags(run_dir=run_dir)]
    # Nor can the compiler's cache, which is the tests' own, grow.
    environment = {key: value for key, value in os.environ.items()
                   if key != 'TF_XLA_FLAGS'}
    for limit in (100, 3000):  # Bytes in a file.
      full = subprocess.run(
          command, stderr=subprocess.PIPE, text=True, check=False,
          env=environment,
          preexec_fn=lambda limit=limit: resource.setrlimit(
              resource.RLIMIT_FSIZE, (limit, limit)))
      self.assertEqual(full.returncode, 1, full.stderr)
      self.assertRegex(full.stderr, r'Error: .* cannot be (written|saved)')
      self.assertNotIn('Traceback', full.stderr)
    subprocess.run(command, stderr=subprocess.PIPE, check=True)
    self.assertEqual([int(row['steps']) for row in _rows(run_dir)],
                     [int(row['steps']) for row in _rows(self.run_dir)])

  @pytest.mark.slow
  def test_kept_programs_are_the_same_and_damaged_ones_are_compiled_again(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    environment = {key: value for key, value in os.environ.items()
                   if key != 'TF_XLA_FLAGS'} | {'XDG_CACHE_HOME': str(folder)}
    programs: dict[pathlib.Path, int] = {}  # When each was written.
    for name in ('cold', 'warm', 'damaged'):
      if name == 'damaged':
        damaged = min(programs)
        damaged.write_bytes(damaged.read_bytes()[:-1])
        del programs[damaged]
      run_dir = str(folder / name)
      started = subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch',
           *tiny.flags(run_dir=run_dir)],
          stderr=subprocess.PIPE, text=True, check=True, env=environment)
      self.assertNotRegex(started.stderr, r'(?m)^[IWE]0000')  # TensorFlow's.
      for array, value in checkpoints.load(run_dir).arrays.items():
        np.testing.assert_array_equal(
            value, checkpoints.load(self.run_dir).arrays[array], array)
      kept = {path: path.stat().st_mtime_ns
              for path in (folder / 'agile_tf' / 'xla').rglob('*.pb.*')}
      self.assertNotEmpty(kept)
      if programs:  # None of these was compiled again.
        self.assertEqual(kept | programs, kept)
        self.assertLen(kept, len(programs) + (name == 'damaged'))
      programs = kept

  def test_a_frozen_reward_model_is_another_runs(self):
    run_dir = self.create_tempdir().full_path
    with self.assertLogs('absl', 'INFO') as logs:
      _train(run_dir, reward='frozen', reward_model=self.run_dir, steps=16)
    self.assertNotIn('is not finished', '\n'.join(logs.output))
    names = ['discriminator:discriminator/logit/w']
    for name in names:
      np.testing.assert_array_equal(
          checkpoints.load(run_dir).arrays[name],
          checkpoints.load(self.run_dir).arrays[name])
    unfinished = self.create_tempdir().full_path
    end = checkpoints.load(self.run_dir)
    checkpoints.save(unfinished, 8, end._replace(
        values={**end.values, 'steps': 8}), keep=1)
    with self.assertLogs('absl', 'WARNING') as logs:
      _train(self.create_tempdir().full_path, reward='frozen',
             reward_model=unfinished, initial_policy=unfinished, steps=4)
    for flag in 'reward_model', 'initial_policy':
      self.assertIn(f'--{flag}={unfinished} is not finished: its checkpoint of '
                    'step 8 of 64', '\n'.join(logs.output))
    # A run without a discriminator has none to give.
    other = self.create_tempdir().full_path
    checkpoints.save(other, 66, end._replace(arrays={
        name: value for name, value in end.arrays.items()
        if not name.startswith('discriminator')}), keep=1)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, f'{other}.*had no discriminator'):
      _train(self.create_tempdir().full_path, reward='frozen',
             reward_model=other)

  def test_interrupt_saves_and_exits_with_zero(self):
    self._assert_saves_and_exits_with_zero(signal.SIGINT)

  @pytest.mark.slow
  def test_a_closed_terminal_saves_and_exits_with_zero(self):
    self._assert_saves_and_exits_with_zero(signal.SIGHUP)

  def _assert_saves_and_exits_with_zero(self, number):
    run_dir = self.create_tempdir().full_path
    process = subprocess.Popen(
        [sys.executable, '-m', 'agile_tf.launch',
         *tiny.flags(run_dir=run_dir, steps=10_000_000)],
        stderr=subprocess.PIPE, text=True,
        # Under nohup a run ignores SIGHUP, and so would this one.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    deadline = time.monotonic() + 120
    path = os.path.join(run_dir, 'metrics.csv')
    while time.monotonic() < deadline and not (
        os.path.exists(path) and len(_rows(run_dir)) > 2):
      time.sleep(.2)
    # Twice, as a wrapper does that also signals the process group.
    process.send_signal(number)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    self.assertEqual(process.returncode, 0, errors)
    self.assertIn('saving and stopping', errors)
    self.assertNotRegex(errors, r'(?m)^[IWE]0000')  # TensorFlow's lines.
    self.assertGreaterEqual(
        checkpoints.steps(run_dir)[-1], int(_rows(run_dir)[-1]['steps']))

  @parameterized.parameters(1, 3)
  def test_a_second_signal_ends_a_run_that_hangs_at_once(self, num_threads):
    """Also where the main thread is in a program that does not come back."""
    run_dir = self.create_tempdir().full_path
    code = """
import ctypes, sys
from agile_tf import config
from agile_tf import launch
from agile_tf.training import trainer as trainer_lib

def iterate(self, worker):
  print('hangs', flush=True)
  mutex = ctypes.create_string_buffer(64)
  for _ in range(2):  # Signals do not end the second.
    ctypes.CDLL(None).pthread_mutex_lock(mutex)

trainer_lib.Trainer.iterate_policy = iterate
launch.train(config.Config(run_dir=sys.argv[1], dataset_size=10,
                           policy_workers=3, policy_threads=int(sys.argv[2])))
"""
    with subprocess.Popen(
        [sys.executable, '-c', code, run_dir, str(num_threads)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
      try:
        self.assertEqual(process.stdout.readline(), 'hangs\n')
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # Of the same wrapper.
        time.sleep(2.5)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
      finally:
        process.kill()
    self.assertEqual(process.returncode, 128 + signal.SIGTERM)

  @pytest.mark.slow
  def test_fifteen_workers_in_one_thread_repeat_themselves(self):
    """To the last bit, in two processes, with a few updates of D."""
    ends = []
    for name in 'first', 'second':
      run_dir = self.create_tempdir(name).full_path
      subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch',
           '--flagfile=launch/relations.flags', f'--run_dir={run_dir}',
           '--policy_threads=1', '--batch_size=16', '--dataset_size=256',
           '--steps=1800', '--reward_prediction=true'],
          stderr=subprocess.PIPE, check=True)
      ends.append(checkpoints.load(run_dir))
    self.assertGreater(ends[0].values['totals']['discriminator_updates'], 3)
    self.assertEqual(ends[0].arrays.keys(), ends[1].arrays.keys())
    for name, value in ends[0].arrays.items():
      np.testing.assert_array_equal(value, ends[1].arrays[name], name)

  def test_bad_flags_end_with_a_clear_error(self):
    for flag, message in (
        ('--policy_threads=2', 'policy_threads=2 does not divide'),
        ('--dataset=/no/such.npz', '/no/such.npz')):
      config_flags = tiny.flags(
          policy_workers=3, run_dir=self.create_tempdir().full_path)
      result = subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch', *config_flags, flag],
          stderr=subprocess.PIPE, text=True, check=False)
      self.assertEqual(result.returncode, 1, flag)
      self.assertIn(message, result.stderr)
      self.assertNotIn('Traceback', result.stderr)


if __name__ == '__main__':
  absltest.main()
