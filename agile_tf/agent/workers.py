"""The two kinds of workers: Algorithms 1 and 2 of appendix A.

Each `iterate` is one pass of its algorithm's inner loop; a run calls it
repeatedly, from one thread or from sixteen. Comments give the line numbers of
the paper's boxes. Here D is the discriminator only: the data set that the paper
writes as a calligraphic D is called the goal examples.

A worker object may play several of the paper's workers as rows of one batch.
Each row is a separate worker: it has its own episodes and random generator, and
its gradient is clipped and applied separately.
"""

from typing import NamedTuple, Protocol

import numpy as np

from agile_tf.agent import numerics
from agile_tf.agent import optimizers
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import signatures
from agile_tf.agent import worlds


class Iteration(NamedTuple):
  """The rollout and the metrics of one iteration."""
  rollout: rollouts.Rollout
  metrics: dict[str, float]  # Means over the iteration.
  # bool [T, W], which states counted as goal states; None if the
  # rollout was not rewarded.
  decisions: np.ndarray | None


class Annealed(NamedTuple):
  """A number that changes linearly with the policy steps.

  The paper's are constant.
  """
  last: float
  first: float = 1.0  # At step 0.
  steps: int = 0  # Policy steps until it is `last`; 0 for a constant.

  def at(self, step: int) -> float:
    """Returns its value at a policy step."""
    if step >= self.steps:
      return self.last
    return self.first + (self.last - self.first) * step / self.steps


class DiscriminatorWorker:
  """Algorithm 1: trains D on goal examples and on states of the policy."""

  def __init__(self, actor: rollouts.Actor,
               policy: optimizers.SharedParameters,
               discriminator: optimizers.SharedParameters,
               gradients: signatures.DiscriminatorGradients,
               goal_examples: worlds.GoalExamples,
               buffer: replay.ReplayBuffer, batch_size: int,
               num_candidates: int,
               anticipated_negative_rate: Annealed,
               rng: np.random.Generator, num_mismatched: int = 0):
    """Makes a worker from its parts.

    Args:
      actor: Plays the worker's own episodes.
      policy: theta.
      discriminator: phi.
      gradients: From `gradients.discriminator_gradients_program`.
      goal_examples: Where positive examples are drawn.
      buffer: B, where negative examples are drawn.
      batch_size: BS.
      num_candidates: Pairs to draw from B, enough for the smallest rho.
      anticipated_negative_rate: rho.
      rng: Draws the examples.
      num_mismatched: How many of the BS / 2 negatives are goal examples with
        the instruction of another one; the others are from B.
    """
    self.actor = actor
    self.rng = rng
    self._policy = policy
    self._discriminator = discriminator
    self._gradients = gradients
    self._goal_examples = goal_examples
    self._buffer = buffer
    self._num_goals = batch_size // 2
    # The paper's box has BS / (2 (1 - rho)), which contradicts its next line.
    self._rate = anticipated_negative_rate
    self._num_mismatched = num_mismatched
    self._num_kept = batch_size // 2 - num_mismatched
    self._num_candidates = num_candidates

  def iterate(self, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop, lines 4 to 13.

    Args:
      step: The policy steps so far, on which rho may depend.
    """
    # 2, 5: Sample an instance where an episode has ended; act.
    rollout = self.actor.play(self._policy.snapshot())
    # 6: Add the (c, s) pairs to B, and remove old ones.
    self._buffer.add(*rollout.pairs())
    if len(self._buffer) < self._num_candidates:
      return Iteration(rollout, {}, None)
    # 7: Sample BS / 2 goal examples, the positive ones.
    goals = self._goal_examples.sample(self.rng, self._num_goals)
    # 8: Sample BS / (2 rho) examples from B.
    candidates = self._buffer.sample(self.rng, self._num_candidates)
    # 9, 10: Reject the top 1 - rho of them by D; compute the loss.
    phi = self._discriminator.snapshot()
    drawn = round(self._num_kept / self._rate.at(step))
    mismatched = None
    if self._num_mismatched:
      mismatched = self._goal_examples.sample_mismatched(
          self.rng, self._num_mismatched)
    gradient, metrics = self._gradients(
        phi, goals, candidates, np.int32(drawn), mismatched)
    # 11, 12: Update phi, which all workers read.
    norms = self._discriminator.apply(gradient)
    values = {name: float(value) for name, value in metrics.items()}
    values['discriminator_gradient_norm'] = float(norms[0])
    numerics.require_finite(values, rows=[0])
    return Iteration(rollout, values, None)


class RewardFunction(Protocol):
  """Line 6: `rewards.Modelled` for AGILE, `rewards.GroundTruth` for A3C."""

  def __call__(self, rollout: rollouts.Rollout) -> rollouts.Reward:
    """Returns the reward of a rollout."""


class PolicyWorker:
  """Algorithm 2: trains the policy on the reward that it is given."""

  def __init__(self, actor: rollouts.Actor,
               policy: optimizers.SharedParameters,
               reward: RewardFunction,
               gradients: signatures.PolicyGradients,
               predictions: 'RewardPrediction | None',
               buffer: replay.ReplayBuffer | None,
               entropy_weight: Annealed, learning_rate: Annealed,
               repeated_share: float = 0.0):
    """Makes a worker from its parts.

    Args:
      actor: Plays the worker's episodes.
      policy: theta.
      reward: Computes the reward of a rollout.
      gradients: From `gradients.policy_gradients_program`.
      predictions: The replay of reward prediction; None without it.
      buffer: B if policy workers write to it, else None.
      entropy_weight: alpha.
      learning_rate: Of theta's updates.
      repeated_share: The share of failed episodes that begin again: of those
        whose last state did not count as a goal state. The paper has none.
    """
    self.actor = actor
    self.predictions = predictions
    self._policy = policy
    self._reward = reward
    self._gradients = gradients
    self._buffer = buffer
    self._entropy_weight = entropy_weight
    self._learning_rate = learning_rate
    self._repeated_share = repeated_share

  def iterate(self, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop, lines 4 to 9, for each row.

    Args:
      step: The policy steps so far, on which alpha and the learning rate may
        depend.
    """
    # 2, 5: Sample an instance where an episode has ended; act.
    theta = self._policy.snapshot()
    rollout = self.actor.play(theta)
    if not rollout.steps:  # All rows sat out their first rollout.
      return Iteration(rollout, {}, None)
    if self._buffer is not None:
      self._buffer.add(*rollout.pairs())
    # 6: Compute the rewards.
    rewards, decisions = self._reward(rollout)
    rewards = rewards * rollout.mask
    if self._repeated_share:
      ended = np.flatnonzero(rollout.ended)
      self.actor.repeat(
          ended[~rollout.successes(decisions)], self._repeated_share)
    # 7: Compute the gradient of the RL objective, at the theta that acted.
    replayed = None
    if self.predictions is not None:
      replayed = self.predictions.exchange(rollout, decisions)
    gradients, terms = self._gradients(
        theta, rollout.observations, rollout.codes, rollout.actions, rewards,
        rollout.discounts, rollout.mask,
        np.float32(self._entropy_weight.at(step)), rollout.results, replayed)
    # 7, 8: Update theta, which all workers read, once for each active row.
    # (An averaged gradient updates theta once.)
    active = rollout.active
    if len(gradients) == len(rollout.codes):
      gradients = [gradients[w] for w in active]
    norms = self._policy.apply(
        *gradients, learning_rate=self._learning_rate.at(step))
    values = {name: value.numpy()[active] for name, value in terms.items()}
    values['policy_gradient_norm'] = norms.numpy()
    numerics.require_finite(values, rows=active)
    return Iteration(rollout, {
        name: float(value.mean()) for name, value in values.items()}, decisions)


class RewardPrediction:
  """The replay that reward prediction is trained on (appendix C).

  It contains the policy workers' instructions and states, and whether each
  state, or the one after it, was rewarded. Half of a balanced batch is drawn
  from those with a reward and half from the others, if both exist. A batch may
  also have goal examples, and as many with the instruction of another one,
  which the paper's has not.
  """

  def __init__(self, buffer: replay.ReplayBuffer, batch_size: int,
               rng: np.random.Generator,
               goal_examples: worlds.GoalExamples | None = None,
               num_goals: int = 0, of_next_state: bool = False,
               balanced: bool = True):
    """Makes a replay.

    Args:
      buffer: What all workers share.
      batch_size: Replayed states for each rollout of a worker.
      rng: Draws them.
      goal_examples: Where goal examples are drawn.
      num_goals: Goal examples for each rollout of a worker.
      of_next_state: Whether the reward to predict from a state is that of the
        next state.
      balanced: Whether batches are balanced, or drawn uniformly.
    """
    self.rng = rng
    self._of_next_state = of_next_state
    self._balanced = balanced
    self._buffer = buffer
    self._batch_size = batch_size
    self._goal_examples = goal_examples
    self._num_goals = num_goals

  def exchange(self, rollout: rollouts.Rollout,
               decisions: np.ndarray) -> signatures.Replayed:
    """Adds a rollout and returns a batch for each of its workers.

    Args:
      rollout: T steps of W workers.
      decisions: bool [T, W], which states counted as goal states.
    """
    codes, observations = rollout.pairs(before=self._of_next_state)
    self._buffer.add(codes, observations, rollout.played(decisions))
    batches = [self._batch() for _ in range(len(rollout.codes))]
    return signatures.Replayed(*(np.stack(parts) for parts in zip(*batches)))

  def _batch(self) -> tuple[np.ndarray, ...]:
    """Draws the codes, observations and labels of one worker."""
    batch = self._buffer.sample_with_rewards(
        self.rng, self._batch_size, self._balanced)
    if not self._num_goals:
      return batch
    assert self._goal_examples is not None
    goals = self._goal_examples.sample(self.rng, self._num_goals)
    others = self._goal_examples.sample_mismatched(self.rng, self._num_goals)
    labels = np.repeat([True, False], self._num_goals)
    return tuple(
        np.concatenate(parts) for parts in zip(
            batch, (*goals, labels[:self._num_goals]),
            (*others, labels[self._num_goals:])))
