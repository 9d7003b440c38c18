"""Tests for rewards: both sides of the threshold."""

from unittest import mock

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import programs
from agile_tf.agent import rewards


class RewardsTest(parameterized.TestCase):

  def test_threshold_is_sharp(self):
    tiny = np.float32(1e-30)
    np.testing.assert_array_equal(
        rewards.modelled(tf.constant([-tiny, 0, tiny]), 'decision', 1.0, 0.5),
        [0, 0, 1])

  @parameterized.parameters(0.05, 0.5, 0.8, 0.95)
  def test_a_threshold_is_a_probability(self, threshold):
    d = np.array([-1e-4, -1e-6, 1e-6, 1e-4]) + threshold
    logits = tf.constant(np.log(d / (1 - d)), tf.float64)
    for accepted in (rewards.decisions(logits, threshold),
                     rewards.modelled(logits, 'decision', 1.0, threshold)):
      np.testing.assert_array_equal(accepted, d > threshold)

  def test_the_thresholds_default_is_that_of_a_run(self):
    self.assertEqual(
        programs.DiscriminatorPrograms(None).reward_threshold,
        config_lib.Config.reward_threshold)

  @parameterized.parameters(*rewards.FORMS)
  def test_modelled_has_no_gradient(self, form):
    logits = tf.constant([-1., 1])
    with tf.GradientTape() as tape:
      tape.watch(logits)
      reward = rewards.modelled(logits, form, 0.1, 0.5)
    self.assertIsNone(tape.gradient(reward, logits))

  def test_each_form_is_its_formula(self):
    formulas = {
        'decision': lambda d: d > .5, 'probability': lambda d: d,
        'log': np.log, 'gail': lambda d: -np.log(1 - d)}
    self.assertEqual(tuple(formulas), tuple(rewards.FORMS))
    d = np.array([.001, .2, .49, .51, .8, .999])
    logits = tf.constant(np.log(d / (1 - d)), tf.float32)
    for form, formula in formulas.items():
      np.testing.assert_allclose(
          rewards.modelled(logits, form, 0.1, 0.5), 0.1 * formula(d),
          rtol=1e-5, err_msg=form)

  def test_logarithms_are_cut_off(self):
    logits = tf.constant([-1e6, -9., 9., 1e6])
    np.testing.assert_allclose(
        rewards.modelled(logits, 'log', 1., 0.5), [-10, -9.00012, -.000123, 0],
        atol=1e-5)
    np.testing.assert_allclose(
        rewards.modelled(logits, 'gail', 1., 0.5), [0, .000123, 9.00012, 10],
        atol=1e-5)

  @parameterized.product(form=[*rewards.FORMS], threshold=[0.5, 0.9])
  def test_programs_decide_the_same_whatever_the_reward(self, form, threshold):
    """D's logit is the number of the state and of the code, less 8.6."""
    states = np.arange(10, dtype=np.uint8).reshape([5, 2, 1])
    codes = np.array([[1], [2]], np.int32)

    def at(phi):
      def discriminator(observations, codes):
        self.assertEqual(codes.shape, (8, 1))
        states, codes = (
            tf.cast(x[:, 0], tf.float32) for x in (observations, codes))
        return states + codes + phi[0], ()

      return discriminator

    phi = tf.constant([-8.6])
    logits = states[1:, :, 0] + codes[:, 0] - np.float32(8.6)
    made = programs.DiscriminatorPrograms(
        mock.Mock(at=at), reward_form=form, reward_scale=.3,
        reward_threshold=threshold)
    values, decided = made.rewards(phi, states, codes)
    np.testing.assert_allclose(
        values, rewards.modelled(tf.constant(logits), form, .3, threshold),
        rtol=1e-5)
    # The threshold is D's and not its logit's: 9, of which D is 0.6, is
    # accepted by 0.5, and 11, of which it is 0.92, also by 0.9.
    least = 9 if threshold == .5 else 11
    np.testing.assert_array_equal(
        decided, states[1:, :, 0] + codes[:, 0] >= least)

