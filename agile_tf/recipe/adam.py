"""Adam (Kingma and Ba, 2015), where the paper has RMSProp.

  momentum <- beta_1 * momentum + (1 - beta_1) * g
  mean_square <- beta_2 * mean_square + (1 - beta_2) * g^2
  w <- w - learning_rate * (momentum / (1 - beta_1^t)) / (
      sqrt(mean_square / (1 - beta_2^t)) + epsilon)

t counts updates, and both slots start at zero. beta_1 is 0.9, and beta_2 is the
decay of the mean square. (TensorFlow's kernel divides epsilon by
sqrt(1 - beta_2^t), as the paper of Adam allows.)
"""

import numpy as np
import tensorflow as tf

from agile_tf.agent import optimizers
from agile_tf.agent import parameters as parameters_lib
from gridlu import archives

BETA_1 = 0.9
_POWERS = 'powers'  # Their name in a checkpoint.


class AdamParameters(optimizers.SharedParameters):
  """Shared parameters that Adam updates."""

  def __init__(self, layout: parameters_lib.Layout, initial: np.ndarray,
               settings: optimizers.Updates):
    super().__init__(layout, initial, settings)
    self._mean_square.assign(tf.zeros_like(initial))
    # beta_1^t and beta_2^t of the next update.
    self._powers = tf.Variable([BETA_1, settings.decay])

  def _descend(self, rate: tf.Tensor, clipped: tf.Tensor) -> None:
    decay = self._settings.decay
    powers = self._powers.read_value()
    tf.raw_ops.ResourceApplyAdam(
        var=self._variable.handle, m=self._momentum.handle,
        v=self._mean_square.handle, beta1_power=powers[0],
        beta2_power=powers[1], lr=rate, beta1=BETA_1, beta2=decay,
        epsilon=self._settings.epsilon, grad=clipped)
    self._powers.assign(powers * [BETA_1, decay])

  def state(self) -> dict[str, np.ndarray]:
    return super().state() | {_POWERS: self._powers.numpy()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    powers = archives.expect(state, _POWERS, np.float32, [2])
    super().load(state)
    self._powers.assign(powers)
