"""Tests for agile_tf.training.progress."""

import io
import sys
from unittest import mock

from absl import logging
from absl.testing import absltest
import tqdm.std

from agile_tf.training import progress as progress_lib


class _Terminal(io.StringIO):

  def isatty(self):
    return True


class ProgressTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._now = 1000.0
    clock = self.enterContext(mock.patch.object(tqdm.std, 'time'))
    clock.side_effect = lambda: self._now

  def test_the_time_left_counts_from_the_first_iteration(self):
    with mock.patch.object(sys, 'stderr', _Terminal()) as terminal:
      progress = progress_lib.Progress(100, 1100)
      self._now += 75  # For compilation.
      progress.update(200)
      self._now += 1
      progress.update(300)
      progress.close()
    self.assertNotIn('00:0', terminal.getvalue().split('200')[0])
    # 800 steps are left, at 100 in a second.
    self.assertIn('300 of 1.10k steps, 100 steps/s, 00:08 left',
                  terminal.getvalue())

  def test_log_lines_are_above_the_bar(self):
    with mock.patch.object(sys, 'stderr', _Terminal()) as terminal:
      handler = logging.get_absl_handler().python_handler
      before = handler.setStream(terminal)
      try:
        progress = progress_lib.Progress(0, 100)
        progress.update(10)
        handler.handle(logging.get_absl_logger().makeRecord(
            'absl', logging.INFO, 'file', 1, 'Built.', (), None))
        progress.close()
        self.assertIs(handler.stream, terminal)
      finally:
        handler.setStream(before)
    lines = terminal.getvalue().splitlines()  # '\r' and '\n' end one.
    line, = [line for line in lines if 'Built.' in line]
    self.assertNotIn('left', line)
    self.assertIn('10.0 of 100 steps', ''.join(lines[lines.index(line):]))

  def test_in_a_file_there_is_a_line_a_minute(self):
    with (mock.patch.object(sys, 'stderr', io.StringIO()),
          self.assertLogs('absl', 'INFO') as logs):
      progress = progress_lib.Progress(0, 10_000)
      for steps in range(1, 3001):  # 20 steps in a second, for 150 seconds.
        self._now += 0.05
        progress.update(steps)
        progress.note('success 5.0 %')
      progress.close()
      self.assertEqual(sys.stderr.getvalue(), '')
    minutes = [record.getMessage() for record in logs.records]
    self.assertLen(minutes, 3)  # The last says where it ended.
    self.assertRegex(minutes[0], r'^12\.0 % 1\.20k of 10\.0k steps, '
                     r'20\.0 steps/s, 07:19 left, success 5\.0 %$')
    self.assertStartsWith(minutes[2], '30.0 % 3.00k of')
