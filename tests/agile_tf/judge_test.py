"""Tests for agile_tf.judge, the program."""

import contextlib
import json
import os
import pathlib
from unittest import mock

from absl.testing import parameterized

from agile_tf import judge
from agile_tf.evaluation import trained
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs


class JudgeTest(tiny.SavedRunTest):

  changes = dict(world='arrangements', instructions='Snake', episode_length=6,
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
    text = pathlib.Path(page).read_text('utf-8')
    self.assertIn(cases['page'], text)
    self.assertEqual(text.count('"instruction": '), 3)

    again = self._call(run)
    self.assertEqual(again.returncode, 1)
    self.assertStartsWith(again.stderr, f'Error: {page} exists')
    os.rename(page, f'{page}.away')  # The cases are needed for its answers.
    self.assertStartsWith(
        self._call(run).stderr, f'Error: {cases_path} exists')
    os.rename(f'{page}.away', page)

    answers = os.path.join(self.create_tempdir().full_path, 'answers.json')
    with open(answers, 'w', encoding='utf-8') as file:
      json.dump({'page': cases['page'], 'rater': '1', 'answers': 'ynn'}, file)
    for where in run, f'--output={page}':
      self.assertIn(
          '33.3 %', self._call('--run_dir=trained' if where != run else run,
                               where, f'--answers={answers}').stdout)

  def test_bad_input_is_named_before_an_episode_is_played(self):
    for arguments, message in (
        (['--run_dir=/no/run'], 'There is no /no/run'),
        ([f'--run_dir={self.run_dir}', '--checkpoint=7'], 'step 7'),
        ([f'--run_dir={self.run_dir}', '--episodes=0'], '--episodes=0'),
        ([f'--run_dir={self.run_dir}', '--output=page.txt'], '--output=page'),
        (['--run_dir=/no', '--answers=a.json'], '/no/judge_cases.json')):
      result = self._call(*arguments)
      self.assertEqual(result.returncode, 1)
      self.assertStartsWith(result.stderr, 'Error: ')
      self.assertIn(message, result.stderr)


class ReportTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.create_tempdir().full_path
    self.enter_context(contextlib.chdir(folder))
    self._write('cases.json', {'page': 'p', 'cases': [
        {'groups': ['all', f'{blocks} blocks'],
         'verdicts': {'checker': checker, 'reward model': True}}
        for blocks, checker in (
            (4, True), (4, True), (4, False), (8, False), (8, False))]})

  def _write(self, name, content):
    pathlib.Path(name).write_text(
        content if isinstance(content, str) else json.dumps(content), 'utf-8')

  def _answer(self, name, answers, page='p'):
    self._write(name, {'page': page, 'rater': name, 'answers': answers})

  def test_a_report_has_rates_and_agreement(self):
    self._answer('a.json', 'yyyyn')
    self._answer('b.json', 'yynnn')
    self.assertEqual(
        judge.report('cases.json', ['a.json', 'b.json']).splitlines(), [
            'judge                 episodes    success   95 % interval',
            'a.json             4 blocks    3   100.0 %   43.9 to 100.0 %',
            'a.json             8 blocks    2    50.0 %   9.5 to 90.5 %',
            'a.json                  all    5    80.0 %   37.6 to 96.4 %',
            'b.json             4 blocks    3    66.7 %   20.8 to 93.9 %',
            'b.json             8 blocks    2     0.0 %   0.0 to 65.8 %',
            'b.json                  all    5    40.0 %   11.8 to 76.9 %',
            'checker            4 blocks    3    66.7 %   20.8 to 93.9 %',
            'checker            8 blocks    2     0.0 %   0.0 to 65.8 %',
            'checker                 all    5    40.0 %   11.8 to 76.9 %',
            'reward model       4 blocks    3   100.0 %   43.9 to 100.0 %',
            'reward model       8 blocks    2   100.0 %   34.2 to 100.0 %',
            'reward model            all    5   100.0 %   56.6 to 100.0 %',
            'a.json and b.json agree in 60.0 % (23.1 to 88.2 %)',
            'a.json and checker agree in 60.0 % (23.1 to 88.2 %)',
            'a.json and reward model agree in 80.0 % (37.6 to 96.4 %)',
            'b.json and checker agree in 100.0 % (56.6 to 100.0 %)',
            'b.json and reward model agree in 40.0 % (11.8 to 76.9 %)',
            'checker and reward model agree in 40.0 % (11.8 to 76.9 %)'])

  @parameterized.parameters(
      ('', 'b.json cannot be read'), ('{"answers"', 'b.json cannot be read'),
      ('[]', 'page, answers, rater'), ('3', 'b.json cannot be read'),
      ('[' * 10_000, 'b.json cannot be read'),
      ({'page': 'p', 'answers': 'yyyyy'}, 'b.json .*: it lacks rater'),
      ({'page': 'q', 'rater': 1, 'answers': 'yyyyy'}, 'another page'),
      ({'page': 'p', 'rater': 1, 'answers': 'yyy'}, '3 answers; .* 5 epi'),
      ({'page': 'p', 'rater': 1, 'answers': 'yyyyx'}, 'expected y or n'),
      ({'page': 'p', 'rater': 1, 'answers': None}, 'answers is None'),
      ({'page': 'p', 'rater': 1, 'answers': ['y'] * 5}, 'answers is a list'),
      ({'page': None, 'rater': 1, 'answers': 'yyyyy'}, 'page is None'),
      ({'page': 'p', 'rater': None, 'answers': 'yyyyy'}, 'rater is None'),
      ({'page': 'p', 'rater': 'a.json', 'answers': 'nnnnn'},
       'a.json and b.json have the answers of one person'))
  def test_files_that_cannot_be_used_are_named(self, content, message):
    self._answer('a.json', 'yyyyy')
    self._write('b.json', content)
    with self.assertRaisesRegex(program.UserError, message):
      judge.report('cases.json', ['a.json', 'b.json'])

  @parameterized.parameters(
      ('cases.json', 'a.json', 'answers of one person'),
      ('cases.json', 'c.json', 'c.json cannot be read: .* --output names'),
      ('a.json', 'b.json', 'a.json cannot be read: it lacks cases'))
  def test_files_that_do_not_belong_together_are_named(
      self, cases, other, message):
    self._answer('a.json', 'yyyyy')
    with self.assertRaisesRegex(program.UserError, message):
      judge.report(cases, ['a.json', other])

  def test_answers_are_not_taken_for_a_verdict(self):
    self._answer('checker', 'yyyyy')
    with self.assertRaisesRegex(
        program.UserError, '^checker has the name of a verdict in cases.json'):
      judge.report('cases.json', ['checker'])

  @parameterized.parameters(
      ({'cases': None}, 'cases is None: expected a list'),
      ({'cases': []}, 'has no cases'), ({'cases': [3]}, r'cases\[0\] is 3'),
      ({'page': 5}, 'page is 5: expected a text'))
  def test_cases_of_another_form_are_refused(self, changes, message):
    self._answer('a.json', '')
    self._write('cases.json', {'page': 'p', 'cases': []} | changes)
    with self.assertRaisesRegex(program.UserError, f'^cases.json.*{message}'):
      judge.report('cases.json', ['a.json'])

  @parameterized.parameters(
      ({'checker': 'yes', 'reward model': True},
       r"cases\[1\].verdicts.checker is 'yes': expected true or false"),
      ({'checker': None, 'reward model': True}, 'verdicts.checker is None'),
      ({'checker': 1, 'reward model': True}, 'verdicts.checker is 1'),
      ({'reward model': True}, r'cases\[1\].verdicts has reward model; '
       'expected checker, reward model'), ([], 'verdicts is a list'))
  def test_verdicts_of_another_form_are_refused(self, verdicts, message):
    self._answer('a.json', 'yy')
    right = {'checker': True, 'reward model': True}
    self._write('cases.json', {'page': 'p', 'cases': [
        {'groups': ['all'], 'verdicts': each} for each in (right, verdicts)]})
    with self.assertRaisesRegex(program.UserError, f'^cases.json.*{message}'):
      judge.report('cases.json', ['a.json'])

  @parameterized.parameters('cases.json', 'a.json')
  def test_special_files_are_refused(self, name):
    self._answer('a.json', 'yyyyy')
    os.remove(name)
    os.mkfifo(name)
    with self.assertRaisesRegex(program.UserError, f'^{name} .*a named pipe'):
      judge.report('cases.json', ['a.json'])
