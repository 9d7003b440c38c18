"""RMSProp as TensorFlow 1 had it, and the variables that threads share.

The paper's optimiser (appendix B) differs from today's in two ways: epsilon is
inside the square root, and the mean square starts at ones.

  mean_square <- decay * mean_square + (1 - decay) * g^2
  w <- w - learning_rate * g / sqrt(mean_square + epsilon)

with g clipped by its global norm first. `SharedParameters` keeps the variables
and slots of one network behind one lock: an update happens whole or not at
all, and a snapshot never sees half of one. A gradient that is not finite
changes nothing.
"""

from collections.abc import Sequence
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class RMSProp(NamedTuple):
  """The settings of one network's updates (appendix B, table 1)."""
  learning_rate: float
  decay: float
  epsilon: float
  gradient_norm: float  # Larger gradients are scaled down to this norm.
  max_column_norm: float | None = None  # None: columns are left alone.


def clip_columns(weight: tf.Tensor, max_norm: float) -> tf.Tensor:
  """Scales each unit's incoming weights to an L2 norm of at most `max_norm`.

  w_u <- w_u * min(1, max_norm / |w_u|), appendix B. The last axis counts the
  units; for a convolution all of kernel height, width and input channels are
  incoming.

  Args:
    weight: float32 [..., units].
    max_norm: positive.

  Returns:
    float32 [..., units].
  """
  squares = tf.reduce_sum(
      tf.square(weight), axis=range(weight.shape.rank - 1), keepdims=True)
  # With the norm of a column of zeros the factor would be 0 / 0.
  return weight * tf.minimum(1.0, max_norm * tf.math.rsqrt(
      tf.maximum(squares, 1e-30)))


def has_columns(name: str) -> bool:
  """Whether a parameter is a weight matrix or a convolution kernel.

  Biases and FiLM's gamma and beta are not.
  """
  return name.rsplit('/', 1)[-1] == 'w'


def updated(
    settings: RMSProp, parameters: Sequence[tf.Tensor],
    mean_squares: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor]:
  """Makes one update from tensors to tensors, for a compiled program.

  It does what `SharedParameters.apply` does in place, without column norms.

  Args:
    settings: How it is made.
    parameters: float32 tensors.
    mean_squares: The optimiser's slots, of the same shapes.
    gradients: Of the same shapes.

  Returns:
    The new parameters and slots, and the gradients' global norm before
    clipping, float32 [].
  """
  clipped, norm = tf.clip_by_global_norm(gradients, settings.gradient_norm)
  mean_squares = [
      mean_square + (1 - settings.decay) * (tf.square(g) - mean_square)
      for mean_square, g in zip(mean_squares, clipped)]
  parameters = [
      parameter - settings.learning_rate * g * tf.math.rsqrt(
          mean_square + settings.epsilon)
      for parameter, mean_square, g in zip(parameters, mean_squares, clipped)]
  return parameters, mean_squares, norm


class SharedParameters:
  """The parameters of one network, shared by all threads.

  Attributes:
    names: The parameters' names.
  """

  def __init__(self, names: Sequence[str], initial: Sequence[np.ndarray],
               settings: RMSProp):
    """Creates variables and slots; to be called before any thread starts.

    Args:
      names: A name a parameter.
      initial: float32 arrays.
      settings: How updates are made.
    """
    self.names = tuple(names)
    self._settings = settings
    self._lock = threading.Lock()
    self._variables = [
        tf.Variable(value, name=name) for name, value in zip(names, initial)]
    self._mean_squares = [
        tf.Variable(tf.ones_like(value), name=f'{name}/mean_square')
        for name, value in zip(names, initial)]
    # Without momentum the kernel still writes to this slot, which then is the
    # last step of each weight.
    self._momenta = [
        tf.Variable(tf.zeros_like(value), name=f'{name}/momentum')
        for name, value in zip(names, initial)]
    self._apply_function = tf.function(self._updates, autograph=False)
    self._snapshot_function = tf.function(
        lambda: [tf.identity(v.read_value()) for v in self._variables],
        autograph=False)

  def _updates(self, *gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Makes one update after another."""
    return tf.stack([self._update(gradient) for gradient in gradients])

  def _update(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Clips the gradients, applies them if they are finite; their norm."""
    clipped, norm = tf.clip_by_global_norm(
        gradients, self._settings.gradient_norm)

    def change() -> tf.Tensor:
      self._change(clipped)
      return norm

    return tf.cond(tf.math.is_finite(norm), change, lambda: norm)

  def _change(self, clipped: Sequence[tf.Tensor]) -> None:
    """Applies clipped gradients and clips columns."""
    settings = self._settings
    for name, variable, mean_square, momentum, gradient in zip(
        self.names, self._variables, self._mean_squares, self._momenta,
        clipped):
      # TensorFlow 1's own kernel; it updates variable and slots in place.
      tf.raw_ops.ResourceApplyRMSProp(
          var=variable.handle, ms=mean_square.handle, mom=momentum.handle,
          lr=settings.learning_rate, rho=settings.decay, momentum=0.0,
          epsilon=settings.epsilon, grad=gradient)
      if settings.max_column_norm is not None and has_columns(name):
        variable.assign(clip_columns(variable, settings.max_column_norm))

  def snapshot(self) -> list[tf.Tensor]:
    """Returns the parameters as they are between two updates.

    The tensors keep these values whatever happens to the variables.
    """
    with self._lock:
      return self._snapshot_function()

  def apply(self, *gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Updates the parameters, once for each list of gradients.

    Args:
      *gradients: N lists of float32 tensors, in the order of `names`. Each is
        clipped on its own, and left out if its norm is not finite.

    Returns:
      float32 [N], the gradients' global norms before clipping.
    """
    with self._lock:
      return self._apply_function(*gradients)

  def state(self) -> dict[str, np.ndarray]:
    """Returns parameters and slots by name, for a checkpoint."""
    with self._lock:
      return {
          variable.name.removesuffix(':0'): variable.numpy()
          for variable in self._all()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned."""
    with self._lock:
      for variable in self._all():
        variable.assign(state[variable.name.removesuffix(':0')])

  def _all(self) -> list[tf.Variable]:
    return self._variables + self._mean_squares + self._momenta
