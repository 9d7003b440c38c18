"""Tests for auxiliary losses: what reward prediction is trained on."""

from absl.testing import absltest
import numpy as np

from agile_tf.agent import auxiliary
from agile_tf.agent import replay
from agile_tf.agent import rollouts


def _numbered_rollout(length, width):
  """Makes a rollout of states that are numbers; a code is its worker's."""
  states = np.arange((length + 1) * width).reshape(length + 1, width, 1)
  everywhere = np.ones([length, width], np.float32)
  return rollouts.Rollout(
      observations=states.astype(np.uint8),
      codes=np.arange(width, dtype=np.int32)[:, None],
      actions=np.zeros([length, width], np.int32), true_rewards=everywhere,
      discounts=everywhere, mask=everywhere, ended=np.zeros([width], np.bool_),
      instructions=('go',) * width)


class RewardPredictionTest(absltest.TestCase):

  def test_half_of_a_batch_was_rewarded(self):
    predictions = auxiliary.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), 4)
    rollout = _numbered_rollout(5, 3)
    codes, observations, positive = predictions.add_and_sample(
        np.random.default_rng(0), rollout,
        rollout.observations[1:, :, 0] % 3 == 0)
    self.assertEqual(codes.shape, (3, 4, 1))
    self.assertLen(np.unique(observations, axis=0), 3)  # Each worker's own.
    np.testing.assert_array_equal(positive.sum(1), [2] * 3)
    np.testing.assert_array_equal(positive, observations[..., 0] % 3 == 0)
    # Each state has its own instruction.
    np.testing.assert_array_equal(codes, observations % 3)
