"""A Sonnet module as a pure function of its parameters.

All threads then use the same traced programs, each thread with its own snapshot
of the shared parameters.
"""

from collections.abc import Callable, Sequence
import threading
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from agile_tf.agent import parameters as parameters_lib
from agile_tf.agent.fast import convolutions


class Network:
  """A network of `agile_tf.agent.networks` as a function of its parameters."""

  def __init__(self, make: Callable[[], snt.Module],
               image_shape: Sequence[int], num_slots: int):
    """Wraps the module that `make` makes."""
    self._make = make
    self._example = (tf.zeros([1, *image_shape]),
                     tf.zeros([1, num_slots], tf.int32))
    # Applying the module temporarily sets the values of Sonnet's stand-in
    # variables, so threads that trace programs at the same time take turns.
    self._lock = threading.Lock()
    try:
      self._transformed, parameters = self._build()
    except RuntimeError:  # Deterministic TensorFlow, not yet given a seed.
      tf.random.set_seed(0)
      self._transformed, parameters = self._build()
    self._variables = tuple(parameters)
    self.layout = parameters_lib.Layout(
        [variable.deref().name.removesuffix(':0') for variable in parameters],
        [value.shape for value in parameters.values()])

  def _build(self) -> tuple[Any, dict[Any, tf.Tensor]]:
    with snt.functional.variables():
      transformed = snt.functional.transform(self._make())
    return transformed, transformed.init(
        *self._example, convolutions.Convolver())

  def initial(self, seed: int) -> np.ndarray:
    """Draws initial parameters, float32 [P]."""
    tf.random.set_seed(seed)
    _, parameters = self._build()
    return self.layout.join(
        dict(zip(self.layout.names, parameters.values()))).numpy()

  def at(self, parameters: tf.Tensor) -> 'Snapshot':
    """Takes [P], or [W, P] with a row for each worker (see `rows`)."""
    return Snapshot(self, tuple(self.layout.split(parameters).values()))

  def apply(self, parts: Sequence[tf.Tensor], images: tf.Tensor,
            codes: tf.Tensor, convolver: convolutions.Convolver) -> Any:
    """Applies the module: calls it with its parameters set to `parts`."""
    with self._lock:
      return self._transformed.apply(
          dict(zip(self._variables, parts)), images, codes, convolver)


class Snapshot:
  """A network with given parameters, whose kernels are evaluated once."""

  def __init__(self, network: Network, parts: Sequence[tf.Tensor]):
    self._network = network
    self._parts = tuple(parts)
    self._evaluated = convolutions.evaluate(self._parts)

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               known: Sequence[tf.Tensor] = ()) -> Any:
    """Applies the network, with `known` as in `convolutions.Convolver`.

    Gradients reach the parameters alone: none flows to the inputs or `known`.
    """
    @tf.custom_gradient
    def apply(*parts):
      tape = tf.GradientTape(persistent=True, watch_accessed_variables=False)
      convolver = convolutions.Convolver(parts, self._evaluated, known, tape)
      with tape:
        tape.watch(parts)
        output = self._network.apply(parts, images, codes, convolver)

      def gradient(*upstreams):
        return convolver.gradients(parts, tf.nest.flatten(output), upstreams)

      return output, gradient

    return apply(*self._parts)

  def record(self, images: tf.Tensor, codes: tf.Tensor
            ) -> tuple[Any, list[tf.Tensor]]:
    """Also returns the results of convolutions, [h, w, B, channels] each."""
    convolver = convolutions.Convolver(self._parts, self._evaluated)
    output = self._network.apply(self._parts, images, codes, convolver)
    return output, convolver.results
