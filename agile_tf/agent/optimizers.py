"""RMSProp as in TensorFlow 1, Adam, and the parameters that threads share.

The paper's optimiser is RMSProp (appendix C). It differs from today's in two
ways: epsilon is inside the square root, and the mean square starts at one
(unless `Updates.first_mean_square` says otherwise).

  mean_square <- decay * mean_square + (1 - decay) * g^2
  w <- w - learning_rate * g / sqrt(mean_square + epsilon)

Adam (Kingma and Ba, 2015) is offered beside it, and is not in the paper. Its
beta_1 is 0.9, and its beta_2 is the decay of the mean square:

  momentum <- beta_1 * momentum + (1 - beta_1) * g
  mean_square <- beta_2 * mean_square + (1 - beta_2) * g^2
  w <- w - learning_rate * (momentum / (1 - beta_1^t)) / (
      sqrt(mean_square / (1 - beta_2^t)) + epsilon)

where t counts updates, and both slots start at zero. (TensorFlow's kernel
divides epsilon by sqrt(1 - beta_2^t), as the paper of Adam allows.)

Before this, g is clipped by its global norm. `SharedParameters` protects the
parameters and slots of one network with a lock: updates are atomic, and a
snapshot never contains half of one. A gradient that is not finite changes
nothing.
"""

from collections.abc import Mapping
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import parameters as parameters_lib
from gridlu import archives

OPTIMIZERS = ('rmsprop', 'adam')

_ADAM_BETA_1 = 0.9


class Updates(NamedTuple):
  """The settings of one network's updates (appendix C, table 1)."""
  learning_rate: float
  decay: float
  epsilon: float
  gradient_norm: float  # Larger gradients are scaled down to this norm.
  max_column_norm: float | None = None  # None: columns are left alone.
  optimizer: str = 'rmsprop'  # One of `OPTIMIZERS`.
  first_mean_square: float = 1.0  # Before RMSProp's first update.


def clip_gradient(gradient: tf.Tensor, max_norm: float
                 ) -> tuple[tf.Tensor, tf.Tensor]:
  """Scales a gradient to a norm of at most `max_norm`.

  g <- g * max_norm / max(|g|, max_norm). tf.clip_by_global_norm computes
  1 / max_norm, which becomes 0 in float32 if `max_norm` is very large.

  Args:
    gradient: float32 [P].
    max_norm: positive.

  Returns:
    The clipped gradient, float32 [P], and the norm before clipping, float32 [].
  """
  norm = tf.linalg.global_norm([gradient])
  return gradient * (max_norm / tf.maximum(norm, max_norm)), norm


def clip_columns(weight: tf.Tensor, max_norm: float) -> tf.Tensor:
  """Scales each unit's incoming weights to an L2 norm of at most `max_norm`.

  w_u <- w_u * min(1, max_norm / |w_u|), appendix C. The last axis counts the
  units. The incoming weights of a convolution's unit are those of all input
  channels at all positions in the kernel.

  Args:
    weight: float32 [..., units].
    max_norm: positive.

  Returns:
    float32 [..., units].
  """
  squares = tf.reduce_sum(
      tf.square(weight), axis=range(weight.shape.rank - 1), keepdims=True)
  # Without the maximum, a column of zeros would become nan.
  return weight * tf.minimum(1.0, max_norm * tf.math.rsqrt(
      tf.maximum(squares, 1e-30)))


# The last part of a parameter's name. A weight matrix or a convolution kernel
# has columns, each with the incoming weights of one unit. Biases, the
# FiLM-NMN's gamma and beta, and the FiLM-LSTM's word embeddings have none. (The
# FiLM-LSTM computes its gamma and beta with weight matrices.)
_WITH_COLUMNS = ('w',)
_WITHOUT_COLUMNS = ('b', 'gamma', 'beta', 'embeddings')


def has_columns(name: str) -> bool:
  """Returns whether the column norms of a parameter are clipped.

  Args:
    name: The parameter's name, such as 'features/stem/patches/w'.

  Raises:
    ValueError: if its last part is not one of the known names, so that the
      weights of a new network are not left out by mistake.
  """
  own = name.rsplit('/', 1)[-1]
  if own not in _WITH_COLUMNS + _WITHOUT_COLUMNS:
    raise ValueError(
        f'Parameter {name!r}: expected a name that ends in one of '
        f'{", ".join(_WITH_COLUMNS)} (its columns are clipped) or '
        f'{", ".join(_WITHOUT_COLUMNS)} (they are not). Rename it, or add its '
        'name to one of the two lists in agile_tf/agent/optimizers.py.')
  return own in _WITH_COLUMNS


# The name of Adam's powers of beta_1 and beta_2 in a checkpoint.
_POWERS = 'powers'


class SharedParameters:
  """The parameters of one network, shared by all threads.

  Attributes:
    layout: The names and positions of the parameters.
  """

  def __init__(self, layout: parameters_lib.Layout, initial: np.ndarray,
               settings: Updates):
    """Creates the variable and its slots. Call this before any thread starts.

    Args:
      layout: The names and positions of the parameters.
      initial: float32 [P], their initial values.
      settings: The settings of the updates.
    """
    self.layout = layout
    self._settings = settings
    if settings.max_column_norm is not None:
      for name in layout.names:
        has_columns(name)  # Raises for an unknown name.
    self._lock = threading.Lock()
    self._variable = tf.Variable(initial)
    adam = settings.optimizer == 'adam'
    self._mean_square = tf.Variable(np.full_like(
        initial, 0.0 if adam else settings.first_mean_square))
    # RMSProp's momentum is 0, but the kernel still writes the last step of each
    # weight to this slot.
    self._momentum = tf.Variable(tf.zeros_like(initial))
    # beta_1^t and beta_2^t of Adam's next update; RMSProp has none.
    self._powers = tf.Variable(
        [_ADAM_BETA_1, settings.decay]) if adam else None
    self._apply_function = tf.function(self._updates, autograph=False)

  def _updates(self, rate: tf.Tensor, *gradients: tf.Tensor) -> tf.Tensor:
    """Makes one update after another; returns the gradients' norms."""
    return tf.stack([self._update(rate, gradient) for gradient in gradients])

  def _update(self, rate: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Clips a gradient, applies it if it is finite; returns its norm."""
    clipped, norm = clip_gradient(gradient, self._settings.gradient_norm)

    def change() -> tf.Tensor:
      self._change(rate, clipped)
      return norm

    return tf.cond(tf.math.is_finite(norm), change, lambda: norm)

  def _change(self, rate: tf.Tensor, clipped: tf.Tensor) -> None:
    """Applies a clipped gradient, then clips columns."""
    settings = self._settings
    # TensorFlow 1's own kernels, which update the variable and slots in place.
    if self._powers is None:
      tf.raw_ops.ResourceApplyRMSProp(
          var=self._variable.handle, ms=self._mean_square.handle,
          mom=self._momentum.handle, lr=rate,
          rho=settings.decay, momentum=0.0, epsilon=settings.epsilon,
          grad=clipped)
    else:
      powers = self._powers.read_value()
      tf.raw_ops.ResourceApplyAdam(
          var=self._variable.handle, m=self._momentum.handle,
          v=self._mean_square.handle, beta1_power=powers[0],
          beta2_power=powers[1], lr=rate,
          beta1=_ADAM_BETA_1, beta2=settings.decay, epsilon=settings.epsilon,
          grad=clipped)
      self._powers.assign(powers * [_ADAM_BETA_1, settings.decay])
    if settings.max_column_norm is not None:
      self._variable.assign(self.layout.join({
          name: (clip_columns(part, settings.max_column_norm)
                 if has_columns(name) else part)
          for name, part in self.layout.split(
              self._variable.read_value()).items()}))

  def snapshot(self) -> tf.Tensor:
    """Returns a copy of the parameters, float32 [P], between two updates.

    Later updates do not change it.
    """
    with self._lock:
      return tf.identity(self._variable)

  def apply(self, *gradients: tf.Tensor,
            learning_rate: float | None = None) -> tf.Tensor:
    """Updates the parameters, once for each gradient.

    Args:
      *gradients: N tensors, float32 [P]. Each is clipped separately, and
        skipped if its norm is not finite.
      learning_rate: Of these updates; None for that of the settings.

    Returns:
      float32 [N], the gradients' global norms before clipping.
    """
    if learning_rate is None:
      learning_rate = self._settings.learning_rate
    with self._lock:
      return self._apply_function(np.float32(learning_rate), *gradients)

  def copy(self, other: 'SharedParameters',
           names: Mapping[str, str]) -> None:
    """Copies parameters of another network. Slots stay as they are.

    Args:
      other: The other network's parameters.
      names: From names of this network to those of the other, which have the
        same shapes.
    """
    theirs = other.layout.split(other.snapshot())
    with self._lock:
      own = self.layout.split(self._variable.read_value())
      self._variable.assign(self.layout.join({
          **own, **{name: theirs[names[name]] for name in names}}))

  def state(self) -> dict[str, np.ndarray]:
    """Returns parameters and slots by name, for a checkpoint."""
    with self._lock:
      state = {
          name + suffix: part.numpy()
          for suffix, variable in self._variables()
          for name, part in self.layout.split(variable.read_value()).items()}
      if self._powers is not None:
        state[_POWERS] = self._powers.numpy()
      return state

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned.

    Raises:
      ArchiveError: if it is from other parameters. Then nothing changes.
    """
    restored = [
        (variable, {
            name: archives.expect(state, name + suffix, np.float32, shape)
            for name, shape in zip(self.layout.names, self.layout.shapes)})
        for suffix, variable in self._variables()]
    powers = None
    if self._powers is not None:
      powers = archives.expect(state, _POWERS, np.float32, [2])
    with self._lock:
      for variable, parts in restored:
        variable.assign(self.layout.join(parts))
      if self._powers is not None:
        self._powers.assign(powers)

  def _variables(self) -> list[tuple[str, tf.Variable]]:
    return [('', self._variable), ('/mean_square', self._mean_square),
            ('/momentum', self._momentum)]
