"""Tests for sweep: which runs it makes, measures and makes again."""

import contextlib
import dataclasses
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from agile_tf import config as config_lib
from agile_tf import figures
from agile_tf import sweep
from agile_tf.reproduction import experiments
from agile_tf.reproduction import pools
from agile_tf.reproduction import results
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs


class _Pool:
  """Says that each run has ended as soon as it was asked once before."""

  def __init__(self, room, bad='', signals=False):
    self._room, self._bad, self._signals = room, bad, signals
    self._running = {}
    self.started, self.stops = [], 0
    self.before = {}  # The runs that had ended when a run was started.
    self._over = []

  def has_room(self):
    return len(self._running) < self._room

  def start(self, task):
    self.started.append(task)
    self._running[task.name] = 0
    self.before[task.name] = ' '.join(self._over)
    with open(task.log, 'x', encoding='utf-8'):
      pass

  def ended(self):
    if self._signals and self.stops < 2:
      os.kill(os.getpid(), signal.SIGTERM)
      return {}
    ended = {}
    for name, asked in list(self._running.items()):
      self._running[name] += 1
      if asked:
        del self._running[name]
        self._over.append(name)
        fails = self._signals or self._bad and name.endswith(self._bad)
        ended[name] = 'broken' if fails else ''
    return ended

  def stop(self):
    self.stops += 1


class SweepTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._runs = self.create_tempdir().full_path
    run_dir = os.path.join(self._runs, 'relations_seed0')
    self._job = experiments.Job(
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
      todo = experiments.jobs('figure5', self._runs, [0], recipe=False)
      base, tuned = todo
      with self.assertRaisesRegex(sweep.SweepError, 'Finish that run first'):
        sweep.run(tuned)
      for job in todo:
        sweep.run(job)
      runs = results.load([job.run_dir for job in todo])
    measured = runs['immovable'][0].evaluations
    self.assertEqual(measured['changed']['run_dir'], base.run_dir)
    self.assertEqual(measured['tuned']['run_dir'], tuned.run_dir)
    for report in measured.values():
      self.assertEqual(report['physics'], 'immovable_red_rects')
      self.assertEqual(report['episodes'], 4)
    self.assertIn('figure5', figures.lines_of(runs))

  @pytest.mark.slow
  def test_runs_and_measures_once(self):
    self.assertFalse(sweep.is_trained(self._job.run_dir))
    _, row = sweep.Sweep([self._job], []).table()
    self.assertEqual(row.split(), [self._job.run_dir, '0', '64', 'waiting'])
    sweep.run(self._job)
    self.assertTrue(sweep.is_trained(self._job.run_dir))
    path, = self._job.evaluations
    with open(path, encoding='utf-8') as file:
      self.assertEqual(json.load(file)['episodes'], 4)
    with mock.patch.object(subprocess, 'Popen') as popen:
      sweep.run(self._job)
      self.assertTrue(sweep.is_finished(self._job))
      again = sweep.Sweep([self._job], [])
      self.assertRegex(again.table()[1], r'66 +64 +\d.* %  finished')
      self.assertEmpty(again.commands())
      again.carry_out(pools.Local(1))
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
    job, = (job for job in experiments.jobs(
        'figure4_left', self._runs, [0], False) if job.name == name)
    config = dataclasses.replace(tiny.read(job.launch), **(changes or {}))
    config_lib.save(
        dataclasses.asdict(config), os.path.join(run_dir, 'config.json'))
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
    todo = [other, broken, same,
            *experiments.jobs('figure5', self._runs, [1], False)]
    with mock.patch.object(
        sweep.checkpoints, 'steps', return_value=[10**9]):
      self.assertTrue(sweep.is_finished(same))
      for job in other, broken:
        with self.assertRaises(program.UserError):
          sweep.is_finished(job)
      checked = sweep.Sweep(todo, [])
      shown = '\n'.join(checked.table())
    self.assertLen(checked.commands(), 1)  # Of seed 1, which has begun nothing.
    self.assertEqual(
        list(checked.states.values()),
        ['failed', 'failed', 'finished', 'waiting', 'waiting'])
    self.assertIn('--discount: 0.5 there, 0.99 here',
                  checked.problems[other.run_dir])
    self.assertIn('is not a configuration', checked.problems[broken.run_dir])
    self.assertRegex(shown, r'relations_seed0 +10{9} +50{8} +50.0 %  finished')
    self.assertEqual(shown.count('cannot be used'), 2)

  @parameterized.parameters(
      ('seed=3', '--first_seed'), ('--run_dir=runs', '--runs'))
  def test_what_a_run_has_of_its_own_cannot_be_set(self, flag, instead):
    result = programs.call(sweep, 'figure5', '--commands', f'--set={flag}')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(result.stderr, f'Error: --set={flag}: each run has')
    self.assertIn(f'Give {instead} instead', result.stderr)

  def test_a_program_that_fails_is_named(self):
    bad = self._job._replace(launch=['--dataset=/nowhere/goals.npz'])
    with self.assertRaisesRegex(
        sweep.SweepError, 'agile_tf.launch failed with exit code 1'):
      sweep.run(bad)

  def _carry_out(self, todo, pool):
    made = sweep.Sweep(todo, ['figure5', '--set=discount=0'])
    with (contextlib.redirect_stdout(io.StringIO()) as output,
          mock.patch.object(time, 'sleep')):
      made.carry_out(pool)
    return made, output.getvalue()

  def test_runs_wait_for_room_and_for_the_run_that_they_start_from(self):
    todo = experiments.jobs('figure5', self._runs, [1, 0], False)
    pool = _Pool(room=2)
    made, output = self._carry_out(todo, pool)
    self.assertEqual(set(made.states.values()), {'finished'})
    names = [os.path.basename(task.name) for task in pool.started]
    self.assertCountEqual(names, ['relations_seed0', 'relations_seed1',
                                  'immovable_seed0', 'immovable_seed1'])
    for seed in '01':
      self.assertIn(f'relations_seed{seed}', pool.before[
          os.path.join(self._runs, f'immovable_seed{seed}')])
    self.assertEqual(
        pool.started[0].arguments,
        ['-m', 'agile_tf.sweep', 'figure5', '--set=discount=0',
         '--only=relations', '--first_seed=1', '--seeds=1'])
    states = [line.split()[-1] for line in output.splitlines()
              if 'immovable_seed0' in line]
    self.assertEqual(states[0], 'waiting')
    self.assertEqual(states[-1], 'finished')
    self.assertLen(states, len(set(states)))  # A row for each change.

  def test_a_failure_stops_only_the_runs_that_need_it(self):
    todo = experiments.jobs('figure5', self._runs, [0, 1], False)
    made, _ = self._carry_out(todo, _Pool(1, bad='relations_seed0'))
    self.assertEqual(
        list(made.states.values()), ['failed', 'failed'] + 2 * ['finished'])
    self.assertEqual(made.problems[todo[0].run_dir], 'broken')
    self.assertIn('seed0, which it starts from, has failed',
                  made.problems[todo[1].run_dir])

  def test_a_signal_lets_runs_end_and_starts_no_other(self):
    todo = experiments.jobs('figure5', self._runs, [0, 1], False)
    pool = _Pool(1, signals=True)
    made = sweep.Sweep(todo, [])
    with (contextlib.redirect_stdout(io.StringIO()),
          mock.patch.object(time, 'sleep'),
          self.assertRaises(KeyboardInterrupt)):
      made.carry_out(pool)
    self.assertEqual(pool.stops, 2)
    self.assertLen(pool.started, 1)
    self.assertEqual(set(made.states.values()), {'stopped'})

  def test_in_a_terminal_the_table_is_drawn_in_place(self):
    todo = experiments.jobs('figure5', self._runs, [0], False)
    made = sweep.Sweep(todo, [])
    made.states[todo[1].run_dir] = 'running'
    with (contextlib.redirect_stdout(io.StringIO()) as output,
          mock.patch.object(output, 'isatty', return_value=True),
          mock.patch.object(shutil, 'get_terminal_size',
                            return_value=(len(self._runs) + 80, 24))):
      made.show()
      made.show()
    first, second = output.getvalue().split('\x1b[3A\x1b[J')
    self.assertEqual(first, second)
    self.assertEqual([line.split()[-1] for line in first.splitlines()],
                     ['state', 'running', 'waiting'])

  def test_prints_lines_for_a_shell(self):
    result = programs.call(
        sweep, 'figure5', '--seeds=2', '--first_seed=3',
        f'--runs={self._runs}', '--recipe', '--commands',
        '--set=policy_threads=3')
    lines = result.stdout.splitlines()
    # Fine-tuning follows the run that it starts from, on one line.
    self.assertLen(lines, 2)
    for seed, line in zip((3, 4), lines):
      first, second = map(shlex.split, line.split(' && '))
      self.assertEqual(first[:4], ['python', '-m', 'agile_tf.sweep', 'figure5'])
      for part in (first, second):
        self.assertContainsSubset(
            ['--recipe', '--set=policy_threads=3', f'--runs={self._runs}',
             f'--first_seed={seed}', '--seeds=1'], part)
      self.assertIn('--only=immovable', second)
      # Each command makes one run.
      status = programs.call(sweep, *second[3:], '--status').stdout
      self.assertEqual(
          [row.split()[0] for row in status.splitlines()[1:]],
          [os.path.join(self._runs, f'immovable_seed{seed}')])

  @parameterized.parameters(
      (['figure5'], range(5)), (['arrangements'], range(10)),
      (['evening'], range(2)), (['figure4_left', '--recipe'], (2, 3, 4)),
      (['figure5', '--recipe'], (2, 3)), (['figure7', '--recipe'], (2, 3)),
      (['figure5', '--seeds=2', '--first_seed=7'], (7, 8)),
      (['figure5', '--recipe', '--first_seed=0'], (0, 1)))
  def test_as_many_seeds_as_planned(self, arguments, expected):
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

  def test_an_experiment_without_the_recipe_says_so(self):
    result = programs.call(sweep, 'arrangements', '--recipe')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(
        result.stderr, 'Error: --recipe: arrangements has no runs with')


if __name__ == '__main__':
  absltest.main()
