"""Tests for what rows and parameters are combined by."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent.fast import rows


class FilmTest(parameterized.TestCase):

  @parameterized.parameters([(5, 5)], [(3, 7)], [(1, 1)])
  def test_values_and_gradients_are_those_of_the_formula(self, size):
    rng = np.random.default_rng(0)
    x, upstream = rng.normal(size=[2, *size, 6, 4])
    gamma, beta = rng.normal(size=[2, 6, 4])
    inputs = [tf.constant(v, tf.float32) for v in (x, gamma, beta)]

    @tf.function(autograph=False, jit_compile=True)
    def value_and_gradients():
      with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = rows.film(*inputs)
      return y, tape.gradient(
          y, inputs, output_gradients=tf.constant(upstream, tf.float32))

    y, gradients = value_and_gradients()
    np.testing.assert_allclose(y, x * (1 + gamma) + beta, rtol=1e-5, atol=1e-6)
    expected = ((1 + gamma) * upstream, (x * upstream).sum((0, 1)),
                upstream.sum((0, 1)))
    for actual, oracle in zip(gradients, expected):
      np.testing.assert_allclose(actual, oracle, rtol=1e-4, atol=1e-5)


if __name__ == '__main__':
  absltest.main()
