"""Tests for launching: whole runs with tiny flags, in this process."""

import os
import shutil
from unittest import mock

from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf import config as config_lib
from agile_tf import launch
from agile_tf.agent import workers
from agile_tf.recipe import imitation
from agile_tf.recipe import settings
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import metrics
from agile_tf.training import run as run_lib
from agile_tf.training import train
from agile_tf.training import trainer as trainer_lib
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs


def _train(run_dir, **changes):
  train.train(tiny.plan(run_dir=run_dir, **changes))


def _pictures(run_dir):
  """The episodes that TensorBoard shows, by step."""
  return {(step, value.tag): list(value.tensor.string_val)
          for step, value in tiny.summaries(run_dir)
          if value.tag.startswith('episode/')}


class LaunchTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    with mock.patch.object(run_lib, '_IMAGE_MINUTES', 1e-6):
      cls.run_dir = tiny.train_for(cls)

  def test_a_run_leaves_its_files(self):
    config, _ = settings.load(os.path.join(self.run_dir, 'config.json'))
    self.assertEqual(config.steps, 64)
    rows = tiny.rows(self.run_dir)
    self.assertEqual([int(row['steps']) // 16 for row in rows], [1, 2, 3, 4])
    self.assertTrue(all(row['success_rate'] for row in rows[1:]))
    self.assertEqual(checkpoints.steps(self.run_dir)[-1:], [66])
    texts = {value.tag: b''.join(value.tensor.string_val)
             for _, value in tiny.summaries(self.run_dir)}
    self.assertContainsSubset(
        {'hyperparameters', 'episode/contact sheet',
         'at a glance/1 success rate', 'reward/false positives',
         'policy/entropy', 'discriminator/loss',
         '_hparams_/session_start_info'}, texts)
    self.assertIn(b'    --steps=64\n', texts['configuration'])

  def test_the_same_command_goes_on(self):
    run_dir = self.create_tempdir().full_path
    for steps in (32, 40, 64):
      with mock.patch.object(run_lib, '_IMAGE_MINUTES', 1e-6):
        _train(run_dir, steps=steps)
    # The same rows as in one go, but for the times.
    rows = tiny.rows(run_dir)
    columns = [name for name in rows[0] if 'seconds' not in name and
               name != 'steps_per_second']
    for row, expected in zip(rows, tiny.rows(self.run_dir), strict=True):
      self.assertEqual([row[name] for name in columns],
                       [expected[name] for name in columns])
    # It shows no episode in which it was stopped.
    pictures, expected = _pictures(run_dir), _pictures(self.run_dir)
    self.assertNotEmpty(pictures)
    self.assertEqual(expected | pictures, expected)

  def test_a_loss_that_is_no_number_stops_the_run(self):
    run_dir = self.create_tempdir().full_path
    changes = dict(policy_workers=6, policy_threads=3)
    _train(run_dir, steps=24, **changes)
    before, iterate = checkpoints.steps(run_dir), workers.PolicyWorker.iterate
    with (self.assertRaisesRegex(
        program.UserError, r'of policy worker [0-5] is nan at step \d+'),
          mock.patch.object(
              workers.PolicyWorker, 'iterate', lambda self, read, step: iterate(
                  self, read._replace(theta=np.nan * read.theta), step))):
      _train(run_dir, steps=10_000, **changes)
    self.assertEqual(checkpoints.steps(run_dir), before)
    for value in checkpoints.load(run_dir).arrays.values():
      if value.dtype.kind == 'f':
        self.assertTrue(np.isfinite(value).all())

  def test_the_flags_of_the_recipe_reach_the_run(self):
    with (mock.patch.object(launch.machine, 'prepare'),
          mock.patch.object(launch.machine, 'check_compiler'),
          mock.patch.object(train, 'go_on') as trained):
      run_dir = os.path.join(self.create_tempdir().full_path, 'run')
      programs.call(launch, f'--run_dir={run_dir}', '--optimizer=adam')
    made, _, table = trained.call_args.args
    self.assertEqual(made.settings['optimizer'], 'adam')
    self.assertRegex(table, r'\* +optimizer +adam')
    self.assertFalse(os.path.exists(run_dir))  # It made nothing.

  def test_a_run_that_fails_before_it_made_anything_leaves_nothing(self):
    for where in (workers.PolicyWorker, workers.DiscriminatorWorker):
      run_dir = os.path.join(self.create_tempdir().full_path, 'run')
      with (mock.patch.object(where, 'iterate', side_effect=ZeroDivisionError),
            self.assertRaises(ZeroDivisionError)):
        _train(run_dir)
      self.assertFalse(os.path.exists(run_dir))

  def test_another_configuration_is_refused(self):
    before = tiny.rows(self.run_dir)
    with self.assertRaisesRegex(
        config_lib.ConfigError, r'(?s)batch_size: 4 there, 8 here'):
      _train(self.run_dir, batch_size=8)
    self.assertEqual(tiny.rows(self.run_dir), before)

  @parameterized.parameters(
      ('--policy_threads=2', 'policy_threads=2 does not divide'),
      ('--dataset=/no/such.npz', '/no/such.npz'),
      ('--instructions=nonsense', 'matches none'))
  def test_a_refused_start_leaves_no_directory(self, flag, message):
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    with mock.patch.object(launch.machine, 'prepare'):
      result = programs.call(
          launch, *tiny.flags(policy_workers=3, run_dir=run_dir), flag)
    self.assertEqual(result.returncode, 1)
    self.assertRegex(result.stderr, f'(?m)^Error: .*{message}')
    self.assertFalse(os.path.exists(run_dir))

  def test_run_dir_must_be_given_and_writable(self):
    with self.assertRaisesRegex(config_lib.ConfigError, 'run_dir is empty'):
      _train('')
    file = self.create_tempfile('file').full_path
    with self.assertRaisesRegex(config_lib.ConfigError, 'cannot be written'):
      _train(os.path.join(file, 'run'))

  def test_threads_share_the_run_and_hold_the_ratio(self):
    run_dir = self.create_tempdir().full_path
    for steps in (120, 240, 480):
      _train(run_dir, policy_workers=6, policy_threads=3, steps=steps,
             log_steps=24, checkpoint_minutes=0.0005)
    values = checkpoints.load(run_dir).values
    # Each of three threads may be two rollouts of two steps ahead.
    self.assertAlmostEqual(values['steps'] / values['iterations'], 8, delta=.6)
    self.assertLen(values['actors'], 4)
    # The main thread writes a row when a multiple of log_steps has passed. It
    # may wake after two of them, so only the last is sure to have its row.
    passed = [int(row['steps']) // 24 for row in tiny.rows(run_dir)]
    self.assertEqual(passed, sorted(set(passed)))
    self.assertEqual(passed[-1], values['steps'] // 24)
    # Each episode is counted once. It has four steps, and each of six workers
    # is in one; two rollouts of two steps may be counted in only one of both.
    for row in tiny.rows(run_dir):
      begun = int(row['steps']) / 4 - int(row['episodes'])
      self.assertBetween(begun, -3, 6 + 3)

  def _begin(self, config, plan=None):
    """Returns a trainer and what writes its files."""
    plan = plan or building.Plan(config)
    trainer = trainer_lib.Trainer(plan)
    run = run_lib.RunFiles(plan, trainer, lambda: None)
    self.addCleanup(run.close)
    return trainer, run

  def test_rows_have_the_speed_since_the_last_one_and_new_warnings(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path)
    seconds = [100.0]
    with mock.patch.object(
        run_lib.time, 'monotonic', side_effect=lambda: seconds[0]):
      trainer, run = self._begin(config)
      with (mock.patch.object(trainer, 'row') as row,
            mock.patch.object(run_lib.logging, 'warning') as warning):
        for steps, now, entropy in (
            (16, 104.0, 1.0), (32, 105.0, 0.0), (48, 113.0, 0.0),
            (64, 114.0, 1.0), (80, 115.0, 0.0)):
          trainer.schedule.steps, seconds[0] = steps, now
          row.return_value = {'steps': steps, 'entropy': entropy}
          run.write_what_is_due()
          run.write_what_is_due()  # Nothing more is due.
    rows = tiny.rows(config.run_dir)
    self.assertEqual([float(row['steps_per_second']) for row in rows],
                     [4, 16, 2, 16, 16])
    self.assertEqual(
        [float(row['seconds']) for row in rows], [4, 5, 13, 14, 15])
    # Once for each time that the entropy falls.
    self.assertEqual([call.args[1] for call in warning.call_args_list],
                     [32, 80])

  def test_a_trouble_that_lasts_is_said_once(self):
    trainer, run = self._begin(
        tiny.config(run_dir=self.create_tempdir().full_path, log_steps=1))
    with (mock.patch.object(trainer, 'row') as row,
          mock.patch.object(run_lib.logging, 'warning') as warning):
      for steps in range(1, 3 * metrics.LASTING):
        trainer.schedule.steps = steps
        row.return_value = {
            'steps': steps, 'modelled_reward': float(steps == 25)}
        run.write_what_is_due()
    (_, step, text), = (call.args for call in warning.call_args_list)
    self.assertEqual(step, metrics.LASTING)
    self.assertIn('no reward to learn from', text)

  def test_pictures_and_checkpoints_come_when_their_time_has_passed(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path,
                         checkpoint_minutes=3.0)
    seconds, shown, saved = [100.0], [], []
    with (mock.patch.object(
        run_lib.time, 'monotonic', side_effect=lambda: seconds[0]),
          mock.patch.object(run_lib, '_IMAGE_MINUTES', 1.0)):
      trainer, run = self._begin(config)
      episodes = iter([None, None] + ['an episode'] * 1000)
      save = run.save

      def save_and_note():
        saved.append(seconds[0] - 100)
        save()

      with (mock.patch.object(trainer.recorder, 'take',
                              side_effect=lambda: next(episodes)),
            mock.patch.object(run, 'save', save_and_note),
            mock.patch.object(run, '_show', side_effect=lambda *_: shown.append(
                seconds[0] - 100))):
        for second in range(0, 500, 10):
          seconds[0] = 100.0 + second
          trainer.schedule.steps += 1
          run.write_what_is_due()
    # The first as soon as an episode has ended, then once a minute.
    self.assertEqual(shown, [20, 80, 140, 200, 260, 320, 380, 440])
    self.assertEqual(saved, [190, 380])

  def test_as_many_checkpoints_are_kept_as_the_settings_say(self):
    trainer, run = self._begin(tiny.config(
        run_dir=self.create_tempdir().full_path, checkpoints_kept=2))
    for trainer.schedule.steps in range(4):
      run.save()
    self.assertEqual(checkpoints.steps(run._config.run_dir), [2, 3])

  def test_no_checkpoint_where_another_process_has_the_directory(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path)
    _, run = self._begin(config)
    lost = program.UserError('moved')
    with (mock.patch.object(run, '_check_lock', side_effect=lost),
          self.assertRaisesRegex(program.UserError, 'moved')):
      run.save()
    self.assertEmpty(checkpoints.steps(config.run_dir))

  def test_a_checkpoint_comes_after_the_row_that_is_due(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path,
                         steps_per_discriminator_update=100)
    trainer, run = self._begin(config)
    while trainer.schedule.steps < 20:  # There is a row every 16.
      trainer.schedule.begin('policy')
      trainer.schedule.end(
          'policy', trainer.iterate_policy(0, trainer.snapshot()))
    run.save()
    row, = tiny.rows(config.run_dir)
    steps = trainer.schedule.steps
    self.assertEqual(int(row['steps']), steps)
    resumed, other = self._begin(config)
    self.assertEqual(resumed.schedule.steps, steps)
    other.write_what_is_due()
    self.assertLen(tiny.rows(config.run_dir), 1)

  def test_a_directory_that_is_moved_ends_the_run(self):
    folder = self.create_tempdir().full_path
    run_dir = os.path.join(folder, 'run')
    _train(run_dir, steps=16)
    saved = checkpoints.load(run_dir)
    original = trainer_lib.Trainer.iterate_policy

    def iterate(trainer, *args):
      if trainer.schedule.steps > 40 and os.path.exists(run_dir):
        os.rename(run_dir, os.path.join(folder, 'other'))
      return original(trainer, *args)

    with mock.patch.object(trainer_lib.Trainer, 'iterate_policy', iterate):
      with self.assertRaisesRegex(
          program.UserError, f'{run_dir} was removed or moved'):
        _train(run_dir, steps=10_000)
    # There it goes on, and nothing was made here.
    self.assertEqual(os.listdir(folder), ['other'])
    self.assertEqual(
        checkpoints.load(os.path.join(folder, 'other')).values, saved.values)
    _train(os.path.join(folder, 'other'), steps=32)

  def test_a_head_start_is_saved_as_it_goes(self):
    plan = tiny.plan(run_dir=self.create_tempdir().full_path,
                     discriminator_head_start=4)
    config = plan.config
    trainer, run = self._begin(config, plan)
    for count in range(1, 4):
      self.assertFalse(trainer.schedule.may('policy'))
      trainer.schedule.begin('discriminator')
      trainer.iterate_discriminator(trainer.snapshot())
      trainer.schedule.end('discriminator')
      run.save()
      self.assertEqual(
          checkpoints.load(config.run_dir).values['iterations'], count)

  @parameterized.parameters(
      dict(instructions='SameLocation', reward_prediction_goals=2),
      dict(world='arrangements', instructions='', reward_prediction=False,
           imitation_cost=2.0))
  @pytest.mark.slow
  def test_a_run_beyond_the_paper_resumes_bit_for_bit(self, **tricks):
    look = imitation.Demonstrations.find_relevant_blocks
    # A reward model that has not learned anything may accept everything.
    self.enter_context(mock.patch.object(
        imitation.Demonstrations, 'find_relevant_blocks',
        lambda own, accepts, rng: look(
            own, lambda codes, states: np.zeros([len(states)], bool), rng)))
    changes = dict(
        policy_workers=6, initialization='he', policy_update='averaged',
        optimizer='adam', policy_epsilon=1e-8, discriminator_epsilon=1e-8,
        batch_size=8, mismatched_share=0.5, discriminator_actors=2,
        discriminator_head_start=3, all_workers_write=True,
        anticipated_negative_rate_steps=48, max_column_norm=0.0, **tricks)
    whole, parts = (self.create_tempdir().full_path for _ in range(2))
    _train(whole, **changes, steps=96)
    for steps in 16, 48, 96:
      _train(parts, **changes, steps=steps)
    ends = [checkpoints.load(run_dir) for run_dir in (whole, parts)]
    self.assertEqual(*({**end.values, 'config': None} for end in ends))
    tiny.assert_equal_arrays(*ends)

  def test_nothing_is_saved_once_a_worker_has_failed(self):
    config = tiny.config(run_dir=self.create_tempdir().full_path)
    trainer, run = self._begin(config)
    trainer.schedule.begin('policy')
    trainer.schedule.end('policy', error=RuntimeError('injected'))
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
                    dict(policy_update='averaged')):
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, f'--{[*changes][-1]}: .* there'):
        trainer_lib.Trainer(tiny.plan(**changes)).load(
            checkpoints.load(self.run_dir))

  def test_a_frozen_reward_model_is_another_runs(self):
    run_dir, frozen = (self.create_tempdir().full_path for _ in range(2))
    shutil.copytree(self.run_dir, frozen, dirs_exist_ok=True)
    _train(run_dir, reward='frozen', reward_model=frozen, steps=16)
    shutil.rmtree(frozen)  # The run has a copy.
    _train(run_dir, reward='frozen', reward_model=frozen, steps=32)
    self.assertTrue(tiny.rows(run_dir)[-1]['reward_model_accuracy'])
    name = 'discriminator:discriminator/logit/w'
    end = checkpoints.load(self.run_dir)
    np.testing.assert_array_equal(
        checkpoints.load(run_dir).arrays[name], end.arrays[name])
    # A run without a discriminator has none to give.
    other = self.create_tempdir().full_path
    checkpoints.save(other, 66, end._replace(arrays={
        name: value for name, value in end.arrays.items()
        if not name.startswith('discriminator')}), keep=1)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, f'{other}.*had no discriminator'):
      _train(self.create_tempdir().full_path, reward='frozen',
             reward_model=other)
