"""TensorFlow 1's RMSProp on the parameters that threads share.

It differs from today's in two ways: epsilon is inside the square root, and the
mean square starts at one. Of its optimiser the paper says only RMSProp.

  mean_square <- decay * mean_square + (1 - decay) * g^2
  w <- w - learning_rate * g / sqrt(mean_square + epsilon)

Before this, g is clipped by its global norm. `SharedParameters` protects the
parameters and slots of one network with a lock: updates are atomic, and a
snapshot never contains half of one. A gradient that is not finite changes
nothing.
"""

import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import parameters as parameters_lib
from gridlu import archives


class Updates(NamedTuple):
  """The settings of one network's updates (appendix C, table 1)."""
  decay: float
  epsilon: float
  gradient_norm: float  # Larger gradients are scaled down to this norm.
  max_column_norm: float | None = None  # None: columns are left alone.


def clip_gradient(gradient: tf.Tensor, max_norm: float
                 ) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns g * min(1, max_norm / |g|), and the norm |g|.

  Unlike tf.clip_by_global_norm, for any `max_norm`, also one that is infinite
  in float32.
  """
  norm = tf.linalg.global_norm([gradient])
  return gradient * tf.minimum(1.0, max_norm / tf.maximum(norm, 1e-30)), norm


def clip_columns(weight: tf.Tensor, max_norm: float) -> tf.Tensor:
  """Returns w_u * min(1, max_norm / |w_u|) for each unit u (appendix C).

  Of weights [..., units], w_u are a unit's incoming ones: in a convolution
  those of all input channels at all positions in the kernel.
  """
  squares = tf.reduce_sum(
      tf.square(weight), axis=range(weight.shape.rank - 1), keepdims=True)
  # Without the maximum, a column of zeros would become nan.
  return weight * tf.minimum(1.0, max_norm * tf.math.rsqrt(
      tf.maximum(squares, 1e-30)))


# The last part of a parameter's name. A weight matrix or a convolution kernel
# has columns, each with the incoming weights of one unit. The FiLM-LSTM
# computes gamma and beta by such matrices; the FiLM-NMN's are tables.
_WITH_COLUMNS = ('w',)
_WITHOUT_COLUMNS = ('b', 'gamma', 'beta', 'embeddings')


def has_columns(name: str) -> bool:
  """Returns whether the column norms of a parameter are clipped.

  An unknown name is a ValueError, so that no new weights are forgotten.
  """
  own = name.rsplit('/', 1)[-1]
  if own not in _WITH_COLUMNS + _WITHOUT_COLUMNS:
    raise ValueError(
        f'Parameter {name!r}: expected a name that ends in one of '
        f'{", ".join(_WITH_COLUMNS)} (its columns are clipped) or '
        f'{", ".join(_WITHOUT_COLUMNS)} (they are not). Rename it, or add its '
        'name to one of the two lists in agile_tf/agent/optimizers.py.')
  return own in _WITH_COLUMNS


class SharedParameters:
  """The parameters of one network, shared by all threads."""

  def __init__(self, layout: parameters_lib.Layout, initial: np.ndarray,
               settings: Updates):
    """Creates the variable and its slots. Call this before any thread starts.

    `initial` has the parameters' initial values, float32 [P].
    """
    self.layout = layout
    self._settings = settings
    if settings.max_column_norm is not None:
      for name in layout.names:
        has_columns(name)  # Raises for an unknown name.
    self._lock = threading.Lock()
    self._variable = tf.Variable(initial)
    self._mean_square = tf.Variable(tf.ones_like(initial))
    # RMSProp's momentum is 0, but the kernel still writes the last step of each
    # weight to this slot.
    self._momentum = tf.Variable(tf.zeros_like(initial))

  @tf.function(autograph=False)
  def _updates(self, rate: tf.Tensor, *gradients: tf.Tensor) -> tf.Tensor:
    """Makes one update after another; returns the gradients' norms."""
    return tf.stack([self._update(rate, gradient) for gradient in gradients])

  def _update(self, rate: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Clips a gradient and applies it if it is finite; returns its norm."""
    clipped, norm = clip_gradient(gradient, self._settings.gradient_norm)

    def change() -> tf.Tensor:
      self._descend(rate, clipped)
      self._clip_columns()
      return norm

    return tf.cond(tf.math.is_finite(norm), change, lambda: norm)

  def _descend(self, rate: tf.Tensor, clipped: tf.Tensor) -> None:
    """Applies a clipped gradient."""
    # TensorFlow 1's own kernel, which updates the variable and slots in place.
    tf.raw_ops.ResourceApplyRMSProp(
        var=self._variable.handle, ms=self._mean_square.handle,
        mom=self._momentum.handle, lr=rate, rho=self._settings.decay,
        momentum=0.0, epsilon=self._settings.epsilon, grad=clipped)

  def _clip_columns(self) -> None:
    most = self._settings.max_column_norm
    if most is not None:
      self._variable.assign(self.layout.join({
          name: clip_columns(part, most) if has_columns(name) else part
          for name, part in self.layout.split(
              self._variable.read_value()).items()}))

  def snapshot(self) -> tf.Tensor:
    """Returns a copy of the parameters, float32 [P], between two updates."""
    with self._lock:
      return tf.identity(self._variable)

  def apply(self, learning_rate: float, *gradients: tf.Tensor) -> tf.Tensor:
    """Updates once for each of N gradients, float32 [P]; returns their norms.

    Each is clipped separately, and skipped if its norm is not finite.
    """
    with self._lock:
      return self._updates(np.float32(learning_rate), *gradients)

  def state(self) -> dict[str, np.ndarray]:
    """Returns parameters and slots by name, for a checkpoint."""
    with self._lock:
      return {
          name + suffix: part.numpy()
          for suffix, variable in self._variables()
          for name, part in self.layout.split(variable.read_value()).items()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned.

    If it is of other parameters, it is a ValueError and nothing changes.
    """
    restored = [
        (variable, {
            name: archives.expect(state, name + suffix, np.float32, shape)
            for name, shape in zip(self.layout.names, self.layout.shapes)})
        for suffix, variable in self._variables()]
    with self._lock:
      for variable, parts in restored:
        variable.assign(self.layout.join(parts))

  def _variables(self) -> list[tuple[str, tf.Variable]]:
    return [('', self._variable), ('/mean_square', self._mean_square),
            ('/momentum', self._momentum)]
