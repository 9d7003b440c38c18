"""The policy's reward: from D's output, or from the ground truth."""

import tensorflow as tf

# The paper uses the decision; the others are its side remarks, and GAIL's.
FORMS = ('decision', 'probability', 'log', 'gail')

# Where logarithms of D are cut off.
_LOG_LIMIT = 10.0


def decisions(logits: tf.Tensor) -> tf.Tensor:
  """Whether D takes states for goal states, D(c, s) > 0.5.

  Args:
    logits: float32 [...], of D(c, s).

  Returns:
    bool [...].
  """
  return logits > 0


def modelled(logits: tf.Tensor, form: str, scale: float) -> tf.Tensor:
  """The reward that D gives, scale * f(D(c, s)).

    decision     [D > 0.5]     AGILE's (section 2)
    probability  D
    log          log D         at least -10
    gail         -log(1 - D)   at most 10 (appendix B)

  Args:
    logits: float32 [...], of D(c, s).
    form: One of `FORMS`.
    scale: Of the reward.

  Returns:
    float32 [...]. No gradient flows.

  Raises:
    ValueError: if the form does not exist.
  """
  logits = tf.stop_gradient(logits)
  if form == 'decision':
    reward = tf.cast(decisions(logits), tf.float32)
  elif form == 'probability':
    reward = tf.sigmoid(logits)
  elif form == 'log':
    reward = tf.maximum(tf.math.log_sigmoid(logits), -_LOG_LIMIT)
  elif form == 'gail':
    reward = tf.minimum(tf.nn.softplus(logits), _LOG_LIMIT)
  else:
    raise ValueError(
        f'The form of the reward is {form!r}: expected one of '
        f'{", ".join(FORMS)}.')
  return scale * reward


def ground_truth(rewards: tf.Tensor, scale: float) -> tf.Tensor:
  """The reward of the baselines, scale * r.

  Args:
    rewards: float32 [...], the environment's, 1 in a goal state and else 0.
    scale: The reward of a goal state.

  Returns:
    float32 [...].
  """
  return scale * rewards
