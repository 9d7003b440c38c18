"""One update of the policy for all workers of a thread, where A3C has W."""

import tensorflow as tf

from agile_tf.agent import programs


class AveragedPrograms(programs.Programs):
  """Programs whose policy gradient is that of the workers' mean loss."""

  @programs.compiled
  def _policy_gradients(self, theta, rollout, values, entropy_weight, replayed):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(theta)
      total, terms = self._losses(
          theta, rollout, values, entropy_weight, replayed)
      active = tf.reduce_max(rollout.mask, 0)
      total = tf.reduce_sum(active * total) / tf.reduce_sum(active)
    return [tape.gradient(total, theta)], terms
