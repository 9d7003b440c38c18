"""The policy's reward from the discriminator D."""

from collections.abc import Callable

import tensorflow as tf

# The largest |f(D)| of the forms with a logarithm.
_LOG_LIMIT = 10.0


def decisions(logits: tf.Tensor) -> tf.Tensor:
  """Returns whether D accepts states as goal states, D(c, s) > 0.5."""
  return logits > 0


# By name, f(D) as a function of D's logits. AGILE uses 'decision' (section 2);
# the paper, or its earlier version, mentions the others.
FORMS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    # 1 if D > 0.5, else 0.
    'decision': lambda logits: tf.cast(decisions(logits), tf.float32),
    # D.
    'probability': tf.sigmoid,
    # log D, at least -10.
    'log': lambda logits: tf.maximum(tf.math.log_sigmoid(logits), -_LOG_LIMIT),
    # -log(1 - D), at most 10 (appendix B).
    'gail': lambda logits: tf.minimum(tf.nn.softplus(logits), _LOG_LIMIT),
}


def modelled(logits: tf.Tensor, form: str, scale: float) -> tf.Tensor:
  """Returns scale * f(D(c, s)) from D's logits; no gradient flows through."""
  return scale * FORMS[form](tf.stop_gradient(logits))
