"""Tests for the final states that a person judges, and the answers."""

import dataclasses
import json
import os
import socket

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import worlds
from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import played
from agile_tf.training import checkpoints
from gridlu import rendering
from tests.agile_tf.evaluation import judged


class CasesTest(absltest.TestCase):

  def test_boards_are_drawn_counted_and_described(self):
    cases = judged.cases()
    for case, state in zip(cases, judged.STATES):
      np.testing.assert_array_equal(case.image, rendering.render(state))
    # A carried block is on the board.
    self.assertEqual([case.blocks for case in cases], [4, 4, 8, 8])
    self.assertEqual(
        [case.verdict for case in cases], [True, False, True, False])
    self.assertEqual(
        cases[1].description,
        'A board of 5 rows and 5 columns: red rect in row 1, column 2; red '
        'rect in row 2, column 2; red rect in row 3, column 3; red rect in row '
        '4, column 3. The agent is in row 3, column 3 and carries the block '
        'there.')

  def test_another_world_has_images_alone(self):
    own = dataclasses.replace(
        worlds.gridlu_world('arrangements'), observation_shape=(24, 30, 3),
        images=lambda x: tf.cast(x, tf.float32) / 255, checker=None)
    image = np.arange(24 * 30 * 3).reshape(24, 30, 3).astype(np.uint8)
    # More than one batch of images.
    cases = judge_cases.make_cases(
        [played.Episode('go home', image, None, None)] * 70, own)
    self.assertLen(cases, 70)
    np.testing.assert_array_equal(cases[69].image, image)
    self.assertEqual(
        cases[69][2:], ('The final state of episode 70.', None, None))

  def test_fingerprints_tell_cases_apart(self):
    cases = judged.cases()
    same = judge_cases.fingerprint(cases)
    self.assertEqual(judge_cases.fingerprint(judged.cases((None,) * 4)), same)
    for others in (
        cases[:3], cases[::-1],
        [*cases[:3], cases[3]._replace(instruction=judged.SNAKE)],
        [*cases[:3], cases[3]._replace(image=cases[2].image)]):
      self.assertNotEqual(judge_cases.fingerprint(others), same)


class AnswersTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.run_dir = self.create_tempdir().full_path
    self.path = judged.SERIES.path(self.run_dir)

  def _open(self):
    answers = judge_cases.Answers(self.path, judged.SERIES)
    answers.use_with('cases')
    return answers

  def _content(self):
    with open(self.path, encoding='utf-8') as file:
      return file.read()

  def test_every_change_is_in_the_file_at_once(self):
    answers = self._open()
    for done, expected in (
        (True, [True]), (False, [True, False]), (None, [True]),
        (True, [True, True]), (None, [True]), (None, []), (False, [False])):
      if done is None:
        answers.undo()
      else:
        answers.append(done)
      self.assertEqual(list(answers.values), expected)
      self.assertEqual(json.loads(self._content()), {
          'step': 64, 'seed': 3, 'episodes': 4, 'greedy': False,
          'fingerprint': 'cases', 'answers': expected})
      # The file as a crash would leave it.
      self.assertEqual(list(self._open().values), expected)
    self.assertEqual(os.listdir(self.run_dir), [os.path.basename(self.path)])

  def test_each_series_has_a_file_of_its_own(self):
    others = [
        judged.SERIES,
        *(judged.SERIES._replace(**change) for change in (
            {'step': 65}, {'seed': 4}, {'episodes': 5}, {'greedy': True}))]
    self.assertLen({series.path(self.run_dir) for series in others}, 5)

  @parameterized.parameters(
      ('', 'damaged'), ('[' * 100_000, 'damaged'),
      ('{"step": 64, "seed"', 'damaged'),
      ('[]', 'expected the keys step, seed'),
      ('{"answers": []}', 'expected the keys step, seed'),
      ('ANSWERS [true, 1]', 'a list of true and false'),
      ('ANSWERS {"0": true}', 'a list of true and false'),
      ('ANSWERS [true, true, true, true, false]',
       '5 answers there, 4 episodes here'),
  )
  def test_a_damaged_file_is_named_and_left(self, content, message):
    if content.startswith('ANSWERS'):
      content = json.dumps({
          **judged.SERIES._asdict(), 'fingerprint': 'cases',
          'answers': json.loads(content.removeprefix('ANSWERS'))})
    with open(self.path, 'w', encoding='utf-8') as file:
      file.write(content)
    with self.assertRaisesRegex(judge_cases.JudgeError, message) as raised:
      self._open()
    self.assertIn(self.path, str(raised.exception))
    self.assertIn('away', str(raised.exception))
    self.assertEqual(self._content(), content)

  def test_bytes_that_are_no_text(self):
    with open(self.path, 'wb') as file:
      file.write(b'\xff\xfe\x00')
    with self.assertRaisesRegex(judge_cases.JudgeError, 'is not text'):
      self._open()

  def test_a_renamed_file_of_another_series_is_refused(self):
    self._open().append(True)
    other = judged.SERIES._replace(seed=4, greedy=True)
    os.rename(self.path, other.path(self.run_dir))
    with self.assertRaisesRegex(
        judge_cases.JudgeError,
        'seed is 3 there, 4 here; greedy is False there'):
      judge_cases.Answers(other.path(self.run_dir), other)

  def test_answers_to_other_cases_are_refused(self):
    answers = self._open()
    # Without answers the file takes the other cases.
    judge_cases.Answers(self.path, judged.SERIES).use_with('others')
    answers = self._open()
    answers.append(True)
    before = self._content()
    with self.assertRaisesRegex(
        judge_cases.JudgeError, '1 answers to other epis'):
      judge_cases.Answers(self.path, judged.SERIES).use_with('others')
    self.assertEqual(self._content(), before)

  def test_two_programs_do_not_overwrite_each_other(self):
    first, second = self._open(), self._open()
    first.append(True)
    with self.assertRaisesRegex(judge_cases.JudgeError, 'changed or removed'):
      second.append(False)
    self.assertEqual(second.values, ())
    self.assertEqual(self._open().values, (True,))

  def test_what_cannot_be_saved_is_not_answered(self):
    answers = self._open()
    answers.append(True)
    before = self._content()
    # A directory of this name stops even root from writing.
    os.mkdir(f'{self.path}.{socket.gethostname()}.{os.getpid()}.part')
    for change in (answers.undo, lambda: answers.append(False)):
      with self.assertRaisesRegex(judge_cases.JudgeError, 'cannot be written'):
        change()
      self.assertEqual(answers.values, (True,))
      self.assertEqual(self._content(), before)
    with self.assertRaisesRegex(judge_cases.JudgeError, 'cannot be written'):
      judge_cases.Answers(
          judged.SERIES.path(os.path.join(self.run_dir, 'no')), judged.SERIES)

  def test_tells_of_answers_to_another_checkpoint(self):
    self.assertEmpty(judge_cases.other_answers(self.run_dir, judged.SERIES))
    self._open().append(True)
    self.assertEmpty(judge_cases.other_answers(self.run_dir, judged.SERIES))
    newer = judged.SERIES._replace(step=128)
    note, = judge_cases.other_answers(self.run_dir, newer)
    self.assertRegex(note, 'has 1 answers to episodes of step 64.* is gone')
    checkpoints.save(self.run_dir, 64, checkpoints.Checkpoint({}, {}), keep=1)
    note, = judge_cases.other_answers(self.run_dir, newer)
    self.assertIn('--checkpoint=64 continues', note)
    self.assertEmpty(
        judge_cases.other_answers(self.run_dir, newer._replace(seed=9)))
    with open(self.path, 'w', encoding='utf-8') as file:
      file.write('{')
    self.assertEmpty(judge_cases.other_answers(self.run_dir, newer))


if __name__ == '__main__':
  absltest.main()
