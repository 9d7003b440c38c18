"""A network's parameters as one vector.

All parameters of a network are joined in one vector, float32 [P]. A snapshot is
then one copy, an update one step of the optimiser, and a gradient one tensor.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf


def _within_network(name: str) -> str:
  """Returns 'features/stem/patches/w' of 'policy/features/stem/patches/w'."""
  return name.partition('/')[2]


class Layout:
  """The names, shapes and positions of the parameters in a vector."""

  def __init__(self, names: Sequence[str], shapes: Sequence[Sequence[int]],
               tables: Sequence[str] = (), lent: Sequence[str] = ()):
    """Takes names such as 'policy/features/stem/patches/w', and shapes.

    `tables` are the last parts of the names of tables, whose rows are looked
    up. `lent` are the paths of modules, such as 'features', whose parameters
    another network may take over.
    """
    self.names = tuple(names)
    self.tables = tuple(tables)
    self.lent = tuple(lent)
    self.shapes = tuple(tuple(shape) for shape in shapes)
    self._sizes = [int(np.prod(shape)) for shape in self.shapes]
    self.size = sum(self._sizes)  # P

  def lends(self, other: 'Layout') -> dict[str, str]:
    """Returns which parameters another network may copy from this one.

    Keys are names in the other network, and values are names in this one.
    """
    own = {_within_network(name): name for name in self.names}
    lent = tuple(f'{module}/' for module in self.lent)
    pairs = {}
    for name in other.names:
      path = _within_network(name)
      if path in own and path.startswith(lent):
        pairs[name] = own[path]
    return pairs

  def split(self, vector: tf.Tensor) -> dict[str, tf.Tensor]:
    """Splits a vector [..., P] into parameters [..., *shape] by name."""
    parts = tf.split(vector, self._sizes, -1)
    leading = tuple(vector.shape[:-1])
    return {
        name: tf.reshape(part, leading + shape)
        for name, part, shape in zip(self.names, parts, self.shapes)}

  def join(self, parameters: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the vector of parameters given by name."""
    return tf.concat(
        [tf.reshape(parameters[name], [-1]) for name in self.names], 0)
