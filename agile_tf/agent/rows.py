"""Sums and products of the rows of a batch with parameters.

A thread plays several of the paper's workers as one batch, and yet each needs
a gradient of its own. For that the parameters have a leading axis of W equal
copies, one for each worker, and the rows of a batch are the W workers' rows one
after another. Each worker's rows are multiplied with its own copy, so that the
gradient of a copy is that worker's own. Parameters without this axis serve all
rows.
"""

import tensorflow as tf


def product(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
  """Multiplies each row with a matrix.

  Args:
    x: float32 [B, ..., in].
    w: float32 [in, out], or [W, in, out] where W divides B.

  Returns:
    float32 [B, ..., out].
  """
  shape = tf.concat([tf.shape(x)[:-1], w.shape[-1:]], 0)
  if w.shape.rank == 2:
    result = tf.reshape(x, [-1, w.shape[0]]) @ w
  else:
    result = tf.reshape(x, [w.shape[0], -1, w.shape[1]]) @ w
  result = tf.reshape(result, shape)
  return tf.ensure_shape(result, [*x.shape[:-1], w.shape[-1]])


def add(x: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Adds a vector to each row.

  Args:
    x: float32 [..., B, C].
    b: float32 [C], or [W, C] where W divides B.

  Returns:
    float32 [..., B, C].
  """
  if b.shape.rank == 1:
    return x + b
  count = x.shape[-2] // b.shape[0]
  return x + tf.reshape(
      tf.tile(b[:, None], [1, count, 1]), [x.shape[-2], b.shape[1]])
