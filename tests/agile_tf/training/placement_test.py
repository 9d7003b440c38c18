"""Tests where programs run, and that this changes no result."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.training import machine
from agile_tf.training import placement
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny

# tests/agile_tf/conftest.py makes the second one.
_CPUS = ('/device:CPU:0', '/device:CPU:1')


def _trained(devices, **changes):
  trainer = trainer_lib.Trainer(
      tiny.config(**changes), placement=placement.Placement(devices))
  threads.drive(trainer, lambda: None)
  return trainer


class _Fragile(placement.LocalDevice):
  """A device that is lost at every third gradient."""

  def __init__(self):
    super().__init__()
    self.calls = 0

  def gradients(self, program, *inputs):
    self.calls += 1
    if not self.calls % 3:
      raise placement.LostError
    return program(*inputs)


class PlacementTest(absltest.TestCase):

  def test_threads_are_dealt_over_devices(self):
    seats = [placement.Placement(_CPUS).seat(i) for i in range(5)]
    for kind in 'play', 'reward', 'gradients':
      self.assertEqual([
          getattr(seat, kind)(tf.random.uniform)([]).device[-13:]
          for seat in seats], [_CPUS[i % 2] for i in range(5)])

  def test_devices_come_and_go(self):
    there = []
    devices = placement.Placement((), lambda: there)
    play = devices.seat(1).play(lambda: None)
    with (mock.patch.object(placement.time, 'sleep'),
          self.assertLogs(level='WARNING') as logs):
      for reminder, messages in (0, 2), (60, 2):
        with mock.patch.object(placement, '_REMINDER_SECONDS', reminder):
          for _ in range(2):
            with self.assertRaises(placement.LostError):
              play()
        self.assertLen(logs.output, messages)
    self.assertIn('No device is left for policy threads', logs.output[0])
    there.append(device := mock.Mock())
    play()
    there.append(other := mock.Mock())
    play()
    play()
    self.assertEqual(
        (device.play.call_count, other.play.call_count), (1, 2))

  def test_a_rollout_stays_on_its_device(self):
    """Its gradients are computed where its results were kept."""
    there = [mock.Mock(), mock.Mock()]
    seat = placement.Placement((), lambda: there).seat(1)
    first, last = there
    seat.play('play')()
    there.pop()
    seat.reward('reward')(1)
    seat.gradients('gradients')(2)
    last.reward.assert_called_once_with('reward', 1)
    last.gradients.assert_called_once_with('gradients', 2)
    seat.play('play')()
    seat.gradients('gradients')(3)
    first.gradients.assert_called_once_with('gradients', 3)
    last.gradients.assert_called_once()

  @pytest.mark.slow
  def test_a_run_is_the_same_on_another_device(self):
    one, other = (
        _trained([device], reward_prediction=True).checkpoint()
        for device in ('', _CPUS[1]))
    self.assertEqual(one.values, other.values)
    for name, value in one.arrays.items():
      np.testing.assert_array_equal(value, other.arrays[name], name)

  @pytest.mark.slow
  def test_a_run_on_two_devices_resumes_on_one(self):
    two = _trained(_CPUS, policy_threads=2)
    self.assertGreaterEqual(two.schedule.steps, 64)
    one = trainer_lib.Trainer(tiny.config(
        policy_threads=2, steps=96, devices='CPU:0'))
    one.load(two.checkpoint())
    threads.drive(one, lambda: None)
    self.assertGreaterEqual(one.schedule.steps, 96)

  def test_rollouts_of_a_lost_device_are_dropped(self):
    device = _Fragile()
    trainer = trainer_lib.Trainer(
        tiny.config(reward_prediction=True),
        placement=placement.Placement((), lambda: [device]))
    with mock.patch.object(
        trainer.policy, 'apply', wraps=trainer.policy.apply) as apply:
      threads.drive(trainer, lambda: None)
    self.assertGreaterEqual(trainer.schedule.steps, 64)
    self.assertGreater(device.calls, 3)
    self.assertEqual(apply.call_count, device.calls - device.calls // 3)


class SelectTest(parameterized.TestCase):

  def _select(self, devices, gpus):
    with mock.patch.object(
        tf.config, 'list_physical_devices', return_value=['GPU'] * gpus):
      return machine.select(devices)

  @parameterized.parameters(
      ('auto', 0, (), 1), ('auto', 4, (0, 1, 2, 3), 1), ('none', 2, (0, 1), 1),
      ('GPU:2,GPU:0', 4, (2, 0), 1), ('CPU:0', 4, (), 1),
      ('CPU:0,CPU:1', 0, (), 2))
  def test_selection(self, devices, there, gpus, cpus):
    self.assertEqual(
        self._select(devices, there), machine.Selection(gpus, cpus))

  @parameterized.parameters(
      ('GPU:1', 'no GPU:1'), ('GPU:0,GPU:0', 'each once'), ('', 'expected'),
      ('GPU', 'expected'), ('GPU:0,CPU:0', 'GPUs alone'), ('CPU:1', 'gap'))
  def test_errors(self, devices, words):
    with self.assertRaisesRegex(config_lib.ConfigError, words):
      self._select(devices, gpus=1)


class PrepareTest(parameterized.TestCase):

  @parameterized.parameters(
      ('auto', 0, ('',)), ('auto', 1, ('',)), ('none', 0, ()), ('none', 2, ()),
      ('auto', 2, ('/device:GPU:0', '/device:GPU:1')),
      ('GPU:1', 2, ('',)), ('CPU:0,CPU:1', 0, _CPUS))
  def test_devices_of_policy_threads(self, devices, gpus, expected):
    with (mock.patch.object(machine, 'import_tensorflow') as imported,
          mock.patch.object(machine.compilation_cache, 'start')):
      config = imported.return_value.config
      config.list_physical_devices.return_value = [
          mock.Mock() for _ in range(max(gpus, 1))]
      with mock.patch.object(machine, 'select', return_value=(
          machine.Selection(tuple(range(gpus))[-1:] if devices == 'GPU:1' else
                            tuple(range(gpus)), len(devices.split(','))))):
        prepared = machine.prepare(config_lib.Config(devices=devices))
    self.assertEqual(prepared.devices, expected)
    # Multiplication with 10 bits of mantissa is no float32.
    enable = config.experimental.enable_tensor_float_32_execution
    enable.assert_called_once_with(False)


if __name__ == '__main__':
  absltest.main()
