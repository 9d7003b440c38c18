"""The policy's reward: from the discriminator D or from the ground truth."""

import numpy as np
import tensorflow as tf

from agile_tf.agent import rollouts

# AGILE uses 'decision'; the paper mentions the others. `modelled` defines them.
FORMS = ('decision', 'probability', 'log', 'gail')

# The largest |f(D)| of the forms with a logarithm.
_LOG_LIMIT = 10.0


def decisions(logits: tf.Tensor) -> tf.Tensor:
  """Returns whether D accepts states as goal states, D(c, s) > 0.5."""
  return logits > 0


def modelled(logits: tf.Tensor, form: str, scale: float) -> tf.Tensor:
  """Returns the reward that D gives, scale * f(D(c, s)), from D's logits.

    form         f(D)
    decision     [D > 0.5]     AGILE's (section 2)
    probability  D
    log          log D         at least -10
    gail         -log(1 - D)   at most 10 (appendix B)

  No gradient flows through it.
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
        f'The form of the reward is {form!r}: expected one of {FORMS}.')
  return scale * reward


def ground_truth(rollout: rollouts.Rollout, scale: float
                ) -> tuple[np.ndarray, np.ndarray]:
  """Returns the A3C baselines' rewards and which states are goal states.

  They are float32 [T, W] and bool [T, W].
  """
  return np.float32(scale) * rollout.true_rewards, rollout.true_rewards > 0
