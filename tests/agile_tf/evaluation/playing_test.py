"""Tests for playing episodes with the networks of a run."""

import itertools
from unittest import mock

from absl.testing import absltest
import numpy as np

from agile_tf.agent import rollouts
from agile_tf.evaluation import playing


class PlayingTest(absltest.TestCase):

  def test_short_episodes_are_no_likelier(self):
    """Row 0 has episodes of one step, row 1 of three."""
    world = mock.Mock()
    world.make_environment.side_effect = lambda seed: None
    times = itertools.count(1)

    def roll(theta):
      del theta
      time_step = next(times)
      ended = np.array([True, time_step % 3 == 0])
      return rollouts.Rollout(
          np.zeros([2, 2, 1], np.uint8), np.zeros([2, 1], np.int32),
          np.zeros([1, 2], np.int32), np.zeros([1, 2], np.float32),
          np.ones([1, 2], np.float32), np.ones([1, 2], np.float32), ended,
          np.zeros([2], bool), ('short', 'long'))

    player = playing.Player.__new__(playing.Player)
    player.__dict__.update(
        _world=world, _length=1, _make_actor=lambda *_: mock.Mock(play=roll))
    world.truth.return_value = np.ones([1, 2], bool)
    with mock.patch.object(playing, '_BATCH', 2):
      episodes = list(player.play([], None, 5, 0, False))
    self.assertCountEqual([episode.instruction for episode in episodes],
                          ['short'] * 3 + ['long'] * 2)
    self.assertEqual(
        [len(e.truth) for e in episodes if e.instruction == 'long'], [3, 3])


if __name__ == '__main__':
  absltest.main()
