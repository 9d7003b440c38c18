"""The compiled programs of learning: rewards and both networks' gradients.

Pure functions from tensors to tensors. Parameters come in as a snapshot and
gradients go out; the updates are made outside, on the shared variables, by
`agile_tf.agent.optimizers`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from agile_tf.agent import convolutions
from agile_tf.agent import losses
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import rewards as rewards_lib
from agile_tf.agent import worlds


class PolicyLoss(NamedTuple):
  """The weights of the policy's loss (appendix C, table 1)."""
  discount: float
  td_lambda: float
  entropy_weight: float
  baseline_cost: float
  reward_prediction_cost: float  # 0: no reward prediction.


class Replayed(NamedTuple):
  """Reward prediction's samples, K for each of W workers."""
  codes: tf.Tensor  # int32 [W, K, slots]
  observations: tf.Tensor  # uint8 [W, K, ...]
  positive: tf.Tensor  # bool [W, K]


def _flatten(x: tf.Tensor) -> tf.Tensor:
  """Folds the two leading dimensions into one."""
  return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])


def modelled_rewards_program(
    discriminator: networks.Network, world: worlds.World, form: str,
    scale: float
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
  """Compiles line 6 of Algorithm 2.

  Returns:
    A function of phi, observations uint8 [T + 1, W, ...] and codes int32
    [W, slots] that returns of s_1 ... s_T the rewards, float32 [T, W] (see
    `rewards.modelled`), and whether D takes them for goal states, bool [T, W].
  """
  @tf.function(autograph=False, jit_compile=True)
  def modelled_rewards(phi, observations, codes):
    states = observations[1:]
    length, width = states.shape[:2]
    logits = discriminator(
        phi, world.images(_flatten(states)), tf.tile(codes, [length, 1]))
    logits = tf.reshape(logits, [length, width])
    return (rewards_lib.modelled(logits, form, scale),
            rewards_lib.decisions(logits))

  return modelled_rewards


def policy_gradients_program(
    policy: networks.Network, world: worlds.World, weights: PolicyLoss
) -> Callable[..., tuple[Sequence[tf.Tensor], dict[str, tf.Tensor]]]:
  """Compiles the gradient of line 7 of Algorithm 2, one a worker.

  The loss of a worker is summed over the steps of its rollout (equation 1 by
  A3C), and the mean over its replayed samples for reward prediction.

  Returns:
    A function of theta, observations uint8 [T + 1, W, ...], codes int32
    [W, slots], actions int32 [T, W], rewards (0 where masked), discounts and
    mask float32 [T, W], `results` as in `rollouts.Rollout`, and `Replayed` or
    None, that returns W gradients, float32 [P], and the terms of the loss:
    float32 [W], a mean a step.
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
        world.images(_flatten(observations)),
        [length + 1, width, *world.image_shape])
    bootstrap = policy(theta, images[-1], codes).baseline
    # A masked step hands on the return of the state after the rollout.
    discounts = tf.where(mask > 0, weights.discount * discounts, 1.0)
    gradients, extras = zip(*(
        worker_gradient(
            theta, images[:length, w], codes[w], actions[:, w], rewards[:, w],
            discounts[:, w], bootstrap[w], mask[:, w],
            [x[:, w] for x in results],
            replayed and Replayed(*(x[w] for x in replayed)))
        for w in range(width)))
    return gradients, {
        name: tf.stack([extra[name] for extra in extras])
        for name in extras[0]}

  return policy_gradients


def discriminator_gradients_program(
    discriminator: networks.Network, world: worlds.World
) -> Callable[..., tuple[tf.Tensor, dict[str, tf.Tensor]]]:
  """Compiles lines 9 to 11 of Algorithm 1.

  Returns:
    A function of phi, goals (codes int32 [N, slots], observations
    uint8 [N, ...]) and candidates (codes int32 [M, slots], observations
    uint8 [M, ...], M >= N) that returns the gradient, float32 [P], and the
    terms to watch: the loss (the mean over the 2 N examples), and the shares
    of goals and of negatives that D tells as such, float32 [].
  """
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


class Round(NamedTuple):
  """What a round of training leaves."""
  theta: tf.Tensor  # float32 [P], after each worker's own update.
  mean_square: tf.Tensor  # float32 [P], RMSProp's slot.
  observations: tf.Tensor  # uint8 [T + 1, W, ...]
  actions: tf.Tensor  # int32 [T, W]
  rewards: tf.Tensor  # float32 [T, W]
  satisfied: tf.Tensor  # bool [T, W]
  terms: dict[str, tf.Tensor]  # Of the loss, float32 [W].
  norms: tf.Tensor  # float32 [W], of the gradients, before clipping.


def round_program(
    play: Callable[..., Any], modelled_rewards: Callable[..., Any],
    policy_gradients: Callable[..., Any], settings: optimizers.RMSProp
) -> Callable[..., Round]:
  """Compiles a whole round of W workers in lockstep into one program.

  It acts, rewards, and makes one update after another: Algorithm 2 from tensors
  to tensors, with nothing shared, so that it can be profiled and exported by
  itself. `agile_tf.launch` runs the same parts one by one.

  Args:
    play: From `rollouts.play_program`.
    modelled_rewards: From `modelled_rewards_program`.
    policy_gradients: From `policy_gradients_program`.
    settings: The policy's updates.

  Returns:
    A function of theta, mean_square, phi, the arguments of `play` after theta
    (observations, codes, truth codes, noise, mask), discounts float32 [T, W]
    and `Replayed` or None, that returns a `Round`. All workers must be active.
  """
  @tf.function(autograph=False, jit_compile=True)
  def one_round(theta, mean_square, phi, observations, codes, truth_codes,
                gumbel, mask, discounts, replayed):
    observations, actions, satisfied, results = play(
        theta, observations, codes, truth_codes, gumbel, mask)
    played = tf.cast(mask, tf.float32)
    rewards = played * modelled_rewards(phi, observations, codes)[0]
    gradients, terms = policy_gradients(
        theta, observations, codes, actions, rewards, discounts, played,
        results, replayed)
    norms = []
    for gradient in gradients:
      theta, mean_square, norm = optimizers.updated(
          settings, theta, mean_square, gradient)
      norms.append(norm)
    return Round(theta, mean_square, observations, actions, rewards,
                 satisfied, terms, tf.stack(norms))

  return one_round
