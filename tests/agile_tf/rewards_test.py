"""Tests for rewards: both sides of the threshold."""

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from agile_tf import rewards


class RewardsTest(absltest.TestCase):

  def test_modelled_is_scaled_decision(self):
    probabilities = np.array([[.01, .499, .501], [.99, .5, .51]])
    logits = np.log(probabilities / (1 - probabilities)).astype(np.float32)
    # D = 0.5 itself is no goal.
    np.testing.assert_array_equal(
        rewards.modelled(tf.constant(logits), 0.1),
        np.array([[0, 0, .1], [.1, 0, .1]], np.float32))

  def test_threshold_is_sharp(self):
    tiny = np.float32(1e-30)
    np.testing.assert_array_equal(
        rewards.modelled(tf.constant([-tiny, 0, tiny]), 1.0), [0, 0, 1])

  def test_modelled_has_no_gradient(self):
    logits = tf.constant([-1., 1])
    with tf.GradientTape() as tape:
      tape.watch(logits)
      reward = rewards.modelled(logits, 0.1)
    self.assertIsNone(tape.gradient(reward, logits))

  def test_ground_truth(self):
    np.testing.assert_array_equal(
        rewards.ground_truth(tf.constant([0., 1]), 0.1),
        np.array([0, .1], np.float32))


if __name__ == '__main__':
  absltest.main()
