"""Tests for agile_tf.stopping."""

import signal

from absl.testing import absltest

from agile_tf import stopping


class StoppingTest(absltest.TestCase):

  def test_sighup_and_sigusr1_may_be_ignored(self):
    for number in (signal.SIGHUP, signal.SIGUSR1):
      self.addCleanup(signal.signal, number, signal.getsignal(number))
      for answer, stops in (signal.SIG_IGN, False), (signal.SIG_DFL, True):
        signal.signal(number, answer)
        self.assertEqual(number in stopping.signals(), stops)
