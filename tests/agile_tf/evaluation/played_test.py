"""Tests for the confidence intervals of played episodes."""

from absl.testing import absltest
import numpy as np

from agile_tf.evaluation import played


class PlayedTest(absltest.TestCase):

  def test_confidence_intervals_are_wilsons(self):
    # Newcombe (1998), table I: 81 of 263 and 0 of 20.
    np.testing.assert_allclose(
        played.interval(81, 263), (.2553, .3662), atol=5e-5)
    np.testing.assert_allclose(
        played.interval(0, 20), (0, .1611), atol=5e-5)


if __name__ == '__main__':
  absltest.main()
