"""Tests for Adam: TensorFlow 1's own, and a resume."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import optimizers
from agile_tf.recipe import adam
from tests.agile_tf.agent import optimizers_test

_DECAY, _EPSILON, _GRADIENT_NORM, _RATE = 0.99, 1e-6, 2.0, 1e-3
_LAYOUT, _values = optimizers_test.LAYOUT, optimizers_test.draw


def _make(initial):
  return optimizers.SharedParameters(
      _LAYOUT, initial, adam.adam(_DECAY, _EPSILON), _GRADIENT_NORM)


class AdamTest(parameterized.TestCase):

  @parameterized.parameters(1e-4, 1.0, 100.0)
  def test_adam_equals_tensorflow_1(self, scale):
    rng = np.random.default_rng(0)
    initial = _values(rng)
    gradients = [_values(rng, scale) for _ in range(6)]
    parameters = _make(initial)
    expected = optimizers_test.tensorflow_1(
        _LAYOUT, initial, gradients, _GRADIENT_NORM,
        lambda: tf.compat.v1.train.AdamOptimizer(
            _RATE, 0.9, _DECAY, _EPSILON))
    actual = [parameters.update(_RATE, *map(tf.constant, gradients[:3]))]
    # The means and the count of updates are part of the state.
    resumed = _make(_values(rng))
    resumed.load(parameters.state())
    for gradient in gradients[3:]:
      actual.append(resumed.update(_RATE, tf.constant(gradient)))
    np.testing.assert_allclose(
        np.concatenate(actual), [norm for norm, _ in expected], rtol=1e-6)
    np.testing.assert_allclose(
        parameters.snapshot(), expected[2][1], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        resumed.snapshot(), expected[5][1], rtol=1e-6, atol=1e-7)
