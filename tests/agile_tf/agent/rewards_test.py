"""Tests for rewards: both sides of the threshold."""

from unittest import mock

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import programs
from agile_tf.agent import rewards


class RewardsTest(parameterized.TestCase):

  def test_threshold_is_sharp(self):
    tiny = np.float32(1e-30)
    np.testing.assert_array_equal(
        rewards.modelled(tf.constant([-tiny, 0, tiny]), 'decision', 1.0),
        [0, 0, 1])

  @parameterized.parameters(*rewards.FORMS)
  def test_modelled_has_no_gradient(self, form):
    logits = tf.constant([-1., 1])
    with tf.GradientTape() as tape:
      tape.watch(logits)
      reward = rewards.modelled(logits, form, 0.1)
    self.assertIsNone(tape.gradient(reward, logits))

  def test_forms(self):
    formulas = {
        'decision': lambda d: d > .5, 'probability': lambda d: d,
        'log': np.log, 'gail': lambda d: -np.log(1 - d)}
    self.assertEqual(tuple(formulas), tuple(rewards.FORMS))
    d = np.array([.001, .2, .49, .51, .8, .999])
    logits = tf.constant(np.log(d / (1 - d)), tf.float32)
    for form, formula in formulas.items():
      np.testing.assert_allclose(
          rewards.modelled(logits, form, 0.1), 0.1 * formula(d), rtol=1e-5,
          err_msg=form)

  def test_logarithms_are_cut_off(self):
    logits = tf.constant([-1e6, -9., 9., 1e6])
    np.testing.assert_allclose(
        rewards.modelled(logits, 'log', 1.), [-10, -9.00012, -.000123, 0],
        atol=1e-5)
    np.testing.assert_allclose(
        rewards.modelled(logits, 'gail', 1.), [0, .000123, 9.00012, 10],
        atol=1e-5)

  @parameterized.parameters(*rewards.FORMS)
  def test_programs_decide_alike_whatever_the_reward(self, form):
    """D's logit is the number of the state and of the code, less 8.6."""
    world = mock.Mock(images=lambda states: tf.cast(states, tf.float32))
    states = np.arange(10, dtype=np.uint8).reshape([5, 2, 1])
    codes = np.array([[1], [2]], np.int32)

    def at(phi):
      def discriminator(images, instructions):
        self.assertEqual(instructions.shape, (8, 1))
        return images[:, 0] + tf.cast(instructions[:, 0], tf.float32) + phi[0]

      return discriminator

    phi = tf.constant([-8.6])
    logits = states[1:, :, 0] + codes[:, 0] - np.float32(8.6)
    made = programs.Programs(
        None, mock.Mock(at=at), world, reward_form=form, reward_scale=.3)
    values, decided = made.reward(phi, states, codes)
    np.testing.assert_allclose(
        values, rewards.modelled(tf.constant(logits), form, .3), rtol=1e-5)
    # The threshold is D's and not its logit's: 9 is accepted.
    np.testing.assert_array_equal(decided, states[1:, :, 0] + codes[:, 0] > 8)
