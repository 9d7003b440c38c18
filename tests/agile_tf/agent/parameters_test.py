"""Tests for parameters: what lies where in the vector."""

from absl.testing import absltest
import numpy as np

from agile_tf.agent import parameters

_PARTS = {
    'b': np.float32([7, 8]),
    'a': np.arange(6, dtype=np.float32).reshape([2, 3]),
    'scalar': np.float32(9),
}


class LayoutTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._layout = parameters.Layout(
        list(_PARTS), [value.shape for value in _PARTS.values()])

  def test_one_after_another_in_rows(self):
    vector = self._layout.join(_PARTS)
    np.testing.assert_array_equal(vector, [7, 8, 0, 1, 2, 3, 4, 5, 9])
    self.assertEqual(self._layout.size, 9)
    self.assertEqual(self._layout.names, ('b', 'a', 'scalar'))
    parts = self._layout.split(vector)
    self.assertEqual(list(parts), list(_PARTS))
    for name, value in _PARTS.items():
      np.testing.assert_array_equal(parts[name], value, name)


if __name__ == '__main__':
  absltest.main()
