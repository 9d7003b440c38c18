"""A round of training as one program, for profiling and export.

No run uses this module. `python -m agile_tf.benchmark --export` writes the
program as an XLA HLO module, for machines without TensorFlow.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from agile_tf.agent import optimizers
from agile_tf.agent import signatures


def updated(
    settings: optimizers.Updates, parameters: tf.Tensor, mean_square: tf.Tensor,
    gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns the parameters after one update by RMSProp, for compiled programs.

  `optimizers.SharedParameters.apply` makes the same update in place.

  Args:
    settings: The settings of the update.
    parameters: float32 [P].
    mean_square: float32 [P], the optimiser's slot.
    gradient: float32 [P].

  Returns:
    The new parameters and slot, and the gradient's norm before clipping,
    float32 [].
  """
  assert settings.optimizer == 'rmsprop'
  clipped, norm = optimizers.clip_gradient(gradient, settings.gradient_norm)
  mean_square += (1 - settings.decay) * (tf.square(clipped) - mean_square)
  parameters -= settings.learning_rate * clipped * tf.math.rsqrt(
      mean_square + settings.epsilon)
  return parameters, mean_square, norm


class Round(NamedTuple):
  """The results of a round of training."""
  theta: tf.Tensor  # float32 [P], after the updates of all workers.
  mean_square: tf.Tensor  # float32 [P], RMSProp's slot.
  observations: tf.Tensor  # uint8 [T + 1, W, ...]
  actions: tf.Tensor  # int32 [T, W]
  rewards: tf.Tensor  # float32 [T, W]
  satisfied: tf.Tensor  # bool [T, W]
  terms: dict[str, tf.Tensor]  # Of the loss, float32 [W].
  norms: tf.Tensor  # float32 [W], of the gradients, before clipping.


def round_program(
    play: signatures.Play, model_reward: signatures.ModelReward,
    policy_gradients: signatures.PolicyGradients,
    settings: optimizers.Updates, entropy_weight: float
) -> Callable[..., Round]:
  """Compiles a whole round of W workers in lockstep into one program.

  The program acts, rewards, and makes one update after another: Algorithm 2 as
  a pure function. A run calls the same parts one by one.

  Args:
    play: From `actors.play_program`.
    model_reward: From `rewards.modelled_program`.
    policy_gradients: From `gradients.policy_gradients_program`.
    settings: The settings of the policy's updates.
    entropy_weight: alpha.

  Returns:
    A function of theta, mean_square, phi, the arguments of `play` after theta
    (observations, codes, truth codes, noise, mask), discounts float32 [T, W]
    and `signatures.Replayed` or None, that returns a `Round`. All workers must
    be active.
  """
  @tf.function(autograph=False, jit_compile=True)
  def one_round(theta, mean_square, phi, observations, codes, truth_codes,
                gumbel, mask, discounts, replayed):
    observations, actions, satisfied, results = play(
        theta, observations, codes, truth_codes, gumbel, mask)
    played = tf.cast(mask, tf.float32)
    rewards = played * model_reward(phi, observations, codes)[0]
    gradients, terms = policy_gradients(
        theta, observations, codes, actions, rewards, discounts, played,
        entropy_weight, results, replayed)
    norms = []
    for gradient in gradients:
      theta, mean_square, norm = updated(
          settings, theta, mean_square, gradient)
      norms.append(norm)
    return Round(theta, mean_square, observations, actions, rewards,
                 satisfied, terms, tf.stack(norms))

  return one_round
