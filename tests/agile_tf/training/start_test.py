"""Tests for start: what is answered without TensorFlow, and what is left."""

import json
import os
import subprocess
import sys

from absl.testing import parameterized

from agile_tf import config as config_lib
from agile_tf.training import start
from gridlu import program

# Calls a program as users do, and says whether it has imported TensorFlow.
_CALL = """
import importlib, sys
program = importlib.import_module(sys.argv.pop(1))
try:
  program.main()
finally:
  print('tensorflow' in sys.modules)
"""


def _call(module: str, *arguments: str) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, '-c', _CALL, module, *arguments], text=True,
      capture_output=True, check=False)


class StartTest(parameterized.TestCase):

  def _begin(self, run_dir, **changes):
    config = config_lib.Config(run_dir=run_dir, **changes)
    return start.begin(config, vars(config), {})

  @parameterized.parameters(
      ('launch', '--run_dir is empty'),
      ('launch', '--run_dir=D/run --world=nowhere:make',
       "world=nowhere:make cannot be loaded .there is no module 'nowhere'"),
      ('launch', '--run_dir=D/run --world=relation', 'that is not the name of'),
      ('launch', '--run_dir=D/run --dataset=D/no.npz', 'there is no such file'),
      ('launch', '--run_dir=D/run --instructions=nonsense', 'matches none'),
      ('launch', '--run_dir=D/run --initial_policy=D/no', 'no checkpoints'),
      ('launch', '--run_dir=D/run --reward=frozen --reward_model=D/no',
       'no checkpoints'),
      ('launch', '--run_dir=D/run --branch_from=trained@3',
       'no checkpoint'),
      ('launch', '--run_dir=D/run --branch_from=trained@9 --steps=9',
       'begins at step 9, where a run of --steps=9 has ended; make --steps la'),
      ('launch', '--run_dir=D/run --dataset_carrying=0.5 --world=w:make',
       'dataset_carrying=0.5 needs a GridLU task'),
      ('evaluate', '--run_dir=D/no', 'There is no .*no/config.json'),
      ('evaluate', '--run_dir=trained --checkpoint=3',
       'no checkpoint of step 3'),
      ('evaluate', '--run_dir=trained --instructions=nonsense', 'matches none'),
      ('evaluate', '--run_dir=trained --world=w:make', 'was trained on the'),
      ('choose', 'D/no', 'There is no .*no/config.json'),
      ('export_networks', '--run_dir=D/no --output=D/x', 'There is no .*no/con')
  )
  def test_mistakes_are_answered_without_tensorflow(
      self, module, arguments, message=None):
    if message is None:
      arguments, message = '', arguments
    folder = self.create_tempdir().full_path
    result = _call(
        f'agile_tf.{module}',
        *[each.replace('D/', f'{folder}/') for each in arguments.split()])
    self.assertEqual(result.returncode, 1)
    self.assertEqual(result.stdout, 'False\n')
    self.assertRegex(result.stderr, f'(?m)^Error: .*{message}')
    self.assertFalse(os.path.exists(os.path.join(folder, 'run')))

  def test_a_run_that_another_process_has_is_named_without_tensorflow(self):
    run_dir = self.create_tempdir().full_path
    with self._begin(run_dir):
      result = _call('agile_tf.launch', f'--run_dir={run_dir}')
    self.assertEqual(result.stdout, 'False\n')
    self.assertRegex(result.stderr, f'in use by process {os.getpid()} on')

  def test_a_new_run_that_made_nothing_leaves_nothing(self):
    folder = self.create_tempdir().full_path
    for rows, stays in (('', False), ('10\n', True)):
      run_dir = os.path.join(folder, f'run{rows.strip()}')
      with self.assertRaises(ZeroDivisionError), self._begin(run_dir):
        for name, text in (('metrics.csv', f'steps\n{rows}'),
                           ('config.json', '{}'),
                           ('events.out.tfevents.1', 'x')):
          with open(os.path.join(run_dir, name), 'w', encoding='utf-8') as file:
            file.write(text)
        os.mkdir(os.path.join(run_dir, 'checkpoints'))
        raise ZeroDivisionError
      self.assertEqual(os.path.exists(run_dir), stays)
    self.assertLen(os.listdir(run_dir), 5)

  def test_files_of_others_and_of_earlier_runs_stay(self):
    run_dir = self.create_tempdir()
    run_dir.create_file('notes.txt')
    for names in (), ('config.json', 'metrics.csv'):
      for name in names:
        run_dir.create_file(name, json.dumps(vars(config_lib.Config())))
      with self._begin(run_dir.full_path):
        run_dir.create_file('events.out.tfevents.1')
        run_dir.create_file('mine.txt')
      self.assertContainsSubset(
          {'notes.txt', 'mine.txt', *names}, os.listdir(run_dir.full_path))

  def test_a_config_json_of_something_else_is_refused_and_left_as_it_is(self):
    run_dir = self.create_tempdir()
    text = '{"name": "my project", "seed": 5}'
    file = run_dir.create_file('config.json', text)
    with self.assertRaisesRegex(
        program.UserError,
        'config.json: This version has no setting name: .*If the file is of '
        'no run, choose another --run_dir'):
      with self._begin(run_dir.full_path):
        self.fail('it would be overwritten')
    self.assertEqual(file.read_text(), text)

  def test_a_run_that_made_nothing_may_begin_with_other_settings(self):
    run_dir = self.create_tempdir()
    path = start.config_path(run_dir.full_path)
    one, other = (vars(config_lib.Config(discount=each)) for each in (.5, .9))
    config_lib.save(one, path)
    for rows in '', 'steps\n':  # As a killed run leaves them.
      run_dir.create_file('metrics.csv', rows)
      start.check_same_run(run_dir.full_path, other, {})
    for name, rows in ('metrics.csv', 'steps\n5\n'), ('metrics.csv.1', ''):
      run_dir.create_file('metrics.csv', '')
      run_dir.create_file(name, rows)
      start.check_same_run(run_dir.full_path, one, {})
      with self.assertRaisesRegex(
          program.UserError, 'discount: 0.5 there, 0.9 here'):
        start.check_same_run(run_dir.full_path, other, {})
