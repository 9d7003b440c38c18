"""Tests how the chief follows one server, whose notes are made up here."""

import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import tensorflow as tf

from agile_tf.cluster import background
from agile_tf.cluster import links
from agile_tf.cluster import notes as notes_lib

_CHIEF = {'id': 'me', 'run': '/runs/a'}
_VERSIONS = {'code': '1'}
_INTERNAL = tf.errors.InternalError(None, None, 'ptxas failed\nand more')
_UNAVAILABLE = tf.errors.UnavailableError(None, None, 'Connection refused')


class _Server:
  """A server's notes, and the links' calls that write them.

  Attributes:
    notes: By name.
    states: The states that the chief has written.
    reachable: Whether calls succeed.
    failures: The errors with which its devices are lost, one a connection.
  """

  def __init__(self):
    self.notes = {
        'server': {'versions': _VERSIONS, 'instance': '0'}, 'chief': {}}
    self.states = []
    self.reachable = True
    self.failures = []
    self.useful = False
    self.instances = 0

  def write(self, name, value):
    self._check()
    self.notes[name] = value
    self.states.append(value['state'])
    if value['state'] == notes_lib.RESTART:
      self.instances += 1
      self.notes = {
          'server': {'versions': _VERSIONS, 'instance': str(self.instances)},
          'chief': {}}

  def read(self, name):
    self._check()
    return self.notes[name]

  def devices(self):
    return ['CPU:0']

  def close(self):
    pass

  def _check(self):
    if not self.reachable:
      raise _UNAVAILABLE

  def device(self, *_):
    device = mock.Mock(failure=None, useful=self.useful)
    device.lost = threading.Event()
    if self.failures:
      device.failure = self.failures.pop(0)
      device.lost.set()
    return device


class LinkTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.server = _Server()
    for patch in (
        mock.patch.object(links, '_BEAT_SECONDS', 0.01),
        mock.patch.object(background, 'END_SECONDS', 1.0),
        mock.patch.object(notes_lib, 'Notes', return_value=self.server),
        mock.patch.object(
            links.devices_lib, 'RemoteDevice', self.server.device)):
      patch.start()
      self.addCleanup(patch.stop)

  def _link(self):
    link = links.Link('Server 1', 'host:1', _CHIEF, _VERSIONS, 10)
    link.start()
    self.addCleanup(link.close, False)
    return link

  def _end(self, link, done):
    link.close(done)
    link.join(10)
    self.assertFalse(link._thread.is_alive())

  def _wait(self, condition):
    for _ in range(1000):
      if condition():
        return
      threading.Event().wait(0.01)
    self.fail('It did not happen within ten seconds.')

  @parameterized.parameters(True, False)
  def test_a_connected_server_hears_of_the_end_once(self, done):
    link = self._link()
    self._wait(lambda: link.devices)
    self._end(link, done)
    self.assertEqual(self.server.states.count(notes_lib.DONE), int(done))

  def test_a_server_that_could_not_be_reached_hears_of_the_end(self):
    self.server.reachable = False
    link = self._link()
    link.close(True)
    threading.Event().wait(0.1)
    self.assertEmpty(self.server.states)
    self.server.reachable = True
    link.join(10)
    self.assertEqual(self.server.states, [notes_lib.DONE])

  def test_a_server_of_another_run_is_left_alone(self):
    self.server.notes['chief'] = {
        'id': 'other', 'run': '/runs/b', 'state': notes_lib.RUNNING}
    with self.assertLogs(level='INFO') as logs:
      link = self._link()
      self._wait(lambda: logs.output)
    self.assertIn('it serves another run, /runs/b', logs.output[0])
    self._end(link, True)
    self.assertEmpty(self.server.states)

  def test_the_end_does_not_wait_for_long_for_a_dead_server(self):
    self.server.reachable = False
    self._end(self._link(), True)
    self.assertEmpty(self.server.states)

  def test_a_lost_server_starts_anew_and_is_taken_back(self):
    self.server.failures = [_UNAVAILABLE]
    with self.assertLogs(level='INFO') as logs:
      link = self._link()
      self._wait(lambda: self.server.instances == 1 and link.devices)
    text = '\n'.join(logs.output)
    self.assertIn('does not answer any more (Connection refused)', text)
    self.assertIn('answers again, and starts anew', text)

  def test_an_earlier_chief_of_the_run_is_replaced(self):
    self.server.notes['chief'] = {
        'id': 'dead', 'run': '/runs/a', 'state': notes_lib.RUNNING}
    link = self._link()
    self._wait(lambda: link.devices)
    self.assertEqual(
        self.server.states[:2], [notes_lib.RESTART, notes_lib.RUNNING])

  def test_a_server_that_always_fails_ends_the_run(self):
    self.server.failures = [_INTERNAL] * 5
    link = self._link()
    self._wait(lambda: link.error is not None)
    self._end(link, False)
    self.assertLen(self.server.failures, 2)
    self.assertIn('failed 3 times', str(link.error))
    self.assertIn('ptxas failed', str(link.error))

  @parameterized.parameters(
      ([_INTERNAL] * 9, True), ([_UNAVAILABLE] * 9, False))
  def test_a_server_that_works_or_is_cut_off_is_tried_again(
      self, failures, useful):
    self.server.failures = list(failures)
    self.server.useful = useful
    link = self._link()
    self._wait(lambda: not self.server.failures and link.devices)
    self.assertIsNone(link.error)


if __name__ == '__main__':
  absltest.main()
