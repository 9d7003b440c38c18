"""Tests for workers: what they draw, and how rho changes."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import signatures
from agile_tf.agent import workers


class AnnealedTest(parameterized.TestCase):

  @parameterized.parameters(
      (0, 1.0), (250, 0.85), (500, 0.7), (1000, 0.4), (10**9, 0.4))
  def test_changes_linearly(self, step, expected):
    rate = workers.Annealed(0.4, 1.0, 1000)
    self.assertAlmostEqual(rate.at(step), expected)

  def test_may_rise(self):
    rate = workers.Annealed(1.0, 0.25, 100)
    self.assertAlmostEqual(rate.at(50), 0.625)

  def test_is_constant_by_default(self):
    rate = workers.Annealed(0.25)
    self.assertEqual([rate.at(0), rate.at(10**6)], [0.25] * 2)


class _GoalExamples:
  """Goal examples that are not states of any rollout."""

  def sample(self, rng, count):
    numbers = rng.integers(200, 256, size=count)
    return signatures.Pairs(
        numbers[:, None].astype(np.int32),
        numbers[:, None].astype(np.uint8))

  def sample_mismatched(self, rng, count):
    codes, observations = self.sample(rng, count)
    return signatures.Pairs(-codes, observations)


def _rollout(length, width):
  """States that all differ; the code is the state's number."""
  states = np.arange((length + 1) * width).reshape(length + 1, width, 1)
  mask = np.ones([length, width], np.float32)
  return rollouts.Rollout(
      states.astype(np.uint8), np.arange(width, dtype=np.int32)[:, None],
      np.zeros([length, width], np.int32), mask, mask, mask,
      np.zeros([width], np.bool_), np.zeros([width], np.bool_),
      ('go',) * width)


class RewardPredictionTest(absltest.TestCase):

  def test_goal_examples_beside_replayed_states(self):
    length, width, replayed, goals = 5, 3, 4, 6
    predictions = workers.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), replayed, np.random.default_rng(0),
        _GoalExamples(), goals)
    rollout = _rollout(length, width)
    decisions = rollout.observations[1:, :, 0] % 3 == 0
    codes, observations, positive = predictions.exchange(rollout, decisions)
    self.assertEqual(codes.shape, (width, replayed + 2 * goals, 1))
    self.assertEqual(observations.shape, (width, replayed + 2 * goals, 1))
    is_goal = codes[..., 0] >= 200
    is_other = codes[..., 0] < 0
    np.testing.assert_array_equal(is_goal.sum(1), [goals] * width)
    np.testing.assert_array_equal(is_other.sum(1), [goals] * width)
    played = ~is_goal & ~is_other
    np.testing.assert_array_equal(
        positive, is_goal | played & (observations[..., 0] % 3 == 0))
    np.testing.assert_array_equal(
        positive.sum(1), [replayed // 2 + goals] * width)
    # Each state that was played has its own instruction.
    np.testing.assert_array_equal(
        codes[played], observations[played] % width)

  def test_none_in_the_paper(self):
    predictions = workers.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), 4, np.random.default_rng(0))
    rollout = _rollout(5, 3)
    codes, _, positive = predictions.exchange(
        rollout, rollout.observations[1:, :, 0] % 3 == 0)
    self.assertEqual(codes.shape, (3, 4, 1))
    np.testing.assert_array_equal(positive.sum(1), [2] * 3)


if __name__ == '__main__':
  absltest.main()
