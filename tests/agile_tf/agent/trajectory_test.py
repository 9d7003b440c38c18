"""Tests that training is what it was: a silent change of it is noticed."""

import json

from absl.testing import absltest
import numpy as np
import pytest

from tests.agile_tf.agent import trajectory


class TrajectoryTest(absltest.TestCase):

  @pytest.mark.slow
  def test_twenty_iterations_are_those_that_were_recorded(self):
    with open(trajectory.PATH, encoding='utf-8') as file:
      recorded = json.load(file)
    measured = trajectory.measure()
    self.assertEqual(measured.keys(), recorded.keys())
    # With SSE4.2 alone and without oneDNN they differ by 1e-5.
    for name, value in recorded.items():
      np.testing.assert_allclose(
          measured[name], value, rtol=1e-3, atol=1e-6, err_msg=name)


if __name__ == '__main__':
  absltest.main()
