"""Tests for sweep: which runs it makes, measures and makes again."""

import contextlib
import io
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from unittest import mock

from absl.testing import parameterized
import pytest

from agile_tf import config as config_lib
from agile_tf import figures
from agile_tf import sweep
from agile_tf.reproduction import experiments
from agile_tf.reproduction import pools
from agile_tf.reproduction import results
from tests.agile_tf import tiny
from tests.gridlu import programs


class _Pool:
  """Has room for some programs, each of which has ended when asked twice.

  Attributes:
    started: The tasks that were started.
    over: The runs that have ended.
    before: By run, the runs that had ended before it was started.
    stops: How often a program was stopped.
  """

  def __init__(self, room, bad='', signals=False, lost=False):
    self._free, self._bad, self._signals = room, bad, signals
    self._lost = lost
    self.started, self.before, self.stops = [], {}, 0
    self.over = []

  def __call__(self, task):
    if not self._free:
      return None
    self._free -= 1
    self.started.append(task)
    self.before[os.path.basename(task.name)] = [*self.over]
    answers = iter([None, ''])
    if self._signals or self._bad and task.name.endswith(self._bad):
      answers = iter([None, 'broken'])

    def poll():
      if self._signals and self.stops < 2:
        os.kill(os.getpid(), signal.SIGTERM)
        return None
      answer = next(answers)
      if answer is not None:
        self._free += 1
        self.over.append(os.path.basename(task.name))
      if answer and self._lost:
        raise FileNotFoundError('sweep.log')
      return answer

    def stop():
      self.stops += 1

    return pools.Running(poll, stop)


class SweepTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._runs = self.create_tempdir().full_path

  def _call(self, *arguments):
    return programs.call(sweep, *arguments, f'--runs={self._runs}')

  @pytest.mark.slow
  def test_figure_5_from_training_to_its_bars(self):
    few = ('--physics=immovable_red_rects', '--episodes=4')
    variants = experiments.VARIANTS | {
        'relations': experiments.Variant(
            'AGILE', 'relations', tuple(tiny.flags()), evaluations={}),
        'immovable': experiments.VARIANTS['immovable']._replace(
            flags=('--reward_model={after}', '--initial_policy={after}',
                   *tiny.flags(instructions='SameLocation.*red.*rect')),
            evaluations={'changed': ('--run_dir={after}', *few),
                         'tuned': few[1:]})}
    self.enter_context(
        mock.patch.object(experiments, 'VARIANTS', variants))
    alone = self._call('figure5', '--seeds=1', '--only=immovable')
    self.assertIn('Finish that run first', alone.stderr)
    made = self._call('figure5', '--seeds=1')
    self.assertEqual(made.returncode, 0, made.stderr)
    base, tuned = experiments.jobs('figure5', self._runs, [0], recipe=False)
    self.assertTrue(sweep.is_trained(base.run_dir))
    runs = results.runs_by_variant([base.run_dir, tuned.run_dir])
    measured = runs['immovable'][0].evaluations
    self.assertEqual(measured['changed']['run_dir'], base.run_dir)
    self.assertEqual(measured['tuned']['run_dir'], tuned.run_dir)
    for report in measured.values():
      self.assertEqual(report['physics'], 'immovable_red_rects')
      self.assertEqual(report['episodes'], 4)
    self.assertIn('figure5', figures.lines_of(runs))
    # All is there, so nothing is made again.
    with mock.patch.object(subprocess, 'Popen') as popen:
      self.assertEqual(self._call('figure5', '--seeds=1').returncode, 0)
      self.assertEmpty(
          self._call('figure5', '--seeds=1', '--commands').stdout.strip())
      status = self._call('figure5', '--seeds=1', '--status').stdout
    popen.assert_not_called()
    self.assertRegex(status, r'66 +64 +\d.* %  finished')
    # An evaluation that is incomplete or of another step does not count.
    path = os.path.join(tuned.run_dir, 'tuned.json')
    for text in ('', '{"steps": 66', '{"steps": 60}'):
      pathlib.Path(path).write_text(text, 'utf-8')
      status = self._call('figure5', '--seeds=1', '--status').stdout
      self.assertIn('unfinished', status)

  def _pretend(self, name, changes=None):
    """Writes a finished run of a variant."""
    run_dir = os.path.join(self._runs, f'{name}_seed0')
    os.makedirs(os.path.join(run_dir, 'checkpoints'))
    job, = (job for job in experiments.jobs(
        'figure4_left', self._runs, [0], False) if job.name == name)
    config_lib.save(
        tiny.read_all(job.launch) | (changes or {}),
        os.path.join(run_dir, 'config.json'))
    pathlib.Path(os.path.join(run_dir, 'metrics.csv')).write_text(
        'steps,success_rate\n10,0.5\n20,\n', 'utf-8')
    return job._replace(evaluations={})

  def test_a_run_with_other_settings_is_not_the_same(self):
    same = self._pretend('relations')
    other = self._pretend('relations_a3c', dict(discount=.5))
    broken = self._pretend('relations_rho50')
    pathlib.Path(os.path.join(broken.run_dir, 'config.json')).write_text(
        '{', 'utf-8')
    todo = [other, broken, same,
            *experiments.jobs('figure5', self._runs, [1], False)]
    with mock.patch.object(
        sweep.checkpoints, 'steps',
        side_effect=lambda path: [] if path.endswith('1') else [10**9]):
      checked = sweep.Sweep(todo)
      shown = '\n'.join(checked.table())
    self.assertLen(checked.commands(), 1)  # Of seed 1, which has begun nothing.
    self.assertEqual(
        list(checked.states.values()),
        ['failed', 'failed', 'finished', 'waiting', 'waiting'])
    self.assertIn('--discount: 0.5 there, 0.99 here',
                  checked.problems[other.run_dir])
    self.assertIn('is not a configuration', checked.problems[broken.run_dir])
    self.assertRegex(shown, r'relations_seed0 +10{9} +50{8} +50.0 %  finished')
    self.assertRegex(shown, r'relations_a3c_seed0 +10{9} +\? .* failed')

  def _carry_out(self, pool, seeds=(0, 1)):
    """Makes figure 5's runs, each of which needs one program."""
    made = sweep.Sweep(
        experiments.jobs('figure5', self._runs, seeds, False))

    def needed(job):
      over = os.path.basename(job.run_dir) in pool.over
      return [] if over else ['-c', '']

    with (contextlib.redirect_stdout(io.StringIO()) as output,
          mock.patch.object(made, '_next', needed),
          mock.patch.object(time, 'sleep')):
      try:
        made.carry_out(pool)
        self.assertFalse(pool.stops)
      except KeyboardInterrupt:
        self.assertGreater(pool.stops, 0)
    return made, output.getvalue()

  def test_an_evaluation_is_of_the_newest_checkpoint(self):
    path = self.create_tempfile().full_path
    with mock.patch.object(sweep, '_steps', return_value=8):
      for text, expected in (('{"steps": 8}', True), ('{"steps": 7}', False),
                             ('{"steps"', False)):
        pathlib.Path(path).write_text(text, 'utf-8')
        self.assertEqual(
            sweep._is_measured(path, ['--run_dir=a']), expected)

  def test_runs_wait_for_room_and_for_the_run_that_they_start_from(self):
    pool = _Pool(room=2)
    made, output = self._carry_out(pool, seeds=(1, 0))
    self.assertEqual(set(made.states.values()), {'finished'})
    self.assertCountEqual(pool.before, [
        f'{name}_seed{seed}' for name in ('relations', 'immovable')
        for seed in (0, 1)])
    for seed in '01':
      self.assertIn(
          f'relations_seed{seed}', pool.before[f'immovable_seed{seed}'])
    states = [line.split()[-1] for line in output.splitlines()
              if 'immovable_seed0' in line]
    self.assertEqual(states, ['waiting', 'finished'])  # A row for each change.

  def test_a_failure_stops_only_the_runs_that_need_it(self):
    # The second run's directory is removed while it runs.
    for lost, problem in ((False, 'broken'), (True, 'sweep.log')):
      made, _ = self._carry_out(_Pool(1, bad='relations_seed0', lost=lost))
      self.assertEqual(
          list(made.states.values()), ['failed', 'failed'] + 2 * ['finished'])
      one, other = made.problems.values()
      self.assertEqual(one, problem)
      self.assertIn('seed0, which it starts from, has failed', other)

  def test_a_signal_lets_runs_end_and_starts_no_other(self):
    pool = _Pool(1, signals=True)
    made, _ = self._carry_out(pool)
    self.assertEqual(pool.stops, 2)
    self.assertLen(pool.started, 1)
    self.assertEqual(set(made.states.values()), {'stopped'})

  def test_output_that_is_lost_ends_no_run(self):
    with mock.patch.object(sweep.Sweep, 'show', side_effect=OSError(5, 'lost')):
      made, _ = self._carry_out(_Pool(1))
    self.assertEqual(set(made.states.values()), {'finished'})

  def test_after_a_signal_failures_are_still_explained(self):
    def carry_out(made, pool):
      made.problems['runs/relations_seed0'] = 'broken'
      raise KeyboardInterrupt

    with mock.patch.object(sweep.Sweep, 'carry_out', carry_out):
      result = self._call('figure5')
    self.assertEqual(result.stderr, 'Error: runs/relations_seed0: broken\n'
                     'Stopped; the same command resumes.\n')

  def test_a_run_that_something_else_stops_is_not_made_forever(self):
    job, _ = experiments.jobs('figure5', self._runs, [0], False)
    made = sweep.Sweep([job])
    pool = _Pool(1)
    with (contextlib.redirect_stdout(io.StringIO()),
          mock.patch.object(time, 'sleep')):
      made.carry_out(pool)
    self.assertLen(pool.started, 1)
    self.assertIn('the same command resumes it', made.problems[job.run_dir])

  def test_in_a_terminal_the_table_is_drawn_in_place(self):
    made = sweep.Sweep(
        experiments.jobs('figure5', self._runs, [0], False))
    made.states[f'{self._runs}/immovable_seed0'] = 'started'
    with (contextlib.redirect_stdout(io.StringIO()) as output,
          mock.patch.object(output, 'isatty', return_value=True)):
      made.show()
      made.show()
    _, first, second = output.getvalue().split('\x1b[H\x1b[J')
    self.assertEqual(first, second)
    self.assertEqual([line.split()[-1] for line in first.splitlines()],
                     ['state', 'started', 'waiting'])

  def test_prints_lines_for_a_shell(self):
    result = self._call('figure5', '--seeds=2', '--first_seed=3', '--recipe',
                        '--commands', '--set=policy_threads=3')
    lines = result.stdout.splitlines()
    # Fine-tuning follows the run that it starts from, on one line.
    self.assertLen(lines, 2)
    for seed, line in zip((3, 4), lines):
      first, second = map(shlex.split, line.split(' && '))
      self.assertEqual(first[:4], [sys.executable, '-m', 'agile_tf.sweep',
                                  'figure5'])
      for part in (first, second):
        self.assertContainsSubset(
            ['--recipe', '--set=policy_threads=3', f'--runs={self._runs}',
             '--nocommands', f'--first_seed={seed}', '--seeds=1'], part)
      self.assertIn('--only=immovable', second)
      # Each command makes one run.
      status = programs.call(sweep, *second[3:], '--status').stdout
      self.assertEqual(
          [row.split()[0] for row in status.splitlines()[1:]],
          [os.path.join(self._runs, f'immovable_seed{seed}')])

  def test_printed_commands_run_as_they_stand(self):
    # The experiment may stand after --, where flags end.
    for given in (['figure5'], ['--', 'figure5']):
      line = programs.call(
          sweep, f'--runs={self._runs}', '--seeds=1', '--commands', *given
          ).stdout
      for part in line.split(' && '):
        command = shlex.split(part)
        flags_end = command.index('figure5') - ('--' in command)
        command.insert(flags_end, '--status')
        status = subprocess.run(
            command, capture_output=True, text=True, check=True).stdout
        self.assertLen(status.splitlines(), 2)

  @parameterized.parameters(
      (['figure5'], range(5)), (['arrangements'], range(10)),
      (['evening'], (2, 3)), (['arrangements_evening'], (2, 3, 4)),
      (['figure4_left', '--recipe'], (2, 3, 4)),
      (['figure5', '--recipe'], (2, 3)), (['figure7', '--recipe'], (2, 3)),
      (['figure5', '--seeds=2', '--first_seed=7'], (7, 8)),
      (['figure5', '--recipe', '--first_seed=0'], (0, 1)))
  def test_as_many_seeds_as_planned(self, arguments, expected):
    lines = self._call(*arguments, '--status').stdout.splitlines()
    self.assertEqual(
        {int(line.split()[0].rpartition('_seed')[2]) for line in lines[1:]},
        set(expected))

  @parameterized.parameters(
      (['figure9'], 'Name one experiment, .*figure4_left'),
      (['arrangements', '--recipe'], '--recipe: arrangements has no runs with'),
      (['figure5', '--only=relation'], '--only=relation is not a variant of'),
      (['figure5', '--set=seed=3'], '--set=seed=3: .* Give --first_seed'),
      (['figure5', '--set=--run_dir=a'], '--set=--run_dir=a: .* Give --runs'),
      (['figure5', '--set=sede=3'], 'Unknown command line flag .sede'),
      (['figure5', '--set='], '--set= names no flag; expected a flag of agile'),
      (['figure5', '--set=--'], '--set=-- names no flag'),
      (['figure5', '--set= '], '--set=  names no flag'),
      (['figure5', '--set=5'], '--set=5 names no flag'),
      (['figure5', '--set=dataset'], '--set: a flag has no value'),
      (['figure5', '--set=notruncate=1'], 'notruncate=1 does not take an arg'),
      (['figure5', '--set=imitation_cost=2'], '--imitation_cost=2.0 needs '))
  def test_bad_flags_are_explained(self, arguments, message):
    result = self._call(*arguments, '--commands')
    self.assertEqual(result.returncode, 1)
    self.assertRegex(result.stderr, f'(?s)^Error: .*{message}')

  def test_a_file_for_runs_is_refused_once(self):
    result = programs.call(sweep, 'figure5', f'--runs={__file__}/runs')
    self.assertEqual(result.returncode, 1)
    self.assertRegex(result.stderr, r'^Error: --runs=.* cannot be used .*\n$')
