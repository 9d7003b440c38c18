"""Tests for rollouts: which of their steps count, and for what."""

from absl.testing import absltest
import numpy as np

from agile_tf.agent import rollouts

_LENGTH, _WIDTH = 4, 3


def _rollout():
  """Worker 0 plays all of it, 1 ends after two steps, and 2 sits it out."""
  played = np.array([4, 2, 0])
  mask = (np.arange(_LENGTH)[:, None] < played).astype(np.float32)
  states = np.arange((_LENGTH + 1) * _WIDTH, dtype=np.uint8)
  zeros = np.zeros([_LENGTH, _WIDTH], np.float32)
  return rollouts.Rollout(
      states.reshape([_LENGTH + 1, _WIDTH, 1]),
      np.array([[7], [8], [9]], np.int32), zeros.astype(np.int32), zeros,
      zeros, mask, np.array([False, True, False]), ('go',) * _WIDTH)


class RolloutsTest(absltest.TestCase):

  def test_counts_what_was_played(self):
    rollout = _rollout()
    self.assertEqual(rollout.steps, 6)
    self.assertEqual(rollout.active.tolist(), [0, 1])

  def test_an_episode_succeeds_by_its_last_state_that_was_played(self):
    for step, expected in ((0, False), (1, True), (2, False), (3, False)):
      truth = np.zeros([_LENGTH, _WIDTH], bool)
      truth[step] = True
      self.assertEqual(_rollout().successes(truth).tolist(), [expected])

  def test_pairs_are_of_the_states_that_actions_lead_to(self):
    codes, observations = _rollout().pairs()
    self.assertEqual(codes[:, 0].tolist(), [7, 8, 7, 8, 7, 7])
    # s_1 of both, s_2 of both, then s_3 and s_4 of worker 0.
    self.assertEqual(observations[:, 0].tolist(), [3, 4, 6, 7, 9, 12])

  def test_pairs_can_have_the_first_states_of_workers_that_played(self):
    codes, observations = _rollout().pairs(with_first=True)
    self.assertEqual(codes[:, 0].tolist(), [7, 8, 7, 8, 7, 8, 7, 7])
    self.assertEqual(observations[:, 0].tolist(), [0, 1, 3, 4, 6, 7, 9, 12])
