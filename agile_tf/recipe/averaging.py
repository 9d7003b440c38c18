"""One update of the policy for all workers of a thread, where A3C has W."""

import tensorflow as tf

from agile_tf.agent import programs
from agile_tf.agent import rollouts


class AveragedPrograms(programs.Programs):
  """Programs whose policy gradient is that of the workers' mean loss."""

  def _for_updates(self, gradients: tf.Tensor, rollout: rollouts.Rollout
                  ) -> list[tf.Tensor]:
    return [gradients]

  @programs.compiled
  def _policy_gradients(self, theta, observations, codes, actions, values,
                        discounts, mask, entropy_weight, results, replayed):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(theta)
      total, terms = self._losses(
          theta, observations, codes, actions, values, discounts, mask,
          entropy_weight, results, replayed)
      active = tf.reduce_max(mask, 0)
      total = tf.reduce_sum(active * total) / tf.reduce_sum(active)
    return tape.gradient(total, theta), terms
