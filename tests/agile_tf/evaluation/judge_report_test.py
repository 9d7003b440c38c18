"""Tests for the report on judged episodes."""

import json

from absl.testing import absltest

from agile_tf.evaluation import judge_report
from agile_tf.evaluation import played
from tests.agile_tf.evaluation import judged


class ReportTest(absltest.TestCase):

  def test_counts_by_the_number_of_blocks(self):
    report = judge_report.summarize(
        judged.cases(), [True, True, False, False], 'checker')
    self.assertEqual(report, {
        'episodes': 4, 'judged': 4, 'automatic_judge': 'checker',
        'person': {
            'all': {'episodes': 4, 'rate': .5,
                    'interval': played.interval(2, 4)},
            '4 blocks': {'episodes': 2, 'rate': 1.0,
                         'interval': played.interval(2, 2)},
            '8 blocks': {'episodes': 2, 'rate': 0.0,
                         'interval': played.interval(0, 2)}},
        'automatic': {
            name: {'episodes': n, 'rate': .5,
                   'interval': played.interval(n // 2, n)}
            for name, n in (('all', 4), ('4 blocks', 2), ('8 blocks', 2))},
        'agreement': {
            'episodes': 2, 'rate': .5, 'interval': played.interval(2, 4),
            'person_alone': 1, 'automatic_alone': 1}})
    self.assertEqual(list(report['person']), ['all', '4 blocks', '8 blocks'])
    json.dumps(report)

  def test_a_person_who_is_not_done_stays_blind(self):
    report = judge_report.summarize(judged.cases(), [True], 'checker')
    self.assertEqual(report['judged'], 1)
    self.assertEqual(report['person']['all']['rate'], 1.0)
    self.assertNotIn('8 blocks', report['person'])
    self.assertNotIn('automatic', report)
    self.assertNotIn('agreement', report)

  def test_the_automatic_judge_alone(self):
    report = judge_report.summarize(judged.cases(), None, 'checker')
    self.assertEqual(report['judged'], 4)
    self.assertEqual(report['automatic']['8 blocks']['rate'], .5)
    self.assertNotIn('person', report)
    self.assertNotIn('agreement', report)

  def test_without_answers_there_is_nothing_to_say(self):
    report = judge_report.summarize(judged.cases(), [], 'checker')
    self.assertEqual(
        report, {'episodes': 4, 'judged': 0, 'automatic_judge': 'checker'})
    self.assertEqual(judge_report.table(report), '0 of 4 episodes are judged.')

  def test_without_an_automatic_judge_the_person_stands_alone(self):
    cases = [case._replace(blocks=None, verdict=None)
             for case in judged.cases()[:2]]
    report = judge_report.summarize(cases, [True, False], 'checker')
    self.assertEqual(list(report['person']), ['all'])
    self.assertNotIn('automatic', report)
    self.assertNotIn('agreement', report)
    self.assertRegex(judge_report.table(report), r'all +person +2 +50\.0 %')

  def test_the_table_is_readable(self):
    text = judge_report.table(
        judge_report.summarize(
            judged.cases(), [True, True, False, True], 'checker'))
    lines = text.splitlines()
    self.assertEqual([' '.join(line.split()) for line in lines[:3]], [
        'episodes judge count success 95 % interval',
        'all person 4 75.0 % 30.1 to 95.4 %',
        'all checker 4 50.0 % 15.0 to 85.0 %'])
    self.assertLen(lines, 1 + 3 * 2 + 2)
    self.assertIn('agree on 1 of them (25.0 %', lines[-1])
    self.assertIn(
        'the person alone: 2; for the checker alone: 1.', lines[-1])
    self.assertLessEqual(max(map(len, lines[:-1])), 80)


if __name__ == '__main__':
  absltest.main()
