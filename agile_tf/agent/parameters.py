"""A network's parameters as one vector.

All parameters of a network are joined in one vector, float32 [P]. A snapshot is
then one copy, an update one step of the optimiser, and a gradient one tensor.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf


class Layout:
  """The names, shapes and positions of the parameters in a vector."""

  def __init__(self, names: Sequence[str], shapes: Sequence[Sequence[int]]):
    self.names = tuple(names)
    self.shapes = tuple(tuple(shape) for shape in shapes)
    self._sizes = [int(np.prod(shape)) for shape in self.shapes]
    self.size = sum(self._sizes)  # P

  def split(self, vector: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the parameters by name; [..., P] in, [..., *shape] each out."""
    parts = tf.split(vector, self._sizes, -1)
    leading = tuple(vector.shape[:-1])
    return {
        name: tf.reshape(part, leading + shape)
        for name, part, shape in zip(self.names, parts, self.shapes)}

  def join(self, parameters: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the vector of parameters given by name."""
    return tf.concat(
        [tf.reshape(parameters[name], [-1]) for name in self.names], 0)
