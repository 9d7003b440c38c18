"""Tests for agile_tf.training.signals.

The program below stands for a compilation: C code from which the main thread
does not return for longer than the test waits.
"""

import signal
import subprocess
import sys
import textwrap
import time

from absl.testing import absltest
from absl.testing import parameterized

_PROGRAM = """
  import hashlib
  import sys
  from absl import logging
  from agile_tf.training import schedule
  from agile_tf.training import signals

  logging.set_verbosity(logging.INFO)
  handler = signals.Signals()
  if 'built' in sys.argv:
    handler.schedule = schedule.Schedule(10, 0)
    handler.compiling = 'compiling' in sys.argv
  print('ready', flush=True)
  hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)
"""


class SignalsTest(parameterized.TestCase):

  @parameterized.parameters(
      ((), 'SIGINT: stopping before the run begins'),
      (('built',), 'SIGINT: saving and stopping.'),
      (('built', 'compiling'), 'stopping when the programs are compiled'))
  def test_the_first_is_answered_at_once_and_the_second_ends(
      self, arguments, answer):
    process = subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(_PROGRAM), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    self.addCleanup(process.communicate)
    self.addCleanup(process.kill)
    assert process.stdout is not None
    assert process.stderr is not None
    self.assertEqual(process.stdout.readline(), 'ready\n')
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # Of a wrapper: the same signal.
    line = process.stderr.readline()  # While the main thread computes.
    self.assertIn(answer, line)
    self.assertIn('A second one ends the process at once', line)
    time.sleep(1.1)
    self.assertIsNone(process.poll())
    process.send_signal(signal.SIGINT)
    self.assertEqual(process.wait(60), 128 + signal.SIGINT)


if __name__ == '__main__':
  absltest.main()
