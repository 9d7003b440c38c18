"""One update of the policy for all workers of a thread, where A3C has W."""

import numpy as np
import tensorflow as tf

from agile_tf.agent import programs
from agile_tf.agent import replay
from agile_tf.agent import rollouts


class AveragedPrograms(programs.Programs):
  """Programs whose policy gradient is that of the workers' mean loss."""

  def policy_gradients(
      self, theta: tf.Tensor, rollout: rollouts.Rollout, values: np.ndarray,
      entropy_weight: float, replayed: replay.Replayed | None = None
  ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    gradient, terms = self._policy_gradients(
        theta, rollout._replace(instructions=()), values,
        np.float32(entropy_weight), replayed)
    return [gradient], terms

  @programs.compiled
  def _policy_gradients(self, theta, rollout, values, entropy_weight, replayed):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(theta)
      total, terms = self._losses(
          theta, rollout, values, entropy_weight, replayed)
      active = tf.reduce_max(rollout.mask, 0)
      total = tf.reduce_sum(active * total) / tf.reduce_sum(active)
    return tape.gradient(total, theta), terms
