"""Tests for numerics."""

from absl.testing import parameterized
import numpy as np

from agile_tf.agent import numerics


class NumericsTest(parameterized.TestCase):

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_the_first_bad_one_is_named(self, bad):
    numerics.require_finite({'loss': np.ones(3), 'norm': 3.}, [4, 5, 7])
    with self.assertRaises(numerics.NumericsError) as caught:
      numerics.require_finite(
          {'loss': np.ones(3), 'entropy': np.array([0, bad, bad])}, [4, 5, 7])
    self.assertEqual((caught.exception.name, caught.exception.row),
                     ('entropy', 5))
    np.testing.assert_equal(caught.exception.value, bad)
