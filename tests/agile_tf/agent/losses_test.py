"""Tests for losses: each against the formula in slow NumPy."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import losses


def _returns(rewards, discounts, values, td_lambda):
  """Scalar loop: the definition of the returns, from each step onwards."""
  length, width = rewards.shape
  result = np.zeros([length, width])
  for w in range(width):
    for t in range(length):
      # Unrolled forwards, in place of production's backward recursion.
      weight = 1.0
      for s in range(t, length):
        result[t, w] += weight * rewards[s, w]
        weight *= discounts[s, w]
        last = s == length - 1
        result[t, w] += weight * values[s, w] * (
            1 if last else 1 - td_lambda)
        weight *= td_lambda
  return result


def _softmax(logits):
  powers = np.exp(logits - logits.max(-1, keepdims=True))
  return powers / powers.sum(-1, keepdims=True)


class ReturnsTest(parameterized.TestCase):

  @parameterized.product(td_lambda=(0.0, 0.5, 1.0), length=(1, 6))
  def test_returns_equal_the_loop(self, td_lambda, length):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=[2, length, 5]).astype(np.float32)
    discounts = np.full([length, 5], 0.9, np.float32)
    discounts[0, 1] = discounts[length // 2, 2] = discounts[-1, 3] = 0
    actual = losses.returns(rewards, discounts, values, td_lambda)
    np.testing.assert_allclose(
        actual, _returns(rewards, discounts, values, td_lambda), rtol=1e-5)

  @parameterized.parameters(0.0, 0.5, 1.0)
  def test_no_gradient_flows_through_returns(self, td_lambda):
    sources = [tf.ones([3, 2])] * 3
    with tf.GradientTape() as tape:
      tape.watch(sources)
      result = losses.returns(*sources, td_lambda)
    self.assertEqual(tape.gradient(result, sources), [None] * 3)


class ActorCriticTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(1)
    self._logits = rng.normal(size=[4, 3, 5]).astype(np.float32)
    self._actions = rng.integers(5, size=[4, 3]).astype(np.int32)
    self._baseline, self._targets = rng.normal(size=[2, 4, 3]).astype(
        np.float32)  # Advantages of both signs.

  def _terms(self, logits, baseline, targets):
    return losses.actor_critic(logits, baseline, self._actions, targets)

  def test_terms_equal_numpy(self):
    terms = self._terms(self._logits, self._baseline, self._targets)
    pi = _softmax(self._logits.astype(np.float64))
    for i in np.ndindex(4, 3):
      advantage = float(self._targets[i]) - float(self._baseline[i])
      self.assertAlmostEqual(
          float(terms.policy[i]),
          -np.log(pi[i][self._actions[i]]) * advantage, places=5)
      self.assertAlmostEqual(
          float(terms.entropy[i]),
          sum(-p * np.log(p) for p in pi[i]), places=5)
      self.assertAlmostEqual(
          float(terms.baseline[i]), 0.5 * advantage**2, places=5)

  @parameterized.parameters((0, np.log(5)), (1000, 0))
  def test_entropy_is_exact_at_its_ends(self, scale, expected):
    logits = scale * np.eye(5, dtype=np.float32)[self._actions]
    terms = self._terms(logits, self._baseline, self._targets)
    np.testing.assert_allclose(terms.entropy, expected, rtol=1e-6)

  def test_each_term_trains_what_it_should(self):
    sources = [tf.constant(x) for x in (
        self._logits, self._baseline, self._targets)]
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(sources)
      terms = self._terms(*sources)
    pi = _softmax(self._logits)
    advantages = self._targets - self._baseline
    # d(-log pi(a) A) / d logits = (pi - onehot(a)) A, and nothing by way of A.
    to_logits, *others = tape.gradient(terms.policy, sources)
    np.testing.assert_allclose(
        to_logits, (pi - np.eye(5)[self._actions]) * advantages[..., None],
        atol=1e-5)
    self.assertEqual(others, [None, None])
    to_logits, *others = tape.gradient(terms.entropy, sources)
    entropy = -np.sum(pi * np.log(pi), -1, keepdims=True)
    np.testing.assert_allclose(
        to_logits, -pi * (np.log(pi) + entropy), atol=1e-5)
    self.assertEqual(others, [None, None])
    to_logits, to_baseline, to_targets = tape.gradient(terms.baseline, sources)
    self.assertIsNone(to_logits)
    np.testing.assert_allclose(to_baseline, -advantages, rtol=1e-6)
    self.assertIsNone(to_targets)


class CrossEntropiesTest(parameterized.TestCase):

  def test_reward_prediction_is_the_cross_entropy(self):
    logits = np.array([[[1, 2], [-1, 3]], [[0, 0], [5, -5]]], np.float32)
    positive = np.array([[True, False], [True, True]])
    pi = _softmax(logits.astype(np.float64))
    expected = [[-np.log(pi[0, 0, 1]), -np.log(pi[0, 1, 0])],
                [-np.log(.5), -np.log(pi[1, 1, 1])]]
    np.testing.assert_allclose(
        losses.reward_prediction(logits, positive), expected, rtol=1e-5)

  def test_the_discriminators_loss_is_the_cross_entropy(self):
    logits = np.array([-3, -.5, 0, .5, 3, -3, -.5, 0, .5, 3], np.float32)
    is_goal = np.arange(10) < 5
    d = 1 / (1 + np.exp(-logits.astype(np.float64)))
    np.testing.assert_allclose(
        losses.discriminator(logits, is_goal),
        np.where(is_goal, -np.log(d), -np.log(1 - d)), rtol=1e-5)

  def test_the_discriminators_loss_is_finite_far_out(self):
    logits = np.array([100, -100, 100, -100], np.float32)
    is_goal = np.array([True, True, False, False])
    np.testing.assert_allclose(
        losses.discriminator(logits, is_goal), [0, 100, 100, 0], atol=1e-6)


class AnticipatedNegativesTest(parameterized.TestCase):

  @parameterized.parameters(1, 3, 9, 10)
  def test_the_lowest_logits_are_kept(self, count):
    logits = np.random.default_rng(2).normal(size=[10]).astype(np.float32)
    kept = losses.lowest_rated(logits, count).numpy()
    self.assertCountEqual(kept, np.argsort(logits)[:count])

  def test_ties_fill_the_count(self):
    logits = np.array([1, 0, 1, 0, 1], np.float32)
    kept = losses.lowest_rated(logits, 3).numpy()
    self.assertLen(set(kept), 3)
    self.assertContainsSubset([1, 3], kept)
