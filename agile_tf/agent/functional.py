"""Networks as pure functions of their parameters.

All threads then use the same traced programs, each thread with its own snapshot
of the shared parameters. `Network` says what the programs need of a network,
and `ModuleNetwork` makes it of a Sonnet module. By default a run has a faster
`Network` with the same results, that of `agile_tf.fast`. B is the size of a
batch here, and not the replay buffer.
"""

from collections.abc import Callable, Sequence
import threading
from typing import Any, Protocol, TypeAlias

import numpy as np
import sonnet as snt
from sonnet.src.functional import haiku
import tensorflow as tf

from agile_tf.agent import parameters as parameters_lib
from agile_tf.agent import worlds

# A network's output is an array or a tuple of arrays, [B, ...] each, with a row
# for each pair of observation and instruction.
Output: TypeAlias = Any
# Arrays [B, ...] that a network computed for B such pairs and need not compute
# again for its gradient; a network may keep none.
Activations: TypeAlias = tuple[tf.Tensor, ...]


def _mend_gather() -> None:
  """Lets modules call tf.gather and tf.gather_nd with variables of theirs.

  Both call a method of the variable. In Sonnet 2.0.2 the stand-ins of
  `snt.functional` have properties in its place, which raise a TypeError.
  """
  stand_in: Any = haiku.TensorVariable
  stand_in.sparse_read = lambda self, indices, name=None: tf.gather(
      tf.convert_to_tensor(self), indices, name=name)
  stand_in.gather_nd = lambda self, indices, name=None: tf.gather_nd(
      tf.convert_to_tensor(self), indices, name=name)


_mend_gather()


class Network(Protocol):
  """A network as functions of its P parameters, float32 [P].

  Observations are those of its world, uint8 [B, ...], and codes encode B
  instructions, int32 [B, slots].
  """
  layout: parameters_lib.Layout

  def initial(self, seed: int) -> np.ndarray:
    """Draws initial parameters, float32 [P]."""

  def apply(self, parameters: tf.Tensor, images: tf.Tensor, codes: tf.Tensor
           ) -> Output:
    """Returns the output for images, float32 [B, H, W, 3] in [0, 1]."""

  def at(self, parameters: tf.Tensor
        ) -> Callable[[tf.Tensor, tf.Tensor], tuple[Output, Activations]]:
    """Returns a function of observations and codes, with these parameters.

    Besides the output it returns the activations that `gradient` may reuse.
    """

  def gradient(self, parameters: tf.Tensor, observations: tf.Tensor,
               codes: tf.Tensor,
               loss: Callable[[Output], tuple[tf.Tensor, Any]],
               activations: Activations = ()
              ) -> tuple[tf.Tensor, Any]:
    """Computes the gradient of a loss.

    Args:
      parameters: float32 [P].
      observations: uint8 [W, N, ...], N examples of each of W workers.
      codes: int32 [W, N, slots].
      loss: A function of the output, [W, N, ...], that returns the loss,
        float32 [], and extras.
      activations: Those that `at` returned with the same parameters for the
        first examples of each worker, [W, at most N, ...]; or none.

    Returns:
      The gradient, float32 [P], and the extras.
    """

  def gradients(self, parameters: tf.Tensor, observations: tf.Tensor,
                codes: tf.Tensor,
                loss: Callable[[Output], tuple[tf.Tensor, Any]],
                activations: Activations = ()
               ) -> tuple[list[tf.Tensor], Any]:
    """Computes each worker's own gradient, W of float32 [P].

    Arguments are those of `gradient`, but the loss returns a loss for each
    worker, float32 [W], which depends on the output for that worker's examples
    alone.
    """


class ModuleNetwork:
  """A `Network` of a Sonnet module, which it calls as it is."""

  def __init__(self, make: Callable[[], snt.Module], world: worlds.World,
               tables: Sequence[str], lent: Sequence[str]):
    """Wraps the module that `make` makes, a function of images and codes.

    `tables` and `lent` are those of its `Layout`.
    """
    self._make = make
    self._images = world.images
    # From the shapes of one pair the module gets those of its parameters.
    self._example = (tf.zeros([1, *world.image_shape]),
                     tf.zeros([1, len(world.grammar.slots)], tf.int32))
    # Applying the module temporarily sets the values of Sonnet's stand-in
    # variables, so threads that trace programs at the same time take turns.
    self._lock = threading.Lock()
    try:
      self._transformed, parameters = self._build()
    except RuntimeError:
      # With tf.config.experimental.enable_op_determinism, drawing needs a seed.
      # These values are not used: `initial` draws those of a run.
      tf.random.set_seed(0)
      self._transformed, parameters = self._build()
    self._variables = tuple(parameters)
    self.layout = parameters_lib.Layout(
        [variable.deref().name.removesuffix(':0') for variable in parameters],
        [value.shape for value in parameters.values()], tables, lent)

  def _build(self) -> tuple[Any, dict[Any, tf.Tensor]]:
    """Makes the module as a pure function, and draws its parameters.

    Returns:
      Sonnet's pair of functions `init` and `apply`; and the value of each
      parameter, by a reference to its stand-in variable.
    """
    with snt.functional.variables():
      transformed = snt.functional.transform(self._make())
    return transformed, transformed.init(*self._example)

  def initial(self, seed: int) -> np.ndarray:
    tf.random.set_seed(seed)
    _, parameters = self._build()
    return self.layout.join(
        dict(zip(self.layout.names, parameters.values()))).numpy()

  def apply(self, parameters: tf.Tensor, images: tf.Tensor, codes: tf.Tensor
           ) -> Output:
    parts = self.layout.split(parameters).values()
    with self._lock:
      return self._transformed.apply(
          dict(zip(self._variables, parts)), images, codes)

  def at(self, parameters: tf.Tensor
        ) -> Callable[[tf.Tensor, tf.Tensor], tuple[Output, Activations]]:
    return lambda observations, codes: (
        self.apply(parameters, self._images(observations), codes), ())

  def gradient(self, parameters: tf.Tensor, observations: tf.Tensor,
               codes: tf.Tensor,
               loss: Callable[[Output], tuple[tf.Tensor, Any]],
               activations: Activations = ()
              ) -> tuple[tf.Tensor, Any]:
    del activations
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      value, extras = loss(self._by_worker(parameters, observations, codes))
    return tape.gradient(value, parameters), extras

  def gradients(self, parameters: tf.Tensor, observations: tf.Tensor,
                codes: tf.Tensor,
                loss: Callable[[Output], tuple[tf.Tensor, Any]],
                activations: Activations = ()
               ) -> tuple[list[tf.Tensor], Any]:
    del activations
    output = self._by_worker(parameters, observations, codes)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(output)
      worker_losses, extras = loss(output)
    # The tape takes the sum of the losses. A worker's output occurs in its own
    # loss alone, so its part of `upstream` is the gradient of that loss.
    upstream = tape.gradient(
        worker_losses, output,
        unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def worker_gradient(worker):
      """Computes a worker's gradient for the parameters from its `upstream`.

      For this it computes the worker's output again.
      """
      own_observations, own_codes, own_upstream = worker
      with tf.GradientTape(watch_accessed_variables=False) as own_tape:
        own_tape.watch(parameters)
        own_output = self.apply(
            parameters, self._images(own_observations), own_codes)
      return own_tape.gradient(own_output, parameters, own_upstream)

    return tf.unstack(tf.map_fn(
        worker_gradient, (observations, codes, upstream),
        fn_output_signature=tf.float32)), extras

  def _by_worker(self, parameters: tf.Tensor, observations: tf.Tensor,
                 codes: tf.Tensor) -> Output:
    """Returns the output, [W, N, ...], for examples [W, N, ...]."""
    width, count = codes.shape[:2]
    output, _ = self.at(parameters)(
        tf.reshape(observations, [-1, *observations.shape[2:]]),
        tf.reshape(codes, [-1, codes.shape[-1]]))
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, [width, count, *x.shape[1:]]), output)
