"""The policy's reward: from D's output, or from the ground truth."""

import tensorflow as tf


def modelled(logits: tf.Tensor, scale: float) -> tf.Tensor:
  """The reward of AGILE, scale * [D(c, s) > 0.5] (section 2, appendix B).

  Args:
    logits: float32 [...], of D(c, s).
    scale: The reward of a goal state.

  Returns:
    float32 [...]. No gradient flows.
  """
  return scale * tf.cast(logits > 0, tf.float32)


def ground_truth(rewards: tf.Tensor, scale: float) -> tf.Tensor:
  """The reward of the baselines, scale * r.

  Args:
    rewards: float32 [...], the environment's, 1 in a goal state and else 0.
    scale: The reward of a goal state.

  Returns:
    float32 [...].
  """
  return scale * rewards
