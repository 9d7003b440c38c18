"""The compiled programs: all that the algorithms compute in TensorFlow.

Each is a pure function of a snapshot of parameters and of arrays. It may return
gradients; `optimizers` then updates the shared parameters. A rollout has T
steps of W workers. A network has P parameters: theta and phi are float32 [P].
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import losses
from agile_tf.agent import networks
from agile_tf.agent import replay
from agile_tf.agent import rewards
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.agent.fast import functional

compiled = functools.partial(tf.function, autograph=False, jit_compile=True)


class Loss(NamedTuple):
  """The weights of the policy's loss: as in table 1, and our lambda."""
  discount: float = 0.99
  td_lambda: float = 1.0
  baseline_cost: float = 1.0
  auxiliary_cost: float = 1.0  # Of reward prediction.


_PAPER = Loss()


def _flatten(x: tf.Tensor) -> tf.Tensor:
  """Folds the two leading dimensions into one."""
  return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])


class Programs:
  """The programs of a pair of networks; all threads share them."""

  def __init__(self, policy: functional.Network,
               discriminator: functional.Network, world: worlds.World,
               loss: Loss = _PAPER, reward_form: str = 'decision',
               reward_scale: float = 0.1):
    """Takes the networks, and one of `rewards.FORMS`."""
    self.world = world
    self.reward_scale = reward_scale
    self._policy = policy  # Applies networks.PolicyNetwork.
    self._discriminator = discriminator  # Applies networks.Discriminator.
    self._loss = loss
    self._form = reward_form

  @compiled
  def act(self, theta: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor,
          gumbel: tf.Tensor) -> tf.Tensor:
    """Chooses an action for each worker, int32 [W].

    From observations uint8 [W, ...], codes int32 [W, slots] and noise float32
    [W, actions].
    """
    output = self._policy.at(theta)(self.world.images(observations), codes)
    return tf.argmax(output.logits + gumbel, axis=-1, output_type=tf.int32)

  @compiled
  def play(
      self, theta: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor,
      truth_codes: tf.Tensor, gumbel: tf.Tensor, mask: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tuple[tf.Tensor, ...]]:
    """Plays a whole rollout, in a world with its rules in TensorFlow.

    As `act`, but with noise [T, W, actions]. Where the mask, bool [T, W], is
    False, the state does not change. `truth_codes` are for the ground truth.

    Returns:
      Observations uint8 [T + 1, W, ...]; actions int32 [T, W]; whether
      s_1 ... s_T are goal states, bool [T, W]; and `Rollout.results`.
    """
    rules, pi = self.world.compiled, self._policy.at(theta)
    assert rules is not None

    def step(carry, inputs):
      state, *_ = carry
      gumbel_t, alive = inputs
      output, results = pi.record(rules.images(state), codes)
      actions = tf.argmax(
          output.logits + gumbel_t, axis=-1, output_type=tf.int32)
      following = tf.where(
          alive[:, None], rules.step(state, actions), state)
      return following, actions, results

    # `step` reads only the state; the rest of the carry just needs its shapes.
    _, *shapes = step((observations,), (gumbel[0], mask[0]))
    start = observations, *tf.nest.map_structure(tf.zeros_like, shapes)
    states, actions, results = tf.scan(step, (gumbel, mask), start)
    return (tf.concat([observations[None], states], 0), actions,
            rules.satisfied(truth_codes, states), tuple(results))

  @compiled
  def reward(self, phi: tf.Tensor, observations: tf.Tensor, codes: tf.Tensor
            ) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the modelled rewards of s_1 ... s_T: line 6 of Algorithm 2.

    From observations uint8 [T + 1, W, ...] and codes int32 [W, slots] to the
    rewards, float32 [T, W], and D's decisions, bool [T, W].
    """
    states = observations[1:]
    length, width = states.shape[:2]
    logits = tf.reshape(self._discriminator.at(phi)(
        self.world.images(_flatten(states)), tf.tile(codes, [length, 1])),
                        [length, width])
    return (rewards.modelled(logits, self._form, self.reward_scale),
            rewards.decisions(logits))

  def policy_gradients(
      self, theta: tf.Tensor, rollout: rollouts.Rollout,
      values: np.ndarray, entropy_weight: float,
      replayed: replay.Replayed | None = None
  ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """Computes line 7 of Algorithm 2: a gradient for each worker that played.

    theta has played the rollout, `values` are its rewards, float32 [T, W], 0
    where masked, and the entropy's weight is alpha.

    Returns:
      The gradients, float32 [P] each, of the workers `rollout.active`; and the
      terms of the loss by name, float32 [W], each a mean over its steps or its
      replayed samples.
    """
    gradients, terms = self._policy_gradients(
        theta, rollout._replace(instructions=()), values,
        np.float32(entropy_weight), replayed)
    if len(gradients) > 1:  # Otherwise it is of one worker, or the mean.
      gradients = [gradients[w] for w in rollout.active]
    return gradients, terms

  @compiled
  def _policy_gradients(self, theta, rollout, values, entropy_weight, replayed):
    width = rollout.mask.shape[1]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      # A copy for each worker, so that each has its own gradient.
      parameters = tf.tile(theta[None], [width, 1]) if width > 1 else theta
      tape.watch(parameters)
      total, terms = self._losses(
          parameters, rollout, values, entropy_weight, replayed)
    return tf.unstack(tf.reshape(
        tape.gradient(total, parameters), [width, -1])), terms

  def _losses(
      self, parameters: tf.Tensor, rollout: rollouts.Rollout,
      values: tf.Tensor, entropy_weight: tf.Tensor,
      replayed: replay.Replayed | None
  ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes each worker's loss and its terms, float32 [W].

    A worker's loss is the sum of A3C's loss (equation 1) over its rollout, plus
    the mean loss of reward prediction over its replayed samples. `parameters`
    is theta, [P] or [W, P] (see `fast.rows`).
    """
    loss, mask = self._loss, rollout.mask
    length, width = mask.shape
    # One pass for all workers, whose states stand one worker after another.
    states = tf.transpose(
        rollout.observations,
        [1, 0, *range(2, len(rollout.observations.shape))])
    codes = tf.tile(rollout.codes[:, None], [1, length + 1, 1])
    if replayed is not None:
      states = tf.concat([states, replayed.observations], 1)
      codes = tf.concat([codes, replayed.codes], 1)
    # A masked step has the return of the step after it.
    discounts = tf.where(mask > 0, loss.discount * rollout.discounts, 1.0)
    output = self._policy.at(parameters)(
        self.world.images(_flatten(states)), _flatten(codes), known=[
            tf.transpose(x, [1, 2, 3, 0, 4]) for x in rollout.results])
    # Of each worker: s_0 ... s_T, and then its replayed samples.
    output = tf.nest.map_structure(
        lambda x: tf.reshape(x, [width, -1, *x.shape[1:]]), output)
    steps = tf.reduce_sum(mask, 0)
    baseline = tf.transpose(output.baseline[:, :length + 1])
    terms = losses.actor_critic(
        tf.transpose(output.logits[:, :length], [1, 0, 2]), baseline[:-1],
        rollout.actions,
        losses.returns(values, discounts, baseline[1:], loss.td_lambda))
    sums = {
        'policy_loss': tf.reduce_sum(mask * terms.policy, 0),
        'baseline_loss': tf.reduce_sum(mask * terms.baseline, 0),
        'entropy': tf.reduce_sum(mask * terms.entropy, 0),
    }
    total = (
        sums['policy_loss'] + loss.baseline_cost * sums['baseline_loss'] -
        entropy_weight * sums['entropy'])
    extras = {
        name: value / tf.maximum(steps, 1.0) for name, value in sums.items()}
    if replayed is not None:
      name, extras[name] = self._auxiliary(
          tf.nest.map_structure(lambda x: x[:, length + 1:], output), replayed)
      total += loss.auxiliary_cost * extras[name]
    return total, extras

  def _auxiliary(self, output: networks.PolicyOutput, replayed: replay.Replayed
                ) -> tuple[str, tf.Tensor]:
    """Returns the name and the mean, [W], of the loss of replayed samples.

    The outputs are of these, [W, K, ...].
    """
    return 'reward_prediction_loss', tf.reduce_mean(
        losses.reward_prediction(output.reward_logits, replayed.positive), 1)

  @compiled
  def discriminator_gradients(
      self, phi: tf.Tensor, goals: rollouts.Pairs, candidates: rollouts.Pairs
  ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes lines 9 to 11 of Algorithm 1 from N goal examples.

    Of the candidates, drawn from B, the N that D rates lowest are negatives.

    Returns:
      The gradient of the loss, float32 [P]; and by name the loss (the mean over
      the 2 N examples), the share of goals that D accepts and the share of
      negatives that it rejects, float32 [].
    """
    count = goals.codes.shape[0]
    negatives, known = self._negatives(phi, candidates, count)
    images = self.world.images(
        tf.concat([negatives.observations, goals.observations], 0))
    is_goal = tf.range(2 * count) >= count
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(phi)
      logits = self._discriminator.at(phi)(
          images, tf.concat([negatives.codes, goals.codes], 0), known=known)
      loss = tf.reduce_mean(losses.discriminator(logits, is_goal))
    correct = tf.cast((logits > 0) == is_goal, tf.float32)
    return tape.gradient(loss, phi), {
        'discriminator_loss': loss,
        'goals_accepted': tf.reduce_mean(correct[count:]),
        'negatives_rejected': tf.reduce_mean(correct[:count]),
    }

  def _negatives(self, phi: tf.Tensor, candidates: rollouts.Pairs, count: int
                ) -> tuple[rollouts.Pairs, list[tf.Tensor]]:
    """Rejects all but `count` of the candidates: line 9.

    Returns:
      The `count` that stay, and the results of D's convolutions on them: an
      empty list if nothing was rejected.
    """
    if candidates.codes.shape[0] == count:  # With rho = 1 nothing is rejected.
      return rollouts.Pairs(candidates.codes, candidates.observations), []
    logits, results = self._rate(phi, candidates)
    kept = losses.anticipated_negatives(logits, count)
    return rollouts.Pairs(
        tf.gather(candidates.codes, kept),
        tf.gather(candidates.observations, kept)
        ), [tf.gather(x, kept, axis=2)[:, :, None] for x in results]

  def _rate(self, phi: tf.Tensor, candidates: rollouts.Pairs
           ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Returns D's logits of candidates, and the results of its convolutions."""
    return self._discriminator.at(phi).record(
        self.world.images(candidates.observations), candidates.codes)
