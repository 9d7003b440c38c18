"""Tests for Ctrl-C while a program is imported."""

import os
import signal
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized


class InterruptionTest(parameterized.TestCase):

  def _errors(self, *arguments):
    """Returns what Python prints if Ctrl-C comes while it imports NumPy."""
    folder = self.create_tempdir()
    folder.create_file('numpy.py', content='raise KeyboardInterrupt')
    path = os.pathsep.join(
        [folder.full_path, os.getcwd(), os.environ.get('PYTHONPATH', '')])
    process = subprocess.run(
        [sys.executable, *arguments], cwd=folder.full_path, text=True,
        env={**os.environ, 'PYTHONPATH': path}, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        check=False)
    self.assertIn(process.returncode, (-signal.SIGINT, 128 + signal.SIGINT))
    return process.stderr

  @parameterized.parameters(
      'agile_tf.launch', 'agile_tf.evaluate', 'gridlu.play')
  def test_our_programs_say_that_they_are_interrupted(self, name):
    self.assertEqual(self._errors('-m', name), 'Interrupted.\n')

  def test_other_programs_keep_their_traceback(self):
    self.assertIn('Traceback', self._errors('-c', 'import gridlu'))


if __name__ == '__main__':
  absltest.main()
