"""The compiled programs: all that the algorithms compute in TensorFlow.

`PolicyPrograms` act and compute the policy's gradients. `DiscriminatorPrograms`
compute D's rewards and its gradient. Each program is a pure function of a
snapshot of parameters and of arrays; `optimizers` updates the shared parameters
with the gradients. All threads share the programs. A rollout has R steps of W
workers. P is the number of parameters of the network in question: theta and phi
are float32 [P].
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import functional
from agile_tf.agent import losses
from agile_tf.agent import networks
from agile_tf.agent import replay
from agile_tf.agent import rewards as rewards_lib
from agile_tf.agent import rollouts
from agile_tf.agent import worlds

xla_function = functools.partial(tf.function, autograph=False, jit_compile=True)


class LossSettings(NamedTuple):
  """The constants of the policy's loss.

  They are those of table 1, but for lambda, where the paper seems to say 0.
  """
  discount: float = 0.99
  td_lambda: float = 1.0
  baseline_cost: float = 1.0


_DEFAULTS = LossSettings()


def by_worker(values: Any) -> Any:
  """Turns arrays [R, W, ...] into [W, R, ...]."""
  return tf.nest.map_structure(
      lambda x: tf.transpose(x, [1, 0, *range(2, len(x.shape))]), values)


class PolicyPrograms:
  """Acts, plays whole rollouts, and computes the policy's gradients."""

  def __init__(self, policy: functional.Network, world: worlds.World,
               settings: LossSettings = _DEFAULTS,
               auxiliary_loss: auxiliary_lib.AuxiliaryLoss | None = None,
               averaged: bool = False):
    """Makes the programs of a policy; each is compiled when it is first used.

    Args:
      policy: A network whose output is a `networks.PolicyOutput`.
      world: The world that is played.
      settings: The constants of the policy's loss.
      auxiliary_loss: A loss that is added to the policy's.
      averaged: Whether there is one gradient of the policy, that of the mean
        loss of the workers that played. In A3C each worker has its own.
    """
    self.world = world
    self._policy = policy
    self._settings = settings
    self._auxiliary_loss = auxiliary_loss
    self._averaged = averaged

  @xla_function
  def act(self, theta: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor,
          gumbel: tf.Tensor) -> tf.Tensor:
    """Chooses an action for each worker.

    Args:
      theta: float32 [P].
      observations: uint8 [W, ...].
      codes: int32 [W, slots].
      gumbel: Noise, float32 [W, actions].

    Returns:
      The actions, int32 [W].
    """
    output, _ = self._policy.at(theta)(observations, codes)
    return tf.argmax(output.logits + gumbel, axis=-1, output_type=tf.int32)

  @xla_function
  def play(
      self, theta: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor,
      truth_codes: tf.Tensor, gumbel: tf.Tensor, mask: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, functional.Activations]:
    """Plays a whole rollout, in a world with its rules in TensorFlow.

    Args:
      theta: float32 [P].
      observations: s_0 of each worker, uint8 [W, size].
      codes: int32 [W, slots].
      truth_codes: The instructions as the ground truth reads them, int32
        [W, truth slots].
      gumbel: Noise, float32 [R, W, actions].
      mask: bool [R, W]; where it is False, the state does not change.

    Returns:
      Observations uint8 [R + 1, W, ...]; actions int32 [R, W]; whether
      s_1 ... s_R are goal states, bool [R, W]; and `Rollout.activations`.
    """
    rules, pi = self.world.compiled, self._policy.at(theta)
    assert rules is not None

    def step(carry, inputs):
      state, *_ = carry
      gumbel_t, alive = inputs
      output, activations = pi(state, codes)
      actions = tf.argmax(
          output.logits + gumbel_t, axis=-1, output_type=tf.int32)
      following = tf.where(
          alive[:, None], rules.step(state, actions), state)
      return following, actions, activations

    # `tf.scan` wants a first carry with the shapes of what a step returns.
    # `step` reads only the state in it, so the rest is zeros.
    _, *like = step((observations,), (gumbel[0], mask[0]))
    start = observations, *tf.nest.map_structure(tf.zeros_like, like)
    states, actions, activations = tf.scan(step, (gumbel, mask), start)
    return (tf.concat([observations[None], states], 0), actions,
            rules.satisfied(truth_codes, states), activations)

  def gradients(
      self, theta: tf.Tensor, rollout: rollouts.Rollout, rewards: np.ndarray,
      entropy_weight: float, samples: auxiliary_lib.Samples | None = None
  ) -> tuple[dict[int | None, tf.Tensor], dict[str, tf.Tensor]]:
    """Computes line 7 of Algorithm 2: a gradient for each worker that played.

    Args:
      theta: The parameters that have played the rollout, float32 [P].
      rollout: The rollout.
      rewards: Its rewards, float32 [R, W], 0 where it is masked.
      entropy_weight: alpha.
      samples: What the auxiliary loss, if there is one, is computed on.

    Returns:
      A dict from the index of each worker that played to its gradient, float32
      [P]; if gradients are averaged, {None: the one gradient}. And each term of
      the loss by name, float32 [W]. These are metrics, and means over the steps
      or the samples of a worker; the loss itself sums over steps.
    """
    # The truth has no part in training. New texts would retrace the program.
    arguments = (theta, rollout._replace(instructions=(), truth=None), rewards,
                 np.float32(entropy_weight), samples)
    if self._averaged:
      gradient, terms = self._mean_gradient(*arguments)
      return {None: gradient}, terms
    gradients, terms = self._worker_gradients(*arguments)
    return {int(w): gradients[w] for w in rollout.active}, terms

  @xla_function
  def _worker_gradients(self, theta, rollout, rewards, entropy_weight, samples):
    """Returns the gradient of each worker's loss, W times [P], and terms."""
    return self._policy.gradients(
        theta, *self._inputs(rollout, samples),
        lambda output: self._losses(
            output, rollout, rewards, entropy_weight, samples),
        by_worker(rollout.activations))

  @xla_function
  def _mean_gradient(self, theta, rollout, rewards, entropy_weight, samples):
    """Returns the gradient of the active workers' mean loss, and terms."""
    def loss(output):
      worker_losses, terms = self._losses(
          output, rollout, rewards, entropy_weight, samples)
      active = tf.reduce_max(rollout.mask, 0)
      return (tf.reduce_sum(active * worker_losses) / tf.reduce_sum(active),
              terms)

    return self._policy.gradient(
        theta, *self._inputs(rollout, samples), loss,
        by_worker(rollout.activations))

  def _inputs(self, rollout: rollouts.Rollout,
              samples: auxiliary_lib.Samples | None
             ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the inputs of the policy that each worker's loss is made of.

    They are s_0 ... s_R, and then the worker's samples: observations uint8
    [W, R + 1 + K, ...] and codes int32 [W, R + 1 + K, slots].
    """
    states = by_worker(rollout.observations)
    codes = tf.tile(rollout.codes[:, None], [1, states.shape[1], 1])
    if samples is not None:
      states = tf.concat([states, samples.observations], 1)
      codes = tf.concat([codes, samples.codes], 1)
    return states, codes

  def _losses(
      self, output: networks.PolicyOutput, rollout: rollouts.Rollout,
      rewards: tf.Tensor, entropy_weight: tf.Tensor,
      samples: auxiliary_lib.Samples | None
  ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes each worker's loss and its terms, float32 [W].

    A worker's loss is the sum over its rollout of A3C's loss, by which it
    maximises equation 1. If there is an auxiliary loss, its mean over the
    worker's samples, times its cost, is added. `output` is the policy's for
    what `_inputs` returns, [W, R + 1 + K, ...].
    """
    settings, mask = self._settings, rollout.mask
    length = mask.shape[0]  # R
    # Discounts of 1 pass the value of the last state back through masked steps,
    # so a masked step has the return of the step after it.
    discounts = tf.where(mask > 0, settings.discount * rollout.discounts, 1.0)
    steps = tf.reduce_sum(mask, 0)
    baseline = tf.transpose(output.baseline[:, :length + 1])
    a3c = losses.actor_critic(
        tf.transpose(output.logits[:, :length], [1, 0, 2]), baseline[:-1],
        rollout.actions,
        losses.returns(rewards, discounts, baseline[1:], settings.td_lambda))
    sums = {
        'policy_loss': tf.reduce_sum(mask * a3c.policy, 0),
        'baseline_loss': tf.reduce_sum(mask * a3c.baseline, 0),
        'entropy': tf.reduce_sum(mask * a3c.entropy, 0),
    }
    total = (
        sums['policy_loss'] + settings.baseline_cost * sums['baseline_loss'] -
        entropy_weight * sums['entropy'])
    terms = {
        name: value / tf.maximum(steps, 1.0) for name, value in sums.items()}
    if samples is not None:
      auxiliary = self._auxiliary_loss
      assert auxiliary is not None
      of_samples = tf.nest.map_structure(lambda x: x[:, length + 1:], output)
      mean = tf.reduce_mean(auxiliary.function(of_samples, samples.labels), 1)
      terms[f'{auxiliary.name}_loss'] = mean
      total += auxiliary.cost * mean
    return total, terms


class DiscriminatorPrograms:
  """Computes D's outputs, the rewards made of them, and D's gradient.

  Attributes:
    reward_scale: The factor of all rewards, also of the ground truth's.
    reward_threshold: D accepts a state if D(c, s) exceeds this.
  """

  def __init__(self, discriminator: functional.Network,
               reward_form: str = 'decision', reward_scale: float = 0.1,
               reward_threshold: float = 0.5):
    """Makes the programs of D; each is compiled when it is first used.

    Args:
      discriminator: A network whose output is D's logits.
      reward_form: One of `rewards.FORMS`.
      reward_scale: The factor of all rewards.
      reward_threshold: D accepts a state if D(c, s) exceeds this.
    """
    self.reward_scale = reward_scale
    self.reward_threshold = reward_threshold
    self._discriminator = discriminator
    self._reward_form = reward_form

  @xla_function
  def rewards(self, phi: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor
             ) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the modelled rewards of s_1 ... s_R: line 6 of Algorithm 2.

    Args:
      phi: float32 [P].
      observations: s_0 ... s_R of each worker, uint8 [R + 1, W, ...].
      codes: int32 [W, slots].

    Returns:
      The rewards, float32 [R, W], and D's decisions, bool [R, W].
    """
    states = observations[1:]
    length, width = states.shape[:2]
    pairs = tf.reshape(states, [length * width, *states.shape[2:]])
    logits, _ = self._discriminator.at(phi)(pairs, tf.tile(codes, [length, 1]))
    logits = tf.reshape(logits, [length, width])
    return (rewards_lib.modelled(logits, self._reward_form, self.reward_scale,
                                 self.reward_threshold),
            rewards_lib.decisions(logits, self.reward_threshold))

  @xla_function
  def logits(self, phi: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor
            ) -> tf.Tensor:
    """Computes D's logits of N pairs of instruction and state, float32 [N].

    Observations are uint8 [N, ...], codes int32 [N, slots].
    """
    logits, _ = self._discriminator.at(phi)(observations, codes)
    return logits

  @xla_function
  def decisions(self, phi: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor
               ) -> tf.Tensor:
    """Computes whether D accepts N pairs of instruction and state, bool [N].

    Observations are uint8 [N, ...], codes int32 [N, slots].
    """
    logits, _ = self._discriminator.at(phi)(observations, codes)
    return rewards_lib.decisions(logits, self.reward_threshold)

  def probabilities(self, phi: tf.Tensor, observations: np.ndarray,
                    codes: np.ndarray) -> np.ndarray:
    """Computes D(c, s) of N pairs, float32 [N], without compiling anything.

    Observations are uint8 [N, ...], codes int32 [N, slots].
    """
    logits, _ = self._discriminator.at(phi)(
        tf.constant(observations), tf.constant(codes))
    return tf.sigmoid(logits).numpy()

  @xla_function
  def gradient(
      self, phi: tf.Tensor, goals: rollouts.Pairs,
      candidates: replay.Candidates
  ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes lines 9 and 10 of Algorithm 1 and the gradient of line 11.

    N negatives, as many as there are goal examples, are chosen from the
    candidates.

    Returns:
      The gradient of the loss, float32 [P]; and by name the loss (the mean over
      the 2 N examples), the share of goals that D accepts and the share of
      negatives that it rejects, float32 [].
    """
    count = goals.codes.shape[0]
    negatives, activations = self._negatives(phi, candidates, count)
    # Negatives from B come first: `activations` belong to the first examples.
    observations = tf.concat([negatives.observations, goals.observations], 0)
    codes = tf.concat([negatives.codes, goals.codes], 0)
    is_goal = tf.range(2 * count) >= count

    def loss(output):  # [1, 2 N]
      logits = output[0]
      value = tf.reduce_mean(losses.discriminator(logits, is_goal))
      return value, (logits, value)

    # All examples are those of one worker.
    gradient, (logits, value) = self._discriminator.gradient(
        phi, observations[None], codes[None], loss,
        tf.nest.map_structure(lambda x: x[None], activations))
    correct = tf.cast(rewards_lib.decisions(
        logits, self.reward_threshold) == is_goal, tf.float32)
    return gradient, {
        'discriminator_loss': value,
        'goals_accepted': tf.reduce_mean(correct[count:]),
        'negatives_rejected': tf.reduce_mean(correct[:count]),
    }

  def _negatives(
      self, phi: tf.Tensor, candidates: replay.Candidates, count: int
  ) -> tuple[rollouts.Pairs, functional.Activations]:
    """Chooses `count` negatives: line 9.

    Returns:
      The negatives: first those from B, then the unrated ones. And D's
      activations for those from B, or () if it had to rate none.
    """
    pairs, num_counted, unrated = candidates
    if unrated is not None:
      count -= unrated.codes.shape[0]
    if pairs.codes.shape[0] == count:  # Rho is 1: none is dropped.
      kept, activations = pairs, ()
    else:
      logits, activations = self._discriminator.at(phi)(
          pairs.observations, pairs.codes)
      if num_counted is not None:
        # The pairs after these get the largest number, so that they are never
        # among the lowest.
        counts = tf.range(pairs.codes.shape[0]) < num_counted
        logits = tf.where(counts, logits, logits.dtype.max)
      lowest = losses.lowest_rated(logits, count)
      kept, activations = tf.nest.map_structure(
          lambda x: tf.gather(x, lowest), (pairs, activations))
    if unrated is not None:
      kept = rollouts.Pairs(
          *(tf.concat(parts, 0) for parts in zip(kept, unrated)))
    return kept, activations
