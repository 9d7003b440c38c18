"""Tests for agile_tf.judge, the program."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

from absl.testing import absltest

from agile_tf import config as config_lib
from agile_tf import judge
from agile_tf.evaluation import judge_cases
from agile_tf.training import checkpoints
from tests.agile_tf import tiny


class ProgramTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.save_for(
        cls, world='arrangements', instructions='Snake', episode_length=6,
        rollout_length=4)
    cls.step, = checkpoints.steps(cls.run_dir)

  def _command(self, *arguments):
    return [sys.executable, '-m', 'agile_tf.judge', '--episodes=3', '--json',
            f'--run_dir={self.run_dir}', *arguments]

  def _start(self):
    """Starts the program; returns it and the address of its page."""
    program = subprocess.Popen(
        self._command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    self.addCleanup(program.stderr.close)
    self.addCleanup(program.stdout.close)
    self.addCleanup(program.kill)
    line = next(
        (line for line in program.stderr if line.startswith('Open ')), '')
    self.assertTrue(line, 'The program ended without a page.')
    return program, line, re.search(r'http://127.0.0.1:\d+', line)[0]

  def _post(self, address, body):
    request = urllib.request.Request(
        address, json.dumps(body).encode(),
        {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as reply:
      return json.load(reply)

  def test_judges_leaves_and_takes_up_again(self):
    program, line, address = self._start()
    self.assertIn('judge 3 episodes, 0 of them answered', line)
    with urllib.request.urlopen(f'{address}/image/2.png', timeout=60) as reply:
      last = reply.read()
    self._post(f'{address}/answer', {'answered': 0, 'done': True})
    # Twice, as from a wrapper that also signals the process group.
    program.send_signal(signal.SIGINT)
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    self.assertEqual(program.returncode, 0, errors)
    report = json.loads(output)
    self.assertEqual(
        (report['steps'], report['judged'], report['episodes']),
        (self.step, 1, 3))
    self.assertEqual(report['person']['all']['rate'], 1.0)
    self.assertEqual(report['automatic_judge'], 'checker')

    program, line, address = self._start()
    self.assertIn('judge 3 episodes, 1 of them answered', line)
    with urllib.request.urlopen(f'{address}/image/2.png', timeout=60) as reply:
      self.assertEqual(reply.read(), last)
    self._post(f'{address}/answer', {'answered': 1, 'done': False})
    self._post(f'{address}/answer', {'answered': 2, 'done': False})
    self.assertLen(self._post(f'{address}/report', {})['notes'], 2)
    output, errors = program.communicate(timeout=60)  # Ends by itself.
    self.assertEqual(program.returncode, 0, errors)
    report = json.loads(output)
    self.assertEqual(report['judged'], 3)
    with open(report['answers'], encoding='utf-8') as file:
      self.assertEqual(json.load(file)['answers'], [True, False, False])

    # Everything is answered, so it only reports.
    series = judge_cases.Series(-1, 1_000_003, 3, False)
    again, automatic = (
        json.loads(json.dumps(
            judge.judge(self.run_dir, None, series, automatic, 0)))
        for automatic in (False, True))
    self.assertEqual(again, report)
    self.assertEqual(automatic['automatic'], report['automatic'])
    self.assertNotIn('person', automatic)

  def test_bad_input_is_named(self):
    series = judge_cases.Series(-1, 5, 2, False)
    nowhere = self.create_tempdir().full_path
    with self.assertRaisesRegex(config_lib.ConfigError, nowhere):
      judge.judge(nowhere, None, series, False, 0)
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'step 7'):
      judge.judge(self.run_dir, 7, series, False, 0)
    # Refused before an episode is played.
    path = series._replace(step=self.step).path(self.run_dir)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('{')
    self.addCleanup(os.remove, path)
    with self.assertRaisesRegex(judge_cases.JudgeError, path):
      judge.judge(self.run_dir, None, series, False, 0)
    result = subprocess.run(
        self._command('--episodes=0'), capture_output=True, text=True,
        check=False)
    self.assertEqual(result.returncode, 1)
    self.assertIn('--episodes=0', result.stderr)
    self.assertNotIn('Traceback', result.stderr)


if __name__ == '__main__':
  absltest.main()
