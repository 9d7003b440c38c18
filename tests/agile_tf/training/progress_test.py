"""Tests for agile_tf.training.progress."""

import io
import sys
from unittest import mock

from absl import logging
from absl.testing import parameterized

from agile_tf.training import progress as progress_lib


class _Terminal(io.StringIO):

  def isatty(self):
    return True


class ProgressTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._now = 1000.0
    clock = self.enterContext(mock.patch.object(progress_lib, 'time'))
    clock.monotonic.side_effect = lambda: self._now
    self.enterContext(mock.patch.object(progress_lib.threading, 'Thread'))

  def _watch(self, progress, *updates):
    """Does what the thread does, with a second before each update."""
    def seconds():
      for update in updates:
        self._now += 1.0
        progress.update(*update)
        yield False
      yield True

    with mock.patch.object(progress._over, 'wait', side_effect=seconds()):
      progress._watch()

  def test_log_lines_are_above_the_bar(self):
    with mock.patch.object(sys, 'stderr', _Terminal()) as terminal:
      handler = logging.get_absl_handler().python_handler
      before = handler.setStream(terminal)
      try:
        progress = progress_lib.Progress()
        self._watch(progress, (0, 100))
        handler.handle(logging.get_absl_logger().makeRecord(
            'absl', logging.INFO, 'file', 1, 'Built.', (), None))
        self._watch(progress, (10, 100))
        progress.close()
        self.assertIs(handler.stream, terminal)
      finally:
        handler.setStream(before)
    lines = terminal.getvalue().splitlines()  # '\r' and '\n' end one.
    line, = [line for line in lines if 'Built.' in line]
    self.assertNotIn('steps', line)
    self.assertIn('10.0 %, 10 of 100 steps',
                  ''.join(lines[lines.index(line):]))

  def test_a_finished_run_compiles_nothing(self):
    with (mock.patch.object(sys, 'stderr', io.StringIO()),
          self.assertLogs('absl', 'INFO') as logs):
      progress = progress_lib.Progress()
      self._watch(progress, (400, 400))
      progress.close()
    self.assertEqual({record.getMessage() for record in logs.records},
                     {'100.0 %, 400 of 400 steps'})

  def test_a_run_is_prepared_before_anything_is_counted(self):
    with (mock.patch.object(sys, 'stderr', io.StringIO()),
          self.assertLogs('absl', 'INFO') as logs):
      progress = progress_lib.Progress()
      self._watch(progress, *[(0, 0)] * 3, (0, 400))
      progress.close()
    self.assertEqual(
        logs.records[0].getMessage(), 'preparing the run, for 1 second')
    self.assertNotIn('next of 0', str(logs.output))

  def test_in_a_file_there_is_a_line_a_minute(self):
    what = 'iterations of the head start'
    with (mock.patch.object(sys, 'stderr', io.StringIO()),
          self.assertLogs('absl', 'INFO') as logs):
      progress = progress_lib.Progress()
      progress.note = 'success 5.0 %'
      self._watch(
          progress, *[(0, 400, what)] * 60,  # For compilation.
          *[(done, 400, what) for done in range(200)],
          *[(20 * second, 10_000_000) for second in range(151)])
      progress.close()
    lines = [record.getMessage() for record in logs.records]
    self.assertEqual(lines[0], 'waiting before the next of 400 iterations of '
                     'the head start')
    self.assertEndsWith(lines[1], ' for 59 seconds')
    self.assertEqual(lines[2], '14.8 %, 59 of 400 iterations of the head '
                     'start, 1 a second, 6 minutes left, success 5.0 %')
    # The time that is left does not depend on how long compilation took.
    self.assertStartsWith(lines[-1], '0.0 %, 3.00k of 10.0M steps, 20 a second')
    self.assertEndsWith(lines[-1], '6 days left, success 5.0 %')
    self.assertLen(lines, 8)

  @parameterized.parameters(
      ("the environment's step()", "the environment's step()"),
      ('TensorFlow', 'TensorFlow, which compiles'))
  def test_it_says_what_it_waits_for(self, waits_for, expected):
    with (mock.patch.object(sys, 'stderr', io.StringIO()),
          self.assertLogs('absl', 'INFO') as logs):
      progress = progress_lib.Progress()
      progress.waits_for = lambda: waits_for
      self._watch(progress, *[(0, 200)] * 362)
      progress.close()
    self.assertEqual(
        logs.records[-1].getMessage(), f'waiting for {expected}, '
        'before the next of 200 steps, for 6 minutes')

  @parameterized.parameters(
      (0.3, '0 seconds'), (1, '1 second'), (119, '119 seconds'),
      (120, '2 minutes'), (7199, '120 minutes'), (3 * 3600, '3 hours'),
      (601 * 3600, '25 days'))
  def test_durations_are_words(self, seconds, words):
    self.assertEqual(progress_lib.duration(seconds), words)
