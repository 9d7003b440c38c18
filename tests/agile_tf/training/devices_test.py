"""Tests where programs run, and that this changes no result."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.training import machine
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny

# tests/agile_tf/conftest.py makes the second one.
_CPUS = ('/device:CPU:0', '/device:CPU:1')


def _trained(devices, **changes):
  trainer = trainer_lib.Trainer(
      tiny.plan(**changes), devices=devices)
  tiny.drive(trainer)
  return trainer


class DevicesTest(absltest.TestCase):

  def test_threads_are_dealt_over_devices(self):
    trainer = trainer_lib.Trainer(
        tiny.plan(policy_workers=6, policy_threads=3), devices=_CPUS)
    places = []
    for thread, worker in enumerate(trainer.policy_workers):
      with mock.patch.object(worker, 'iterate', side_effect=lambda *_: (
          places.append(tf.random.uniform([]).device[-13:]),
          mock.Mock(rollout=mock.Mock(steps=0)))[1]):
        trainer.iterate_policy(thread, trainer.snapshot())
    self.assertEqual(places, [_CPUS[0], _CPUS[1], _CPUS[0]])

  @pytest.mark.slow
  def test_a_run_is_the_same_on_another_device(self):
    one, other = (
        _trained([device]).checkpoint()
        for device in ('', _CPUS[1]))
    self.assertEqual(one.values, other.values)
    tiny.assert_equal_arrays(one, other)

  @pytest.mark.slow
  def test_a_run_on_two_devices_resumes_on_one(self):
    two = _trained(_CPUS, policy_threads=2)
    self.assertGreaterEqual(two.schedule.steps, 64)
    one = trainer_lib.Trainer(tiny.plan(
        policy_threads=2, steps=96, devices='CPU:0'))
    one.load(two.checkpoint())
    tiny.drive(one)
    self.assertGreaterEqual(one.schedule.steps, 96)


class SelectTest(parameterized.TestCase):

  def _select(self, devices, gpus):
    with mock.patch.object(
        tf.config, 'list_physical_devices', return_value=['GPU'] * gpus):
      return machine.select(devices)

  @parameterized.parameters(
      ('auto', 0, ()), ('auto', 4, (0, 1, 2, 3)), ('GPU:2, GPU:0', 4, (2, 0)),
      ('CPU:0', 4, ()))
  def test_gpus_are_selected_by_their_numbers(self, devices, there, gpus):
    self.assertEqual(self._select(devices, there), gpus)

  @parameterized.parameters(
      ('GPU:1', 'no GPU:1'), ('GPU:0,GPU:0', 'each once'), ('', 'expected'),
      ('GPU', 'expected'), ('GPU:0,CPU:0', 'expected'), ('CPU:1', 'expected'))
  def test_bad_devices_are_named(self, devices, words):
    with self.assertRaisesRegex(config_lib.ConfigError, words):
      self._select(devices, gpus=1)


class PrepareTest(parameterized.TestCase):

  @parameterized.parameters(
      ('auto', 0, [], ('',)), ('auto', 1, [0], ('',)),
      ('auto', 2, [0, 1], ('/device:GPU:0', '/device:GPU:1')),
      ('GPU:1', 2, [1], ('',)), ('CPU:0', 2, [], ('',)))
  def test_devices_of_policy_threads(self, devices, gpus, chosen, expected):
    with (mock.patch.object(machine, 'import_tensorflow') as imported,
          mock.patch.object(machine, 'keep_programs')):
      config = imported.return_value.config
      there = [mock.Mock() for _ in range(gpus)]
      config.list_physical_devices.return_value = there
      prepared = machine.prepare(config_lib.Config(devices=devices))
    self.assertEqual(prepared.devices, expected)
    config.set_visible_devices.assert_called_once_with(
        [there[i] for i in chosen], 'GPU')
    # Multiplication with 10 bits of mantissa is no float32.
    enable = config.experimental.enable_tensor_float_32_execution
    enable.assert_called_once_with(False)
