"""Tests a chief and a server, both in this process."""

import io
import os
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

import agile_tf
from agile_tf import config as config_lib
from agile_tf.cluster import devices
from agile_tf.cluster import notes as notes_lib
from agile_tf.cluster import roles
from agile_tf.cluster import servers as servers_lib
from agile_tf.cluster import serving
from agile_tf.training import placement
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny

_CHANGES = dict(steps=16, reward_prediction=True, devices='none')


class ServersTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # A server cannot be stopped, so all tests share one.
    cls.cluster = roles.Cluster((tiny.free_address(),), 1)
    cls.target = tf.distribute.Server(
        {'worker': list(cls.cluster.servers)},
        config=tf.compat.v1.ConfigProto(
            device_count={'CPU': 1, 'GPU': 0},
            inter_op_parallelism_threads=4)).target

  def _serve(self, config):
    """Starts a server; returns its thread and the list of its errors."""
    errors = []

    def obey():
      try:
        serving._obey(self.target, self.cluster, config)
      except config_lib.ConfigError as error:
        errors.append(str(error))

    thread = threading.Thread(target=obey)
    thread.start()
    return thread, errors

  def test_other_code_is_refused_by_name(self):
    config = tiny.config(run_dir='x', stall_minutes=1.0)
    with mock.patch.object(
        notes_lib, 'versions', return_value={'code': 'old'}):
      thread, errors = self._serve(config)
      notes = notes_lib.Notes(self.target, 10)
      while notes.read('server').get('versions') != {'code': 'old'}:
        pass
    with mock.patch.object(
        notes_lib, 'versions', return_value={'code': 'new'}):
      with self.assertRaisesRegex(
          config_lib.ConfigError,
          r'Server 1 \(127.* code old on the server and new on the chief'):
        with servers_lib.servers(self.cluster, config) as servers:
          servers.start()
          servers.wait()
    thread.join(60)
    self.assertIn('code old on the server and new on the chief', errors[0])

  def test_lost_devices_are_left_out_and_errors_raised(self):
    servers = servers_lib.Servers(
        roles.Cluster(('a:1', 'b:1'), 0), tiny.config(run_dir='x'))
    devices_ = [mock.Mock(), mock.Mock(), mock.Mock()]
    for device, lost in zip(devices_, (False, True, False)):
      device.lost.is_set.return_value = lost
    links = [mock.Mock(devices=devices_[:2], error=None),
             mock.Mock(devices=devices_[2:], error=None)]
    with mock.patch.object(servers, '_links', links):
      self.assertEqual(list(servers.devices()), [devices_[0], devices_[2]])
      links[1].error = RuntimeError('too often')
      with self.assertRaisesRegex(RuntimeError, 'too often'):
        servers.devices()

  def test_ctrl_c_before_the_run_begins_ends_the_servers(self):
    config = tiny.config(run_dir='x', stall_minutes=1.0)
    thread, errors = self._serve(config)
    with self.assertRaises(KeyboardInterrupt):
      with servers_lib.servers(self.cluster, config) as servers:
        servers.start()
        servers.wait()
        raise KeyboardInterrupt
    thread.join(60)
    self.assertFalse(thread.is_alive() or errors)

  def _device(self, seconds=60.0, address=''):
    return devices.RemoteDevice(
        'a device', f'grpc://{address}' if address else self.target,
        '/job:worker/replica:0/task:0/device:CPU:0', seconds)

  def test_programs_run_there_as_they_do_here(self):
    @tf.function(autograph=False, jit_compile=True)
    def play(theta, observations, scale):
      kept = observations * scale + theta[0]
      return kept + 1.0, tf.argmax(kept, -1), (kept, theta * 2.0)

    @tf.function(autograph=False, jit_compile=True)
    def reward(phi, observations):
      return phi[0] * observations, observations > 1.0

    @tf.function(autograph=False, jit_compile=True)
    def gradients(theta, weights, results, replayed):
      total = tf.reduce_sum(weights * results[0])
      total += 0.0 if replayed is None else replayed
      return [theta * total, results[1]], {'loss': total}

    theta = tf.range(4, dtype=tf.float32)
    x = np.arange(6, dtype=np.float32).reshape([2, 3])
    device = self._device()
    for replayed in None, np.float32(0.5):
      here, there = (
          (kind.play(play, theta, x, np.float32(3.0)),
           kind.reward(reward, theta + 1.0, x))
          for kind in (placement.LocalDevice(), device))
      # Another thread's rollout in between.
      device.play(play, theta + 1.0, x, np.float32(4.0))
      outputs = [
          (*played[:2], *rewarded, *tf.nest.flatten(kind.gradients(
              gradients, theta, x, played[2], replayed)))
          for kind, (played, rewarded) in (
              (placement.LocalDevice(), here), (device, there))]
      self.assertLen(outputs[0], 7)
      for one, other in zip(*outputs):
        np.testing.assert_array_equal(one, other)
      device = self._device()  # Whose programs have the same names.

  def test_what_stays_there_is_not_sent(self):
    play = tf.function(
        lambda theta, x: (x, x, (tf.zeros([1000]) + theta[0],)),
        autograph=False)
    gradients = tf.function(
        lambda theta, results, replayed: (theta + results[0][0], {}),
        autograph=False)
    device = self._device()
    theta = tf.zeros([50])
    *_, results = device.play(play, theta, np.float32(0))
    self.assertEqual(
        (device.sent, device.received), (8 + 4 * 50 + 4, 4 + 4))
    device.gradients(gradients, theta, results, None)
    self.assertEqual(device.sent, 8 + 4 * 50 + 4 + 8)
    self.assertEqual(device.received, 4 + 4 + 4 * 50)

  def test_a_device_that_does_not_answer_is_lost(self):
    device = self._device(1.0, tiny.free_address())
    play = tf.function(lambda theta: (theta, (theta,)), autograph=False)
    for _ in range(2):
      with self.assertRaises(placement.LostError):
        device.play(play, tf.zeros([1]))
    self.assertTrue(device.lost.is_set())

  def test_other_code_has_another_version(self):
    expected = notes_lib.versions()
    self.assertEqual(notes_lib.versions(), expected)
    for package in 'agile_tf/agent', 'gridlu':
      folder = os.path.join(os.path.dirname(os.path.dirname(
          agile_tf.__file__)), package)
      real = open

      def changed(path, *args, folder=folder, real=real):
        if os.path.dirname(path) == folder:
          return io.BytesIO(b'other code')
        return real(path, *args)

      with mock.patch('builtins.open', changed):
        other = notes_lib.versions()
      name, = {key for key in expected if other[key] != expected[key]}
      self.assertIn('agile_tf and gridlu', name)

  @parameterized.parameters(
      tf.errors.UnavailableError, tf.errors.DeadlineExceededError,
      tf.errors.AbortedError, tf.errors.CancelledError,
      tf.errors.InternalError, tf.errors.UnknownError)
  def test_what_a_server_that_ends_answers_loses_the_device(self, kind):
    device = self._device()
    play = tf.function(lambda theta: (theta, (theta,)), autograph=False)
    with mock.patch.object(
        device._session, 'run', side_effect=kind(None, None, 'gone')):
      with self.assertRaises(placement.LostError):
        device.play(play, tf.zeros([1]))
    self.assertTrue(device.lost.is_set())
    self.assertIsInstance(device.failure, kind)
    self.assertFalse(device.useful)

  def test_a_device_is_useful_once_it_has_computed_gradients(self):
    device = self._device()
    play = tf.function(lambda theta: (theta, (theta,)), autograph=False)
    gradients = tf.function(
        lambda theta, results, replayed: (theta, {}), autograph=False)
    theta = tf.zeros([1])
    *_, results = device.play(play, theta)
    self.assertFalse(device.useful)
    device.gradients(gradients, theta, results, None)
    self.assertTrue(device.useful)

  def test_a_rollout_has_one_deadline(self):
    play = tf.function(lambda theta: (theta, (theta,)), autograph=False)
    reward = tf.function(lambda phi: (phi, phi), autograph=False)
    device = self._device(60.0)
    device.play(play, tf.zeros([1]))
    device.reward(reward, tf.zeros([1]))
    device._rollout.end -= 60.0
    with self.assertRaises(placement.LostError):
      device.reward(reward, tf.zeros([1]))

  @pytest.mark.slow
  def test_a_run_is_the_same_on_a_server_but_for_rounding(self):
    """The server compiles the programs as parts of other graphs."""
    config = tiny.config(**_CHANGES)
    local = trainer_lib.Trainer(config)
    threads.drive(local, lambda: None)
    thread, errors = self._serve(config)
    with servers_lib.servers(self.cluster, config) as servers:
      servers.start()
      servers.wait()
      device, = servers.devices()
      far = trainer_lib.Trainer(
          config, placement=placement.Placement((), servers.devices))
      threads.drive(far, lambda: None)
    thread.join(60)
    self.assertFalse(thread.is_alive() or errors)
    # The chief sends theta and phi once for each rollout; the gradients of two
    # rows come back.
    self.assertGreater(device.sent, 0)
    self.assertGreater(
        device.received, 2 * 4 * far.policy.snapshot().shape[0])
    one, other = local.checkpoint(), far.checkpoint()
    for name, value in one.values.items():
      if name != 'tally':
        self.assertEqual(value, other.values[name])
    for name, value in one.values['tally']['sums'].items():
      self.assertAlmostEqual(
          value, other.values['tally']['sums'][name], places=4, msg=name)
    for name, value in one.arrays.items():
      np.testing.assert_allclose(
          value, other.arrays[name], rtol=1e-4, atol=1e-5, err_msg=name)


if __name__ == '__main__':
  absltest.main()
