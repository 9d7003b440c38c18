"""The gradients of both networks, as compiled programs.

`signatures` says what the programs take and return.
"""

from typing import NamedTuple

import tensorflow as tf

from agile_tf.agent import functional
from agile_tf.agent import losses
from agile_tf.agent import signatures
from agile_tf.agent import worlds


class PolicyLoss(NamedTuple):
  """The weights of the policy's loss (appendix C, table 1)."""
  discount: float
  td_lambda: float
  baseline_cost: float
  reward_prediction_cost: float  # 0: no reward prediction.
  averaged: bool = False  # One gradient for all workers, of their mean loss.


def _flatten(x: tf.Tensor) -> tf.Tensor:
  """Folds the two leading dimensions into one."""
  return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])


def policy_gradients_program(
    policy: functional.Network, world: worlds.World, weights: PolicyLoss
) -> signatures.PolicyGradients:
  """Compiles line 7 of Algorithm 2: one gradient for each worker.

  A worker's loss is the sum of A3C's loss (equation 1) over its rollout, plus
  the mean loss of reward prediction over its replayed samples. With
  `weights.averaged`, which is not the paper's, there is one gradient: of the
  mean loss of the workers that have a step.
  """
  predicts = weights.reward_prediction_cost > 0

  def workers_losses(output, actions, rewards, discounts, mask, entropy_weight,
                     positive):
    """The W workers' losses and their terms, float32 [W].

    The policy's output is of each worker's states s_0 ... s_T, and then of its
    replayed samples: [W, T + 1 (+ K), ...].
    """
    length = actions.shape[0]
    steps = tf.reduce_sum(mask, 0)
    baseline = tf.transpose(output.baseline[:, :length + 1])
    terms = losses.actor_critic(
        tf.transpose(output.logits[:, :length], [1, 0, 2]), baseline[:-1],
        actions, losses.returns(
            rewards, discounts, baseline[1:], weights.td_lambda))
    sums = {
        'policy_loss': tf.reduce_sum(mask * terms.policy, 0),
        'baseline_loss': tf.reduce_sum(mask * terms.baseline, 0),
        'entropy': tf.reduce_sum(mask * terms.entropy, 0),
    }
    total = (
        sums['policy_loss'] + weights.baseline_cost * sums['baseline_loss'] -
        entropy_weight * sums['entropy'])
    extras = {
        name: value / tf.maximum(steps, 1.0) for name, value in sums.items()}
    if predicts:
      extras['reward_prediction_loss'] = tf.reduce_mean(
          losses.reward_prediction(
              output.reward_logits[:, length + 1:], positive), 1)
      total += (
          weights.reward_prediction_cost * extras['reward_prediction_loss'])
    return total, extras

  @tf.function(autograph=False, jit_compile=True)
  def policy_gradients(theta, observations, codes, actions, rewards, discounts,
                       mask, entropy_weight, results, replayed):
    length, width = actions.shape
    # One pass for all workers, whose states stand one worker after another.
    states = tf.transpose(
        observations, [1, 0, *range(2, observations.shape.rank)])
    codes = tf.tile(codes[:, None], [1, length + 1, 1])
    if predicts:
      states = tf.concat([states, replayed.observations], 1)
      codes = tf.concat([codes, replayed.codes], 1)
    # A masked step has the return of the step after it.
    discounts = tf.where(mask > 0, weights.discount * discounts, 1.0)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      # A copy for each worker, so that each has its own gradient.
      parameters = theta if weights.averaged else tf.tile(
          theta[None], [width, 1])
      tape.watch(parameters)
      output = policy.at(parameters)(
          world.images(_flatten(states)), _flatten(codes), known=[
              tf.transpose(x, [1, 2, 3, 0, 4]) for x in results])
      total, extras = workers_losses(
          tf.nest.map_structure(
              lambda x: tf.reshape(x, [width, -1, *x.shape[1:]]), output),
          actions, rewards, discounts, mask, entropy_weight,
          replayed and replayed.positive)
      if weights.averaged:
        active = tf.reduce_max(mask, 0)
        total = tf.reduce_sum(active * total) / tf.reduce_sum(active)
    gradient = tape.gradient(total, parameters)
    return [gradient] if weights.averaged else tf.unstack(gradient), extras

  return policy_gradients


def discriminator_gradients_program(
    discriminator: functional.Network, world: worlds.World
) -> signatures.DiscriminatorGradients:
  """Compiles lines 9 to 11 of Algorithm 1."""
  @tf.function(autograph=False, jit_compile=True)
  def discriminator_gradients(phi, goals, candidates, drawn, mismatched=None):
    goal_codes, goal_observations = goals
    codes, observations = candidates
    total = count = goal_codes.shape[0]
    if mismatched is not None:
      count -= mismatched[0].shape[0]
    known = []
    if codes.shape[0] > count:  # With rho = 1 nothing is rejected.
      logits, results = discriminator.at(phi).record(
          world.images(observations), codes)
      logits = tf.where(
          tf.range(codes.shape[0]) < drawn, logits, logits.dtype.max)
      kept = losses.anticipated_negatives(logits, count)
      codes, observations = tf.gather(codes, kept), tf.gather(
          observations, kept)
      known = [tf.gather(x, kept, axis=2)[:, :, None] for x in results]
    if mismatched is not None:
      codes = tf.concat([codes, mismatched[0]], 0)
      observations = tf.concat([observations, mismatched[1]], 0)
    images = world.images(tf.concat([observations, goal_observations], 0))
    is_goal = tf.range(2 * total) >= total
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(phi)
      logits = discriminator.at(phi)(
          images, tf.concat([codes, goal_codes], 0), known=known)
      loss = tf.reduce_mean(losses.discriminator(logits, is_goal))
    correct = tf.cast((logits > 0) == is_goal, tf.float32)
    return tape.gradient(loss, phi), {
        'discriminator_loss': loss,
        'goals_accepted': tf.reduce_mean(correct[total:]),
        'negatives_rejected': tf.reduce_mean(correct[:total]),
    }

  return discriminator_gradients
