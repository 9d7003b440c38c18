"""Tests for numerics."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf.agent import numerics


class NumericsTest(parameterized.TestCase):

  def test_finite_numbers_pass(self):
    numerics.require_finite(
        {'loss': np.array([1., -2, 0], np.float32), 'norm': 3.}, [4, 5, 7])

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_the_first_bad_one_is_named(self, bad):
    with self.assertRaises(numerics.NumericsError) as caught:
      numerics.require_finite(
          {'loss': np.ones(3), 'entropy': np.array([0, bad, bad])}, [4, 5, 7])
    self.assertEqual((caught.exception.name, caught.exception.row),
                     ('entropy', 5))
    np.testing.assert_equal(caught.exception.value, bad)


if __name__ == '__main__':
  absltest.main()
