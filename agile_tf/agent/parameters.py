"""A network's parameters as one vector, and the network as a function of it.

All parameters of a network lie one after another in a vector, float32 [P]: a
snapshot is one copy, an update one step of the optimiser, and a gradient one
tensor. A `Layout` says what lies where. A `Network` makes a pure function of a
Sonnet module: one traced program then serves every thread, each with its own
snapshot of the shared parameters.
"""

from collections.abc import Callable, Mapping, Sequence
import threading
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf


class Layout:
  """Which parameter lies where in a vector.

  Attributes:
    names: The parameters' names, in their order.
    shapes: Their shapes.
    size: P, how many numbers they are.
  """

  def __init__(self, names: Sequence[str], shapes: Sequence[Sequence[int]]):
    self.names = tuple(names)
    self.shapes = tuple(tuple(shape) for shape in shapes)
    self._sizes = [int(np.prod(shape)) for shape in self.shapes]
    self.size = sum(self._sizes)

  def split(self, vector: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the parameters by name; float32 [P] in, [*shape] each out."""
    parts = tf.split(vector, self._sizes)
    return {
        name: tf.reshape(part, shape)
        for name, part, shape in zip(self.names, parts, self.shapes)}

  def join(self, parameters: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the vector of these parameters, float32 [P]."""
    return tf.concat(
        [tf.reshape(parameters[name], [-1]) for name in self.names], 0)


class Network:
  """A Sonnet module as a pure function of its parameters.

  Attributes:
    layout: Of the vector of its parameters.
  """

  def __init__(self, make: Callable[[], snt.Module],
               example: Sequence[tf.Tensor]):
    """Wraps a module.

    Args:
      make: Makes the module.
      example: Inputs of the shapes that it takes, from which its parameters
        are created.
    """
    self._make = make
    self._example = tuple(example)
    # Applying sets the values of Sonnet's stand-in variables for a while; two
    # threads that trace programs at the same time must take turns.
    self._lock = threading.Lock()
    self._transformed, parameters = self._build()
    self._variables = tuple(parameters)
    self.layout = Layout(
        [variable.deref().name.removesuffix(':0') for variable in parameters],
        [value.shape for value in parameters.values()])

  def _build(self) -> tuple[Any, dict[Any, tf.Tensor]]:
    with snt.functional.variables():
      transformed = snt.functional.transform(self._make())
    return transformed, transformed.init(*self._example)

  def initial(self, seed: int) -> np.ndarray:
    """Draws initial parameters.

    Args:
      seed: The same seed gives the same parameters.

    Returns:
      float32 [P].
    """
    tf.random.set_seed(seed)
    _, parameters = self._build()
    return self.layout.join(
        dict(zip(self.layout.names, parameters.values()))).numpy()

  def __call__(self, parameters: tf.Tensor, *inputs: Any) -> Any:
    """Applies the network with these parameters.

    Args:
      parameters: float32 [P]. It may be watched by a gradient tape.
      *inputs: The module's arguments.

    Returns:
      What the module returns.
    """
    parts = self.layout.split(parameters).values()
    with self._lock:
      return self._transformed.apply(
          dict(zip(self._variables, parts)), *inputs)
