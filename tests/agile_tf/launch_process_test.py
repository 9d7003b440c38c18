"""Tests for launching: processes, as users start them, and their end."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

from absl.testing import absltest
import pytest

from agile_tf.training import checkpoints
from tests.agile_tf import tiny


def _environment(*without: str) -> dict[str, str]:
  """Returns the environment, in which TensorFlow logs as it does for users."""
  return {key: value for key, value in os.environ.items()
          if key not in ('TF_CPP_MIN_LOG_LEVEL', *without)}


class LaunchProcessTest(absltest.TestCase):

  def test_interrupt_saves_and_exits_with_zero(self):
    run_dir = self.create_tempdir().full_path
    process = subprocess.Popen(
        [sys.executable, '-m', 'agile_tf.launch',
         *tiny.flags(run_dir=run_dir, steps=10_000_000)],
        stderr=subprocess.PIPE, text=True, env=_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    self.addCleanup(process.kill)
    deadline = time.monotonic() + 600
    path = os.path.join(run_dir, 'metrics.csv')
    while (process.poll() is None and time.monotonic() < deadline and not (
        os.path.exists(path) and len(tiny.rows(run_dir)) > 2)):
      time.sleep(.2)
    # Twice, as a wrapper does that also signals the process group.
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    self.assertEqual(process.returncode, 0, errors)
    self.assertIn('saving and stopping', errors)
    self.assertNotRegex(errors, r'(?m)^[IWE]0000')  # TensorFlow's lines.
    self.assertGreaterEqual(
        checkpoints.steps(run_dir)[-1], int(tiny.rows(run_dir)[-1]['steps']))

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
    tiny.assert_equal_arrays(*ends)


class EqualRunsTest(absltest.TestCase):
  """Compares processes with a run in this one."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.train_for(cls)

  @pytest.mark.slow
  def test_files_that_cannot_grow_stop_the_run_and_space_lets_it_go_on(self):
    run_dir = self.create_tempdir().full_path
    command = [sys.executable, '-m', 'agile_tf.launch',
               *tiny.flags(run_dir=run_dir)]
    # Nor can the compiler's cache, which is the tests' own, grow.
    environment = _environment('TF_XLA_FLAGS')
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
    self.assertEqual([int(row['steps']) for row in tiny.rows(run_dir)],
                     [int(row['steps']) for row in tiny.rows(self.run_dir)])

  @pytest.mark.slow
  def test_kept_programs_give_the_same_results(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    environment = _environment('TF_XLA_FLAGS') | {
        'XDG_CACHE_HOME': str(folder)}
    kept: dict[pathlib.Path, int] = {}  # When each was written.
    for name in ('cold', 'warm'):
      run_dir = str(folder / name)
      started = subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch',
           *tiny.flags(run_dir=run_dir)],
          stderr=subprocess.PIPE, text=True, check=True, env=environment)
      self.assertNotRegex(started.stderr, r'(?m)^[IWE]0000')  # TensorFlow's.
      tiny.assert_equal_arrays(
          checkpoints.load(run_dir), checkpoints.load(self.run_dir))
      before, kept = kept, {
          path: path.stat().st_mtime_ns
          for path in (folder / 'agile_tf' / 'xla').rglob('*.pb')}
      self.assertNotEmpty(kept)
    self.assertEqual(kept, before)  # Nothing was compiled again.
