"""Adam (Kingma and Ba, 2015), where AGILE's paper has RMSProp."""

import tensorflow as tf

from agile_tf.agent import optimizers

BETA_1 = 0.9


def adam(decay: float, epsilon: float) -> optimizers.Rule:
  """Returns Adam as TensorFlow 1 has it; its beta_2 is the decay.

    momentum <- beta_1 * momentum + (1 - beta_1) * g
    mean_square <- beta_2 * mean_square + (1 - beta_2) * g^2
    w <- w - rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * momentum / (
        sqrt(mean_square) + epsilon)

  t counts updates, and both means start at zero. This is the form with "epsilon
  hat" at the end of section 2 of Kingma and Ba: this epsilon is that of their
  Algorithm 1 times sqrt(1 - beta_2^t).
  """
  def initial_state(size: int) -> optimizers.RuleState:
    return {'mean_square': tf.zeros([size]), 'momentum': tf.zeros([size]),
            # These are beta_1^t and beta_2^t for the next update.
            'powers': tf.constant([BETA_1, decay])}

  def update(parameters: tf.Tensor, state: optimizers.RuleState,
             gradient: tf.Tensor, rate: tf.Tensor
            ) -> tuple[tf.Tensor, optimizers.RuleState]:
    momentum = BETA_1 * state['momentum'] + (1 - BETA_1) * gradient
    mean_square = (
        decay * state['mean_square'] + (1 - decay) * tf.square(gradient))
    power_1, power_2 = tf.unstack(state['powers'])
    rate *= tf.sqrt(1 - power_2) / (1 - power_1)
    step = momentum / (tf.sqrt(mean_square) + epsilon)
    return parameters - rate * step, {
        'mean_square': mean_square, 'momentum': momentum,
        'powers': state['powers'] * [BETA_1, decay]}

  return optimizers.Rule(initial_state, update)
