"""The gradients of both networks, as compiled programs.

`signatures` says what the programs take and return.
"""

from typing import NamedTuple

import tensorflow as tf

from agile_tf.agent import convolutions
from agile_tf.agent import losses
from agile_tf.agent import parameters
from agile_tf.agent import signatures
from agile_tf.agent import worlds


class PolicyLoss(NamedTuple):
  """The weights of the policy's loss (appendix C, table 1)."""
  discount: float
  td_lambda: float
  entropy_weight: float
  baseline_cost: float
  reward_prediction_cost: float  # 0: no reward prediction.


def policy_gradients_program(
    policy: parameters.Network, world: worlds.World, weights: PolicyLoss
) -> signatures.PolicyGradients:
  """Compiles the gradient of line 7 of Algorithm 2, one a worker.

  The loss of a worker is summed over the steps of its rollout (equation 1 by
  A3C), and the mean over its replayed samples for reward prediction.
  """
  predicts = weights.reward_prediction_cost > 0

  def worker_loss(theta, images, codes, actions, rewards, discounts, bootstrap,
                  mask, results, replayed):
    """The loss of one worker; images [T, H, W, 3], codes [slots]."""
    length = images.shape[0]
    codes = tf.tile(codes[None], [length, 1])
    if predicts:  # One pass serves the rollout and the replayed samples.
      images = tf.concat([images, world.images(replayed.observations)], 0)
      codes = tf.concat([codes, replayed.codes], 0)
    output = policy(
        theta, images, codes,
        convolutions.Reuser(results) if results else convolutions.convolve)
    baseline = output.baseline[:length]
    following = tf.concat([baseline[1:], bootstrap[None]], 0)
    terms = losses.actor_critic(
        output.logits[:length], baseline, actions,
        losses.returns(rewards, discounts, following, weights.td_lambda))
    sums = {
        'policy_loss': tf.reduce_sum(mask * terms.policy),
        'baseline_loss': tf.reduce_sum(mask * terms.baseline),
        'entropy': tf.reduce_sum(mask * terms.entropy),
    }
    total = (
        sums['policy_loss'] + weights.baseline_cost * sums['baseline_loss'] -
        weights.entropy_weight * sums['entropy'])
    steps = tf.maximum(tf.reduce_sum(mask), 1.0)
    extras = {name: value / steps for name, value in sums.items()}
    if predicts:
      extras['reward_prediction_loss'] = tf.reduce_mean(
          losses.reward_prediction(
              output.reward_logits[length:], replayed.positive))
      total += (
          weights.reward_prediction_cost * extras['reward_prediction_loss'])
    return total, extras

  @tf.function(autograph=False)  # Traced once for all workers.
  def worker_gradient(theta, *arguments):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(theta)
      loss, extras = worker_loss(theta, *arguments)
    return tape.gradient(loss, theta), extras

  @tf.function(autograph=False, jit_compile=True)
  def policy_gradients(theta, observations, codes, actions, rewards, discounts,
                       mask, results, replayed):
    length, width = actions.shape
    images = tf.reshape(
        world.images(
            tf.reshape(observations, [-1, *observations.shape[2:]])),
        [length + 1, width, *world.image_shape])
    bootstrap = policy(theta, images[-1], codes).baseline
    # A masked step hands on the return of the state after the rollout.
    discounts = tf.where(mask > 0, weights.discount * discounts, 1.0)
    gradients, extras = zip(*(
        worker_gradient(
            theta, images[:length, w], codes[w], actions[:, w], rewards[:, w],
            discounts[:, w], bootstrap[w], mask[:, w],
            [x[:, w] for x in results],
            replayed and signatures.Replayed(*(x[w] for x in replayed)))
        for w in range(width)))
    return gradients, {
        name: tf.stack([extra[name] for extra in extras])
        for name in extras[0]}

  return policy_gradients


def discriminator_gradients_program(
    discriminator: parameters.Network, world: worlds.World
) -> signatures.DiscriminatorGradients:
  """Compiles lines 9 to 11 of Algorithm 1."""
  @tf.function(autograph=False, jit_compile=True)
  def discriminator_gradients(phi, goals, candidates):
    goal_codes, goal_observations = goals
    codes, observations = candidates
    count = goal_codes.shape[0]
    convolve: convolutions.Convolve = convolutions.convolve
    if codes.shape[0] > count:  # With rho = 1 nothing is rejected.
      recorder = convolutions.Recorder()
      logits = discriminator(phi, world.images(observations), codes, recorder)
      kept = losses.anticipated_negatives(logits, count)
      codes, observations = tf.gather(codes, kept), tf.gather(
          observations, kept)
      convolve = convolutions.Reuser(
          [tf.gather(x, kept) for x in recorder.results])
    images = world.images(tf.concat([observations, goal_observations], 0))
    is_goal = tf.range(2 * count) >= count
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(phi)
      logits = discriminator(
          phi, images, tf.concat([codes, goal_codes], 0), convolve)
      loss = tf.reduce_mean(losses.discriminator(logits, is_goal))
    correct = tf.cast((logits > 0) == is_goal, tf.float32)
    return tape.gradient(loss, phi), {
        'discriminator_loss': loss,
        'goals_accepted': tf.reduce_mean(correct[count:]),
        'negatives_rejected': tf.reduce_mean(correct[:count]),
    }

  return discriminator_gradients
