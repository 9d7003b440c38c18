"""The policy's reward from the discriminator D."""

from collections.abc import Callable
import math

import tensorflow as tf

# The most that |f(D)| can be, for forms with a logarithm.
_LOG_LIMIT = 10.0


def decisions(logits: tf.Tensor, threshold: float) -> tf.Tensor:
  """Returns whether D accepts states as goal states, D(c, s) > threshold."""
  return logits > math.log(threshold / (1 - threshold))  # 0 for 0.5.


# Each form is f(D) as a function of D's logits and of the threshold. AGILE uses
# 'decision' (section 2). The paper or its earlier version names the others.
FORMS: dict[str, Callable[[tf.Tensor, float], tf.Tensor]] = {
    # 1 if D > threshold, else 0.
    'decision': lambda logits, threshold: tf.cast(
        decisions(logits, threshold), tf.float32),
    # D.
    'probability': lambda logits, _: tf.sigmoid(logits),
    # log D, at least -10.
    'log': lambda logits, _: tf.maximum(
        tf.math.log_sigmoid(logits), -_LOG_LIMIT),
    # -log(1 - D), at most 10 (appendix B).
    'gail': lambda logits, _: tf.minimum(tf.nn.softplus(logits), _LOG_LIMIT),
}


def modelled(logits: tf.Tensor, form: str, scale: float, threshold: float
            ) -> tf.Tensor:
  """Returns scale * f(D(c, s)) from D's logits; no gradient flows through."""
  return scale * FORMS[form](tf.stop_gradient(logits), threshold)
