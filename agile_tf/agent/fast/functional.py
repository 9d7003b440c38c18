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
  """A Sonnet module as a pure function of its parameters.

  The module takes a `convolutions.Convolver` after its inputs.

  Attributes:
    layout: The names and positions of its parameters in a vector.
  """

  def __init__(self, make: Callable[[], snt.Module],
               example: Sequence[tf.Tensor]):
    """Wraps a module.

    Args:
      make: Makes the module.
      example: Inputs with valid shapes, from which the parameters are created.
    """
    self._make = make
    self._example = tuple(example)
    # Applying the module temporarily sets the values of Sonnet's stand-in
    # variables, so threads that trace programs at the same time take turns.
    self._lock = threading.Lock()
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

  def at(self, parameters: tf.Tensor) -> 'Snapshot':
    """Returns the network with these parameters.

    Args:
      parameters: float32 [P]; or [W, P] with W equal rows, one for each of W
        workers whose examples follow each other in a batch. The gradient of
        each row is then that worker's own. A gradient tape may watch this
        tensor.
    """
    return Snapshot(self._apply, tuple(self.layout.split(parameters).values()))

  def __call__(self, parameters: tf.Tensor, *inputs: tf.Tensor) -> Any:
    """Applies the network with these parameters.

    Args:
      parameters: As for `at`.
      *inputs: The module's arguments.

    Returns:
      What the module returns.
    """
    return self.at(parameters)(*inputs)

  def _apply(self, parts: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor],
             convolver: convolutions.Convolver) -> Any:
    with self._lock:
      return self._transformed.apply(
          dict(zip(self._variables, parts)), *inputs, convolver)


class Snapshot:
  """A network with given parameters.

  The kernels are prepared for convolutions once, for all calls in a program.
  """

  def __init__(self, network: Callable[..., Any], parts: Sequence[tf.Tensor]):
    """Prepares the kernels.

    Args:
      network: A function of parameters, inputs and a convolver.
      parts: The parameters.
    """
    self._network = network
    self._parts = tuple(parts)
    self._evaluated = convolutions.evaluate(self._parts)

  def __call__(self, *inputs: tf.Tensor,
               known: Sequence[tf.Tensor] = ()) -> Any:
    """Applies the network.

    Gradients reach the parameters alone: none flows to the inputs or `known`.

    Args:
      *inputs: The module's arguments.
      known: The results of convolutions; see `convolutions.Convolver`.

    Returns:
      What the module returns.
    """
    @tf.custom_gradient
    def apply(*parts):
      convolver = convolutions.Convolver(
          dict(zip([part.ref() for part in parts], self._evaluated)), known,
          tape := tf.GradientTape(
              persistent=True, watch_accessed_variables=False))
      with tape:
        tape.watch(parts)
        output = self._network(parts, inputs, convolver)

      def gradient(*upstreams):
        return convolver.gradients(parts, tf.nest.flatten(output), upstreams)

      return output, gradient

    return apply(*self._parts)

  def record(self, *inputs: tf.Tensor) -> tuple[Any, list[tf.Tensor]]:
    """Applies the network without gradients, and keeps its convolutions.

    Returns:
      What the module returns, and the results of its convolutions, float32
      [h, w, B, channels] each.
    """
    convolver = convolutions.Convolver(
        dict(zip([part.ref() for part in self._parts], self._evaluated)))
    output = self._network(self._parts, inputs, convolver)
    return output, convolver.results
