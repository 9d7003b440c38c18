"""Tests for agile_tf.judge, the program."""

import json
import os
from unittest import mock

from absl.testing import absltest

from agile_tf import judge
from agile_tf.evaluation import trained
from tests.agile_tf import tiny
from tests.gridlu import programs


class JudgeTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.save_for(
        cls, world='arrangements', instructions='Snake', episode_length=6,
        rollout_length=4)

  def _call(self, *arguments):
    with mock.patch.object(judge.options.machine, 'prepare'):
      return programs.call(judge, *arguments)

  def test_writes_a_page_once_and_reports_on_its_answers(self):
    run = f'--run_dir={self.run_dir}'
    result = self._call(run, '--episodes=3')
    self.assertEqual(result.returncode, 0, result.stderr)
    page = os.path.join(self.run_dir, 'judge.html')
    self.assertIn(page, result.stdout)
    cases_path = os.path.join(self.run_dir, 'judge_cases.json')
    with open(cases_path, encoding='utf-8') as file:
      cases = json.load(file)
    episodes = list(trained.load(self.run_dir).play(3, 1_000_003, False))
    self.assertEqual([case['verdicts'] for case in cases['cases']], [
        {'checker': e.success, 'reward model': bool(e.decisions[-1])}
        for e in episodes])
    with open(page, encoding='utf-8') as file:
      text = file.read()
    self.assertIn(cases['page'], text)
    self.assertEqual(text.count('"instruction": '), 3)

    again = self._call(run)
    self.assertEqual(again.returncode, 1)
    self.assertStartsWith(again.stderr, f'Error: --output={page} exists')

    answers = os.path.join(self.create_tempdir().full_path, 'answers.json')
    with open(answers, 'w', encoding='utf-8') as file:
      json.dump({'page': cases['page'], 'rater': '1', 'answers': 'ynn'}, file)
    for where in run, f'--cases={cases_path}':
      report = json.loads(
          self._call(where, f'--answers={answers}', '--json').stdout)
      self.assertEqual(report['success'][answers]['all']['rate'], 1 / 3)
    table = self._call(run, f'--answers={answers}').stdout
    self.assertIn('33.3 %', table)

  def test_bad_input_is_named_before_an_episode_is_played(self):
    for arguments, message in (
        ([], 'Give --run_dir'),
        (['--run_dir=/no/run'], 'There is no /no/run'),
        ([f'--run_dir={self.run_dir}', '--checkpoint=7'], 'step 7'),
        ([f'--run_dir={self.run_dir}', '--episodes=0'], '--episodes=0'),
        ([f'--run_dir={self.run_dir}', '--output=page.txt'], '--output=page'),
        (['--run_dir=/no', '--answers=a.json'], '/no/judge_cases.json')):
      result = self._call(*arguments)
      self.assertEqual(result.returncode, 1)
      self.assertStartsWith(result.stderr, 'Error: ')
      self.assertIn(message, result.stderr)


if __name__ == '__main__':
  absltest.main()
