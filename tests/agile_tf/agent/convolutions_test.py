"""Tests for convolutions: reused results change nothing."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import convolutions


def _network(x, kernels, convolve):
  """Two convolutions with something between them."""
  hidden = tf.nn.relu(convolve(x, kernels[0], 2, 'VALID') - 0.5)
  return tf.sin(convolve(hidden, kernels[1], 1, 'SAME'))


class ConvolutionsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(0)
    self._x = tf.constant(rng.normal(size=[5, 9, 8, 3]), tf.float32)
    self._kernels = [
        tf.constant(rng.normal(size=shape), tf.float32)
        for shape in ([4, 3, 3, 2], [3, 3, 2, 4])]

  def _gradient(self, convolve):
    sources = [self._x, *self._kernels]
    with tf.GradientTape() as tape:
      tape.watch(sources)
      output = _network(self._x, self._kernels, convolve)
      loss = tf.reduce_sum(tf.square(output))
    return output, *tape.gradient(loss, sources)

  @parameterized.parameters(1, 3, 5)
  def test_outputs_and_gradients_are_the_same(self, known):
    recorder = convolutions.Recorder()
    first = _network(self._x[:known], self._kernels, recorder)
    self.assertLen(recorder.results, 2)
    expected = self._gradient(convolutions.convolve)
    np.testing.assert_allclose(first, expected[0][:known], rtol=1e-5)
    actual = self._gradient(convolutions.Reuser(recorder.results))
    for one, other in zip(actual, expected):
      self.assertGreater(np.abs(other).max(), 0.1)
      np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)

  def test_known_rows_are_not_computed_again(self):
    recorder = convolutions.Recorder()
    _network(self._x[:3], self._kernels, recorder)
    reuser = convolutions.Reuser([x + 1 for x in recorder.results])
    output = _network(self._x, self._kernels, reuser)
    expected = _network(self._x, self._kernels, convolutions.convolve)
    np.testing.assert_allclose(
        output[:3], tf.sin(recorder.results[1] + 1), rtol=1e-5)
    np.testing.assert_allclose(output[3:], expected[3:], rtol=1e-4, atol=1e-5)


if __name__ == '__main__':
  absltest.main()
