"""Updates of the parameters that threads share: RMSProp and column norms.

`SharedParameters` protects the parameters of one network, and the optimiser
state that goes with them, with a lock: updates are atomic, and a snapshot never
contains half of one. An update clips the gradient by its global norm, applies a
`Rule` such as RMSProp's, and may then clip column norms: those of D in the
paper. A gradient that is not finite changes nothing.
"""

from collections.abc import Callable, Sequence
import threading
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from agile_tf.agent import parameters as parameters_lib
from gridlu import archives

# The optimiser state: arrays that a rule keeps from one gradient to the next,
# by name. An array that has a number for each parameter is float32 [P].
RuleState: TypeAlias = dict[str, tf.Tensor]


class Rule(NamedTuple):
  """A rule by which a gradient changes parameters."""
  # Takes the number of parameters; returns the state before the first gradient.
  initial_state: Callable[[int], RuleState]
  # Takes parameters [P], the state, a gradient [P] and the learning rate;
  # returns the parameters and the state after it. It is a pure function.
  update: Callable[[tf.Tensor, RuleState, tf.Tensor, tf.Tensor],
                   tuple[tf.Tensor, RuleState]]


def rmsprop(decay: float, epsilon: float) -> Rule:
  """Returns TensorFlow 1's RMSProp; the paper does not name its variant.

  The mean square starts at one; in Keras 3 and Sonnet 2 it starts at zero.
  Epsilon is inside the square root, as in these two; in PyTorch it is outside.
  """
  def initial_state(size: int) -> RuleState:
    return {'mean_square': tf.ones([size])}

  def update(parameters: tf.Tensor, state: RuleState, gradient: tf.Tensor,
             rate: tf.Tensor) -> tuple[tf.Tensor, RuleState]:
    mean_square = (
        decay * state['mean_square'] + (1 - decay) * tf.square(gradient))
    step = gradient * tf.math.rsqrt(mean_square + epsilon)
    return parameters - rate * step, {'mean_square': mean_square}

  return Rule(initial_state, update)


def clip_gradient(gradient: tf.Tensor, max_norm: float
                 ) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns g * min(1, max_norm / |g|), and the norm |g|.

  Unlike tf.clip_by_global_norm, it takes any `max_norm`, also one that is
  infinite in float32.
  """
  norm = tf.linalg.global_norm([gradient])
  return gradient * tf.minimum(1.0, max_norm / tf.maximum(norm, 1e-30)), norm


def clip_columns(weight: tf.Tensor, max_norm: float) -> tf.Tensor:
  """Returns w_u * min(1, max_norm / |w_u|) for each unit u (appendix C).

  Weights are [..., units], and w_u are those that come into a unit: in a
  convolution those of all input channels at all positions in the kernel.
  """
  squares = tf.reduce_sum(
      tf.square(weight), axis=range(weight.shape.rank - 1), keepdims=True)
  # Without the maximum, a column of zeros would become nan.
  return weight * tf.minimum(1.0, max_norm * tf.math.rsqrt(
      tf.maximum(squares, 1e-30)))


def _choose(condition: tf.Tensor, if_true: Any, if_false: Any) -> Any:
  """Returns the tensors `if_true` where a condition holds, else `if_false`."""
  return tf.nest.map_structure(
      lambda x, y: tf.where(condition, x, y), if_true, if_false)


_FILM_TABLES = ('gamma', 'beta')


def has_columns(layout: parameters_lib.Layout, name: str,
                limit_film_tables: bool = False) -> bool:
  """Returns whether the column norms of a parameter are clipped.

  Each column of a weight matrix or of a convolution kernel has the incoming
  weights of one unit. Biases and tables have none. With `limit_film_tables` the
  tables of gamma and beta count as matrices.
  """
  own = name.rsplit('/', 1)[-1]
  rank = len(layout.shapes[layout.names.index(name)])
  return rank > 1 and (own not in layout.tables or
                       limit_film_tables and own in _FILM_TABLES)


class SharedParameters:
  """The parameters of one network, shared by all threads."""

  def __init__(self, layout: parameters_lib.Layout, initial: np.ndarray,
               rule: Rule, gradient_norm: float,
               max_column_norm: float | None = None,
               limit_film_tables: bool = False):
    """Creates the variables. Call this before any thread starts.

    Args:
      layout: The names and shapes of the parameters.
      initial: Their initial values, float32 [P].
      rule: How a gradient changes them.
      gradient_norm: Larger gradients are scaled down to this norm.
      max_column_norm: Longer columns are scaled down to this norm after each
        update; None leaves columns alone.
      limit_film_tables: Whether tables of gamma and beta have columns too.
    """
    self.layout = layout
    self._rule = rule
    self._gradient_norm = gradient_norm
    self._max_column_norm = max_column_norm
    self._limit_film_tables = limit_film_tables
    self._lock = threading.Lock()
    self._parameters = tf.Variable(initial)
    self._rule_state = {
        name: tf.Variable(value)
        for name, value in rule.initial_state(layout.size).items()}

  @tf.function(autograph=False)
  def _update(self, rate: tf.Tensor, *gradients: tf.Tensor) -> tf.Tensor:
    """Makes one update after another; returns the gradients' norms."""
    clipped, norms = zip(*(
        clip_gradient(gradient, self._gradient_norm) for gradient in gradients))
    # A policy thread that calls this may compute on another GPU. The parameters
    # are updated on the device where they are.
    with tf.device(self._parameters.device):
      parameters, rule_state = self._after(
          self._parameters.read_value(),
          {name: variable.read_value()
           for name, variable in self._rule_state.items()},
          rate, clipped, norms)
    self._parameters.assign(parameters)
    for name, variable in self._rule_state.items():
      variable.assign(rule_state[name])
    return tf.stack(norms)

  @tf.function(autograph=False, jit_compile=True)
  def _after(self, parameters: tf.Tensor, rule_state: RuleState,
             rate: tf.Tensor, gradients: Sequence[tf.Tensor],
             norms: Sequence[tf.Tensor]) -> tuple[tf.Tensor, RuleState]:
    """Returns parameters and state after the gradients whose norm is finite."""
    for gradient, norm in zip(gradients, norms):
      after, state_after = self._rule.update(
          parameters, rule_state, gradient, rate)
      parameters, rule_state = _choose(
          tf.math.is_finite(norm),
          (self._with_short_columns(after), state_after),
          (parameters, rule_state))
    return parameters, rule_state

  def _with_short_columns(self, parameters: tf.Tensor) -> tf.Tensor:
    """Returns the parameters with clipped columns, if there is a limit."""
    max_norm = self._max_column_norm
    if max_norm is None:
      return parameters
    return self.layout.join({
        name: clip_columns(part, max_norm) if has_columns(
            self.layout, name, self._limit_film_tables) else part
        for name, part in self.layout.split(parameters).items()})

  def snapshot(self) -> tf.Tensor:
    """Returns a copy of the parameters, float32 [P], between two updates."""
    with self._lock:
      return tf.identity(self._parameters)

  def update(self, learning_rate: float, *gradients: tf.Tensor) -> tf.Tensor:
    """Updates once for each of N gradients, float32 [P]; returns their norms.

    Each is clipped separately, and skipped if its norm is not finite.
    """
    with self._lock:
      return self._update(np.float32(learning_rate), *gradients)

  def state(self) -> dict[str, np.ndarray]:
    """Returns the parameters and the optimiser state, for a checkpoint."""
    with self._lock:
      return {
          name: value.numpy()
          for suffix, variable in self._variables().items()
          for name, value in self._named(
              suffix, variable.read_value()).items()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned.

    If the state has other parameters, it raises ValueError and changes nothing.
    """
    restored = []
    for suffix, variable in self._variables().items():
      parts = {
          name: archives.expect(state, name, np.float32, value.shape)
          for name, value in self._named(
              suffix, variable.read_value()).items()}
      restored.append((variable, tf.concat(
          [tf.reshape(part, [-1]) for part in parts.values()], 0)))
    with self._lock:
      for variable, value in restored:
        variable.assign(value)

  def _variables(self) -> dict[str, tf.Variable]:
    """Returns the variables by the suffix of their names in a checkpoint."""
    return {'': self._parameters} | {
        f'/{name}': variable for name, variable in self._rule_state.items()}

  def _named(self, suffix: str, value: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the value of a variable in parts, by their names."""
    if value.shape != [self.layout.size]:  # All parameters share these numbers.
      return {suffix[1:]: value}
    return {name + suffix: part
            for name, part in self.layout.split(value).items()}
