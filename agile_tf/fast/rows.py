"""Products and sums with parameters that workers share or have copies of.

A thread plays several of the paper's workers as one batch, and yet each needs
a gradient of its own. For that the parameters have a leading axis of W equal
copies, one for each worker. A row is an example, and the rows of a batch are
the W workers' rows one after another. The gradient of a copy is that of its
worker's rows alone. The copies are equal, so convolutions read the first and
serve all rows with it. Parameters without this axis serve all rows.
"""

import numpy as np
import tensorflow as tf


def product(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
  """Multiplies rows [B, ..., in] by w [in, out], or [W, in, out]."""
  shape = tf.concat([tf.shape(x)[:-1], w.shape[-1:]], 0)
  result = tf.reshape(x, [*w.shape[:-2], -1, w.shape[-2]]) @ w
  result = tf.reshape(result, shape)
  return tf.ensure_shape(result, [*x.shape[:-1], w.shape[-1]])


def add(x: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Adds b [C], or [W, C], to rows [..., B, C]."""
  if b.shape.rank == 1:
    return x + b
  count = x.shape[-2] // b.shape[0]
  return x + tf.reshape(
      tf.tile(b[:, None], [1, count, 1]), [x.shape[-2], b.shape[1]])


def _sum_over_space(x: tf.Tensor) -> tf.Tensor:
  """Sums float32 [h, w, ...] over space.

  A matrix product sums over the width, and then a sum over the height.
  """
  height, width = x.shape[:2]
  ones = tf.constant(np.kron(np.eye(height), np.ones([1, width])), tf.float32)
  lines = ones @ tf.reshape(x, [height * width, -1])
  return tf.reshape(tf.reduce_sum(lines, 0), x.shape[2:])


@tf.custom_gradient
def film(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
  """Computes (1 + gamma) * x + beta; x is [h, w, B, C], the others [B, C].

  The gradient is the usual one. It is written down because XLA on a CPU sums
  products over space one number at a time, unless a matrix product does it.
  """
  def gradient(upstream):
    return ((1 + gamma) * upstream, _sum_over_space(upstream * x),
            tf.reduce_sum(upstream, [0, 1]))

  return (1 + gamma) * x + beta, gradient
