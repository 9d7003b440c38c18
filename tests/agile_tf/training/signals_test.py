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

from agile_tf import config
from agile_tf.training import run
from agile_tf.training import signals
from agile_tf.training import threads
from agile_tf.training import train

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
  if 'loading' in sys.argv:
    block = handler.deferred('TensorFlow is loaded')
    block.__enter__()
  if 'built' in sys.argv:
    schedule = threads.Schedule(10, 0)
    handler.stop_instead(schedule)
    if 'compiling' in sys.argv:
      schedule.waits_for = lambda: 'TensorFlow'

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
      (signal.SIGTERM, ('loading',), 'stopping before the run begins, as soon '
       'as TensorFlow is loaded.'),
      (signal.SIGUSR1, ('built',), 'SIGUSR1: saving and stopping.'),
      (signal.SIGUSR2, ('built', 'compiling'),
       'stopping after this iteration, which waits for TensorFlow.'))
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
    time.sleep(0.5)
    self.assertIsNone(process.poll())
    process.send_signal(number)
    self.assertEqual(process.wait(60), 128 + number)

  def test_a_signal_in_a_deferred_block_raises_at_its_end(self):
    done = []
    with self.assertRaises(KeyboardInterrupt), signals.Signals() as handler:
      with handler.deferred('it is done'):
        signal.raise_signal(signal.SIGTERM)
        done.append(True)
      self.fail('It went on.')
    self.assertEqual(done, [True])
    with self.assertRaises(KeyError), signals.Signals() as handler:
      with handler.deferred('it is done'):
        raise KeyError  # Its own error comes first.
    with self.assertRaises(KeyboardInterrupt), signals.Signals():
      signal.raise_signal(signal.SIGTERM)

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
    plan = mock.Mock(config=config.Config(
        run_dir=self.create_tempdir().full_path), given={})
    trainer = mock.Mock(**{'crew.snapshot.side_effect': KeyboardInterrupt},
                        schedule=threads.Schedule(10, 0))
    trainer.crew.policy = [None]
    trainer.crew.workers = {'policy': None}
    for build in (mock.Mock(side_effect=KeyboardInterrupt),
                  mock.Mock(return_value=(trainer, mock.Mock()))):
      with (mock.patch.object(run, 'build', build),
            self.assertRaises(KeyboardInterrupt)):
        train.train(plan)
