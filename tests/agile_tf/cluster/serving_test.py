"""Tests the server's program: what it obeys, and a run of two processes."""

import itertools
import signal
import socket
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from agile_tf import config as config_lib
from agile_tf.cluster import notes as notes_lib
from agile_tf.cluster import roles
from agile_tf.cluster import serving
from agile_tf.training import checkpoints
from tests.agile_tf import tiny

_RUNNING = {'state': notes_lib.RUNNING, 'run': 'r', 'beat': 1}


class _Anew(Exception):
  """The process was replaced."""


class ServingTest(parameterized.TestCase):

  def _obey(self, *chief):
    """Follows these notes of a chief, one a second."""
    notes = mock.Mock()
    notes.read.side_effect = chief
    self.read = notes.read
    for patch in (
        mock.patch.object(notes_lib, 'Notes', return_value=notes),
        mock.patch.object(serving, 'time', mock.Mock(
            monotonic=mock.Mock(side_effect=itertools.count()))),
        mock.patch.object(serving, '_start_anew', side_effect=_Anew)):
      patch.start()
      self.addCleanup(patch.stop)
    serving._obey('', roles.Cluster(('a:1',), 1), tiny.config(
        run_dir='x', stall_minutes=2.0))

  def test_it_ends_when_the_chief_is_done(self):
    self._obey({}, _RUNNING, {'state': notes_lib.DONE})

  def test_it_starts_anew_when_the_chief_says_so(self):
    with self.assertRaises(_Anew):
      self._obey({}, {'state': notes_lib.RESTART})

  def test_it_starts_anew_when_the_chief_is_silent(self):
    beats = [{**_RUNNING, 'beat': beat} for beat in range(200)]
    with self.assertRaises(_Anew):
      self._obey({}, *beats, *[beats[-1]] * 100)
    # The last beat is the 201st note; after it a minute may pass.
    self.assertEqual(self.read.call_count, 201 + 61)

  def test_it_waits_for_a_chief_that_was_never_there(self):
    with self.assertLogs('absl', 'INFO') as logs:
      self._obey(*[{}] * 1000, {'state': notes_lib.DONE})
    # It says so every two minutes.
    self.assertLen(
        [line for line in logs.output if 'still waiting' in line],
        1000 // 121)

  def test_it_ends_when_it_is_refused(self):
    with self.assertRaisesRegex(config_lib.ConfigError, 'other versions'):
      self._obey({'state': notes_lib.REFUSED, 'why': 'It has other versions.'})

  @pytest.mark.slow
  def test_a_port_in_use(self):
    with socket.socket(socket.AF_INET6) as listener:
      listener.bind(('::', 0))
      listener.listen()
      port = listener.getsockname()[1]
      result = subprocess.run(
          [sys.executable, '-m', 'agile_tf.launch',
           *tiny.flags(run_dir='x'), f'--cluster=localhost:{port}', '--task=1'],
          stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    self.assertEqual(result.returncode, 1)
    self.assertIn(
        f'Server 1 cannot serve at localhost:{port}', result.stderr)
    self.assertIn('Is its port in use?', result.stderr)

  @pytest.mark.slow
  def test_two_processes_make_a_run_and_end_together(self):
    run_dir = self.create_tempdir().full_path
    address = tiny.free_address()
    server, chief = (
        subprocess.Popen(
            [sys.executable, '-m', 'agile_tf.launch',
             *tiny.flags(run_dir=run_dir, steps=10_000_000,
                         checkpoint_minutes=0.05), '--devices=none',
             f'--cluster={address}', f'--task={task}'],
            stderr=subprocess.PIPE, text=True) for task in (1, 0))
    try:
      deadline = time.monotonic() + 240
      while time.monotonic() < deadline and not checkpoints.steps(run_dir):
        time.sleep(.2)
      chief.send_signal(signal.SIGINT)
      errors = [process.communicate(timeout=120)[1]
                for process in (chief, server)]
    finally:
      for process in chief, server:
        process.kill()
    self.assertEqual([chief.returncode, server.returncode], [0, 0], errors)
    self.assertGreater(checkpoints.steps(run_dir)[-1], 0)
    self.assertIn('is here with 1 device', errors[0])
    self.assertIn('executes whatever is sent', errors[1])
    self.assertIn('The chief is done.', errors[1])


if __name__ == '__main__':
  absltest.main()
