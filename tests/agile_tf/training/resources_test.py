"""Tests for resources: the memory of a run, and runs that need too much."""

from unittest import mock

from absl.testing import parameterized
import numpy as np

from agile_tf import config as config_lib
from agile_tf import own_world
from agile_tf.training import building
from agile_tf.training import machine
from agile_tf.training import resources
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny


class ResourcesTest(parameterized.TestCase):

  def _needs(self, **changes):
    plan = building.Plan(config_lib.Config(**changes))
    return {need.flags[-1]: need.size for need in resources.needs(
        plan.config, plan.world, plan.needs_goals)}

  def test_the_buffers_take_what_they_are_made_of(self):
    config = tiny.config()
    parts = building.build(building.Plan(config))
    found = {need.flags[-1]: need.size
             for need in resources.needs(config, parts.world, True)}
    for buffer, name in (
        (parts.discriminator_worker.learner.buffer, 'replay_size'),
        (parts.data.auxiliary._buffer, 'reward_prediction_replay_size')):
      arrays = sum(buffer._arrays[each].nbytes
                   for each in ('codes', 'observations'))
      self.assertEqual(found[name], 2 * arrays)

  def test_a_run_needs_memory_for_what_it_uses_alone(self):
    both = self._needs(reward_prediction=True)
    self.assertEqual(self._needs(reward='environment').keys(),
                     {'rollout_length'})
    self.assertEqual(both.keys() - self._needs().keys(), {
        'reward_prediction_replay_size', 'reward_prediction_batch_size'})
    self.assertNotIn('dataset_size', self._needs(dataset='goals.npz'))
    # A pair has five slots and 27 bytes of a state.
    self.assertEqual(
        both['reward_prediction_batch_size'], 15 * 4 * (4 * 5 + 27))
    # A step has a state, and noise for five actions.
    self.assertEqual(both['rollout_length'], 15 * 15 * (27 + 4 * 5))

  def test_a_file_of_goal_examples_counts(self):
    path = self.create_tempfile().full_path
    self.assertNotIn('dataset', self._needs(dataset=path))
    with open(path, 'wb') as file:  # It takes much less on disk.
      np.savez_compressed(file, images=np.zeros([10**6], np.uint8))
    self.assertAlmostEqual(
        self._needs(dataset=path)['dataset'], 2e6, delta=1000)
    self.assertNotIn('dataset', self._needs(
        dataset=path, reward='environment'))
    with mock.patch.object(own_world, 'GOALS', path):
      own = self._needs(world='agile_tf.own_world:make_world')
    self.assertAlmostEqual(own['world'], 2e6, delta=1000)

  @parameterized.parameters(
      ('dataset_size', 10**10, {}, '2,000,000,000,000 bytes, is for the goal'),
      ('replay_size', 10**14, {}, 'bytes, is for the replay buffer B and'),
      ('rollout_length', 10_000, dict(policy_workers=10_000), 'rollouts'),
      ('reward_prediction_batch_size', 10**11, {}, "prediction's batches"),
      ('reward_prediction_replay_size', 10**12, {}, "prediction's replay buf"))
  def test_too_much_is_named_in_bytes_with_the_fix(
      self, name, value, others, what):
    plan = building.Plan(tiny.config(**{name: value}, **others))
    self.enter_context(
        mock.patch.object(machine, 'memory', return_value=2**32))
    with self.assertRaisesRegex(
        config_lib.ConfigError,
        'needs at least .*bytes of memory, but may use at most .* part, '
        f'.*{what}.*: '
        f'change .*--{name}={value}'):
      trainer_lib.Trainer(plan)
