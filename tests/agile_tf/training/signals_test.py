"""Tests for agile_tf.training.signals.

The program below stands for a compilation: C code from which the main thread
does not return for longer than the test waits. It is ready when that code runs,
which only the main thread's CPU time tells: between its instructions Python
would call the handler of a signal.
"""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from unittest import mock

from absl.testing import parameterized

from agile_tf.training import run
from agile_tf.training import signals
from agile_tf.training import threads

_PROGRAM = """
  import hashlib
  import sys
  import threading
  import time
  from absl import logging
  from agile_tf.training import signals
  from agile_tf.training import threads

  logging.set_verbosity(logging.INFO)
  handler = signals.Signals().__enter__()
  if 'built' in sys.argv:
    schedule = threads.Schedule(10, 0)
    handler.stop_instead(schedule)
    schedule.steps = 0 if 'compiling' in sys.argv else 1

  def print_when_it_computes(clock, start):
    while time.clock_gettime(clock) < start + 0.1:
      time.sleep(0.01)
    print('ready', flush=True)

  clock = time.pthread_getcpuclockid(threading.get_ident())
  threading.Thread(
      target=print_when_it_computes, args=(clock, time.clock_gettime(clock)),
      daemon=True).start()
  hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)
"""


class SignalsTest(parameterized.TestCase):

  @parameterized.parameters(
      (signal.SIGINT, (), 'SIGINT: stopping before the run begins'),
      (signal.SIGUSR1, ('built',), 'SIGUSR1: saving and stopping.'),
      (signal.SIGUSR2, ('built', 'compiling'),
       'stopping after this iteration, which may'))
  def test_the_first_is_answered_at_once_and_the_second_ends(
      self, number, arguments, answer):
    process = subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(_PROGRAM), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Under nohup a run ignores SIGHUP, and so would this one.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    self.addCleanup(process.communicate)
    self.addCleanup(process.kill)
    assert process.stdout is not None
    assert process.stderr is not None
    self.assertEqual(process.stdout.readline(), 'ready\n')
    process.send_signal(number)
    process.send_signal(number)  # Of a wrapper: the same signal.
    line = process.stderr.readline()  # While the main thread computes.
    self.assertIn(answer, line)
    self.assertIn('A second one ends the process at once', line)
    time.sleep(1.1)
    self.assertIsNone(process.poll())
    process.send_signal(number)
    self.assertEqual(process.wait(60), 128 + number)

  def test_a_run_in_another_thread_handles_none(self):
    before = signal.getsignal(signal.SIGTERM)

    def run():
      with signals.Signals() as handler:
        handler.stop_instead(threads.Schedule(10, 0))
        handlers.append(signal.getsignal(signal.SIGTERM))

    handlers: list = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    self.assertEqual(handlers, [before])

  def test_an_interrupt_of_something_else_is_no_success(self):
    builder = mock.Mock()
    builder.config.run_dir = self.create_tempdir().full_path
    trainer = mock.Mock(**{'drive.side_effect': KeyboardInterrupt,
                           'schedule.steps': 0})
    for build in (mock.Mock(side_effect=KeyboardInterrupt),
                  mock.Mock(return_value=(trainer, mock.Mock()))):
      with (mock.patch.object(run, 'build', build),
            self.assertRaises(KeyboardInterrupt)):
        run.train(builder)
