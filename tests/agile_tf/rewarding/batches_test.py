"""Tests for batches: what gives rewards, and what it may return."""

from absl.testing import parameterized
import numpy as np

from agile_tf.rewarding import batches

_STATES = [(np.zeros([24, 24, 3], np.uint8), 'go'),
           (np.ones([24, 24, 3], np.uint8), 'stay')]


class RewarderTest(parameterized.TestCase):

  @parameterized.parameters(
      [[.5, .75]], [np.array([.5, .75])], [(np.float64(.5), .75)])
  def test_a_reward_is_1_above_one_half(self, returned):
    rewards, probabilities = batches.Rewarder(
        lambda images, texts: returned)(_STATES)
    for found, expected in (rewards, [0, 1]), (probabilities, [.5, .75]):
      np.testing.assert_array_equal(found, expected)
      self.assertEqual(found.dtype, np.float32)

  @parameterized.parameters(
      [None], ['x'], [[.5]], [[.5] * 3], [[[.5], [.5]]], [[.5, np.nan]],
      [[-.1, .5]], [[.5, 1.1]], [.5], [[.5, 10**400]], [['.5', '.5']])
  def test_what_are_no_probabilities_is_named(self, returned):
    rewarder = batches.Rewarder(lambda images, texts: returned)
    with self.assertRaisesRegex(
        ValueError, 'returned .* for 2 states: expected 2 probabilities'):
      rewarder(_STATES)

  @parameterized.parameters(
      (None, 0, 'The reward model is None: expected a directory, a function'),
      (5, 0, 'The reward model is 5: expected a directory'),
      (len, 3, 'states_per_update is 3: expected .*0 for a reward model that'),
      (len, -1, 'states_per_update is -1: expected a whole number'),
      (len, 1.5, 'states_per_update is 1.5: expected a whole number'),
      (len, '0', "states_per_update is '0': expected a whole number"))
  def test_what_gives_no_rewards_is_named(self, model, states, message):
    with self.assertRaisesRegex(ValueError, message):
      batches.Rewarder(model, states)
