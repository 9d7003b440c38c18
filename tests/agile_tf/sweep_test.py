"""Tests for sweep: which runs it makes, measures and makes again."""

import contextlib
import dataclasses
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from agile_tf import config as config_lib
from agile_tf import figures
from agile_tf import sweep
from agile_tf.reproduction import experiments
from agile_tf.reproduction import results
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs


class SweepTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._runs = self.create_tempdir().full_path
    run_dir = os.path.join(self._runs, 'relations_seed0')
    self._job = sweep.Job(
        'relations', 0, run_dir, tiny.flags(run_dir=run_dir),
        {os.path.join(run_dir, 'all.json'): [
            f'--run_dir={run_dir}', '--episodes=4', '--json']})

  @pytest.mark.slow
  def test_figure_5_from_training_to_its_bars(self):
    few = experiments.Evaluation('changed', (
        '--run_dir={after}', '--physics=immovable_red_rects', '--episodes=4'))
    variants = experiments.VARIANTS | {
        'relations': experiments.Variant(
            'AGILE', 'relations', tuple(tiny.flags(instructions='')),
            evaluations=()),
        'immovable': experiments.VARIANTS['immovable']._replace(
            flags=('--reward_model={after}', '--initial_policy={after}',
                   *tiny.flags(instructions='.*red.*rect.*')),
            evaluations=(few, few._replace(name='tuned', flags=few.flags[2:])))}
    with mock.patch.object(experiments, 'VARIANTS', variants):
      todo = sweep.jobs('figure5', self._runs, [0], laptop=False)
      self.assertTrue(sweep.carry_out(todo))
      base, tuned = todo
      runs = results.load([job.run_dir for job in todo])
    measured = runs['immovable'][0].evaluations
    self.assertEqual(measured['changed']['run_dir'], base.run_dir)
    self.assertEqual(measured['tuned']['run_dir'], tuned.run_dir)
    for report in measured.values():
      self.assertEqual(report['physics'], 'immovable_red_rects')
      self.assertEqual(report['episodes'], 4)
    self.assertIn('figure5', figures.draw({'immovable': runs['immovable']}))

  @pytest.mark.slow
  def test_runs_and_measures_once(self):
    self.assertFalse(sweep.progress(self._job.run_dir).finished)
    self.assertIn(f'{self._job.run_dir}            0           64',
                  sweep.table([self._job]))
    self.assertTrue(sweep.run(self._job))
    self.assertTrue(sweep.progress(self._job.run_dir).finished)
    path, = self._job.evaluations
    with open(path, encoding='utf-8') as file:
      self.assertEqual(json.load(file)['episodes'], 4)
    self.assertRegex(sweep.table([self._job]), r'66 +64 +\d')
    with mock.patch.object(subprocess, 'Popen') as popen:
      self.assertTrue(sweep.run(self._job))
      self.assertTrue(sweep.is_finished(self._job))
      self.assertEmpty(sweep.shell_lines([self._job], ['sweep']))
    popen.assert_not_called()
    # An evaluation that is incomplete or of another step does not count.
    for text in ('', '{"steps": 64', '{"steps": 60}'):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      self.assertFalse(sweep.is_finished(self._job))
    # With more --steps the run is not finished.
    self.assertFalse(sweep.is_finished(self._job._replace(
        launch=[*self._job.launch, '--steps=80'], evaluations={})))

  def _pretend(self, name, changes=None, rates='0.5'):
    """Writes a finished run of a variant."""
    run_dir = os.path.join(self._runs, f'{name}_seed0')
    os.makedirs(os.path.join(run_dir, 'checkpoints'))
    job, = (job for job in sweep.jobs('figure4_left', self._runs, [0], False)
            if job.name == name)
    config = dataclasses.replace(tiny.read(job.launch), **(changes or {}))
    config_lib.save(config, os.path.join(run_dir, 'config.json'))
    with open(os.path.join(run_dir, 'metrics.csv'), 'w',
              encoding='utf-8') as file:
      file.write(f'steps,success_rate\n10,{rates}\n20,\n')
    return job._replace(evaluations={})

  def test_a_run_with_other_settings_is_not_the_same(self):
    same = self._pretend('relations')
    other = self._pretend('relations_a3c', dict(discount=.5))
    broken = self._pretend('relations_rho50')
    with open(os.path.join(broken.run_dir, 'config.json'), 'w',
              encoding='utf-8') as file:
      file.write('{')
    todo = [other, broken, same]
    with (mock.patch.object(
        sweep.checkpoints, 'steps', return_value=[10**9]),
          contextlib.redirect_stderr(io.StringIO()) as errors):
      self.assertTrue(sweep.is_finished(same))
      for job in other, broken:
        with self.assertRaises(program.UserError):
          sweep.is_finished(job)
      with mock.patch.object(sweep, '_call') as call:
        self.assertFalse(sweep.carry_out(todo))
      call.assert_not_called()
      lines = sweep.shell_lines(
          [*todo, *sweep.jobs('figure5', self._runs, [1], False)], ['sweep'])
      shown = sweep.table(todo)
    self.assertLen(lines, 1)  # Of seed 1, which has begun nothing.
    self.assertIn('--discount: 0.5 there, 0.99 here', errors.getvalue())
    self.assertIn('is not a configuration', errors.getvalue())
    self.assertRegex(shown, r'relations_seed0 +10{9} +50{8} +50.0 %')
    self.assertEqual(shown.count('cannot be used'), 2)

  @parameterized.parameters(
      ('seed=3', '--first_seed'), ('--run_dir=runs', '--runs'))
  def test_what_a_run_has_of_its_own_cannot_be_set(self, flag, instead):
    result = programs.call(sweep, 'figure5', '--commands', f'--set={flag}')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(result.stderr, f'Error: --set={flag}: each run has')
    self.assertIn(f'Give {instead} instead', result.stderr)

  def test_a_failure_does_not_stop_the_others(self):
    bad = self._job._replace(launch=['--dataset=/nowhere/goals.npz'])
    with self.assertRaises(subprocess.CalledProcessError):
      sweep.run(bad)
    waits = self._job._replace(after=os.path.join(self._runs, 'nothing'))
    with mock.patch.object(sweep, '_call') as call:
      call.side_effect = subprocess.CalledProcessError(1, ['launch'])
      with contextlib.redirect_stderr(io.StringIO()) as errors:
        self.assertFalse(sweep.carry_out([waits, bad, self._job]))
    self.assertEqual(call.call_count, 2)
    self.assertIn('nothing, which is not finished', errors.getvalue())
    self.assertIn('launch failed with exit code 1', errors.getvalue())

  @parameterized.parameters(signal.SIGINT, signal.SIGTERM)
  def test_a_signal_lets_the_run_save(self, number):
    saved = os.path.join(self._runs, 'saved')
    code = (
        'import signal, sys, time\n'
        'def save(*_):\n'
        '  time.sleep(1)\n'
        f'  open({saved!r}, "w").close()\n'
        '  sys.exit()\n'
        f'signal.signal({int(number)}, save)\n'
        f'open({saved + ".begun"!r}, "w").close()\n'
        'time.sleep(60)\n')

    def interrupt():
      deadline = time.monotonic() + 60
      while not os.path.exists(f'{saved}.begun'):
        if time.monotonic() > deadline:
          return
        time.sleep(0.05)
      os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with self.assertRaises(KeyboardInterrupt):
      sweep._call([sys.executable, '-c', code])  # pylint: disable=protected-access
    thread.join()
    self.assertTrue(os.path.exists(saved))
    self.assertEqual(signal.getsignal(number), before)

  def test_prints_lines_for_a_shell(self):
    result = programs.call(
        sweep, 'figure5', '--seeds=2', '--first_seed=3',
        f'--runs={self._runs}', '--laptop', '--commands',
        '--set=policy_threads=3')
    lines = result.stdout.splitlines()
    # Fine-tuning follows the run that it starts from, on one line.
    self.assertLen(lines, 2)
    for seed, line in zip((3, 4), lines):
      first, second = map(shlex.split, line.split(' && '))
      self.assertEqual(first[:4], ['python', '-m', 'agile_tf.sweep', 'figure5'])
      for part in (first, second):
        self.assertContainsSubset(
            ['--laptop', '--set=policy_threads=3', f'--runs={self._runs}',
             f'--first_seed={seed}', '--seeds=1'], part)
      self.assertIn('--only=immovable', second)
      # Each command makes one run.
      status = programs.call(sweep, *second[3:], '--status').stdout
      self.assertEqual(
          [row.split()[0] for row in status.splitlines()[1:]],
          [os.path.join(self._runs, f'immovable_seed{seed}')])

  @parameterized.parameters(
      (['figure5'], range(5)), (['arrangements'], range(10)),
      (['figure5', '--laptop'], range(3)), (['evening'], range(2)),
      (['figure5', '--seeds=2', '--first_seed=7'], (7, 8)))
  def test_as_many_seeds_as_in_the_paper(self, arguments, expected):
    lines = programs.call(
        sweep, *arguments, f'--runs={self._runs}', '--status'
        ).stdout.splitlines()
    self.assertEqual(
        {int(line.split()[0].rpartition('_seed')[2]) for line in lines[1:]},
        set(expected))

  def test_unknown_experiments_are_explained(self):
    result = programs.call(sweep, 'figure9')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(result.stderr, 'Error: Name one experiment')
    self.assertIn('figure4_left', result.stderr)

  def test_our_own_experiments_have_no_replica(self):
    result = programs.call(sweep, 'quickstart_rho', '--laptop')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(
        result.stderr, 'Error: --laptop: quickstart_rho has no replica')


if __name__ == '__main__':
  absltest.main()
