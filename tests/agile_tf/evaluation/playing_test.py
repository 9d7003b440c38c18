"""Tests for playing episodes with the networks of a run."""

from unittest import mock

from absl.testing import absltest
import numpy as np

from agile_tf.agent import rollouts
from agile_tf.evaluation import playing

# Worker 0 has episodes of 3 steps, worker 1 of 5. Rollouts have 2.
_LENGTHS = (3, 5)


class _Actor:
  """Plays episodes whose states are numbered.

  State s of a worker's episode e is 10 e + s, and where nothing was played 99.
  """

  def __init__(self):
    self._episodes, self._steps = [0, 0], [0, 0]

  def play(self, theta):
    del theta
    observations = np.full([3, 2, 1], 99, np.uint8)
    mask = np.zeros([2, 2], np.float32)
    ended = np.zeros([2], bool)
    for w, length in enumerate(_LENGTHS):
      played = min(2, length - self._steps[w])
      first = 10 * self._episodes[w] + self._steps[w]
      observations[:played + 1, w, 0] = first + np.arange(played + 1)
      mask[:played, w] = 1
      self._steps[w] += played
      if self._steps[w] == length:
        ended[w] = True
        self._episodes[w] += 1
        self._steps[w] = 0
    zeros = np.zeros([2, 2], np.float32)
    return rollouts.Rollout(
        observations, np.zeros([2, 1], np.int32), zeros.astype(np.int32),
        zeros, zeros, mask, ended, np.zeros([2], bool), ('short', 'long'))


class PlayingTest(absltest.TestCase):

  def _play(self, count, phi=None, seed=0, greedy=False):
    """Plays with two workers; also returns how the actor was made."""
    world = mock.Mock()
    world.make_environment.side_effect = lambda seed: seed
    # What is a goal state, and what D accepts, can be told from the number.
    world.truth.side_effect = (
        lambda rollout: rollout.observations[1:, :, 0] % 10 == 3)
    decide = mock.Mock(side_effect=lambda phi, observations, codes: mock.Mock(
        numpy=lambda: observations[1:, :, 0] % 2 == 0))
    make_actor = mock.Mock(return_value=_Actor())
    player = playing.Player.__new__(playing.Player)
    player.__dict__.update(
        _world=world, _length=2, _make_actor=make_actor, _decide=decide)
    with mock.patch.object(playing, '_BATCH', 2):
      return (list(player.play([], phi, count, seed, greedy)),
              make_actor.call_args.args)

  def test_short_episodes_are_no_likelier(self):
    episodes, _ = self._play(5)
    self.assertCountEqual([episode.instruction for episode in episodes],
                          ['short'] * 3 + ['long'] * 2)

  def test_episodes_are_of_their_own_states(self):
    episodes, _ = self._play(4, phi='phi')
    for text, length in zip(('short', 'long'), _LENGTHS):
      ours = [each for each in episodes if each.instruction == text]
      for number, episode in enumerate(ours):
        states = 10 * number + np.arange(length + 1)
        self.assertEqual(episode.start.tolist(), [states[0]])
        self.assertEqual(episode.final.tolist(), [states[-1]])
        self.assertEqual(
            episode.truth.tolist(), (states[1:] % 10 == 3).tolist())
        self.assertEqual(
            episode.decisions.tolist(), (states[1:] % 2 == 0).tolist())
        self.assertEqual(episode.success, text == 'short')

  def test_decisions_can_be_left_out(self):
    episodes, _ = self._play(2)
    self.assertEqual([episode.decisions for episode in episodes], [None] * 2)

  def test_the_seed_decides_everything_drawn(self):
    def drawn(seed):
      environments, rngs, *_ = self._play(2, seed=seed)[1]
      return [*environments, *(rng.integers(2**60) for rng in rngs)]

    self.assertEqual(drawn(3), drawn(3))
    both = drawn(3) + drawn(4)
    self.assertLen(set(both), len(both))

  def test_plays_as_it_is_told(self):
    for greedy in False, True:
      _, (_, _, length, delayed, chosen) = self._play(2, greedy=greedy)
      self.assertEqual((length, delayed, chosen), (2, [False] * 2, greedy))


if __name__ == '__main__':
  absltest.main()
