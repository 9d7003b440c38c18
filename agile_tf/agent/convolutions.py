"""Convolutions that are computed once, for acting and again for learning.

The gradient of a rollout needs what the network computed when it acted, from
the same parameters; the gradient of the discriminator needs what it computed
when it rated the same states. Nearly all of that work is convolutions. A
network is therefore given the function by which it convolves: `convolve`
itself, a `Recorder` that keeps what comes out, or a `Reuser` that takes it from
there. The results and the gradients are the same.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

# From float32 [B, h, w, in] and [kh, kw, in, out], a stride and a padding to
# float32 [B, h', w', out].
Convolve = Callable[[tf.Tensor, tf.Tensor, int, str], tf.Tensor]


def convolve(x: tf.Tensor, kernel: tf.Tensor, stride: int,
             padding: str) -> tf.Tensor:
  """Convolves a batch of images."""
  return tf.nn.conv2d(x, kernel, stride, padding)


class Recorder:
  """Convolves, and keeps the results.

  Attributes:
    results: Of each convolution, in the order in which they were made.
  """

  def __init__(self):
    self.results: list[tf.Tensor] = []

  def __call__(self, x: tf.Tensor, kernel: tf.Tensor, stride: int,
               padding: str) -> tf.Tensor:
    self.results.append(convolve(x, kernel, stride, padding))
    return self.results[-1]


class Reuser:
  """Convolves only the rows of a batch whose results are not known."""

  def __init__(self, results: Sequence[tf.Tensor]):
    """Takes what a `Recorder` kept when it was given the same first rows.

    Args:
      results: float32 [N, h', w', out] each, of the first N rows of the
        batch, from the same parameters.
    """
    self._results = iter(results)

  def __call__(self, x: tf.Tensor, kernel: tf.Tensor, stride: int,
               padding: str) -> tf.Tensor:
    known = next(self._results)
    count = known.shape[0]

    @tf.custom_gradient
    def reuse(x, kernel):
      result = known
      if x.shape[0] > count:
        result = tf.concat(
            [known, convolve(x[count:], kernel, stride, padding)], 0)

      def gradient(upstream):
        options = dict(
            out_backprop=upstream, strides=[1, stride, stride, 1],
            padding=padding)
        return (
            tf.raw_ops.Conv2DBackpropInput(
                input_sizes=x.shape, filter=kernel, **options),
            tf.raw_ops.Conv2DBackpropFilter(
                input=x, filter_sizes=kernel.shape, **options))

      return result, gradient

    return reuse(x, kernel)
