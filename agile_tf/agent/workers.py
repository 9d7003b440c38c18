"""The two kinds of workers: Algorithms 1 and 2 of appendix A.

Each `iterate` is one pass of its algorithm's inner loop; a run calls it again
and again (line 1), from one thread or from sixteen. Comments give the line
numbers of the paper's boxes. The actor knows how many steps of its episode are
left (lines 3, 4 and 13; in Algorithm 2, 9). T is the length of a rollout, the
boxes' R. Here D is the discriminator only: the data set that the paper writes
as a calligraphic D is called the goal examples.

A worker object may play several of the paper's workers as rows of one batch.
Each row is a separate worker: it has its own episodes and random generator, and
its gradient is clipped and applied separately.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import actors
from agile_tf.agent import optimizers
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import worlds


class Parameters(NamedTuple):
  """What an iteration reads, and others may update meanwhile."""
  theta: tf.Tensor  # float32 [P]
  phi: tf.Tensor | None  # Without a discriminator, as in A3C, None.


class Iteration(NamedTuple):
  """The rollout and the metrics of one iteration."""
  rollout: rollouts.Rollout
  metrics: dict[str, float]  # Means over the iteration.
  # Of a rewarded rollout: which states counted as goal states, bool [T, W].
  decisions: np.ndarray | None = None


def num_candidates(count: int, rho: float) -> int:
  """Returns how many pairs are drawn from B for `count` negatives.

  The paper's box has BS / (2 (1 - rho)), which contradicts its next line.
  """
  return round(count / rho)


class AnticipatedNegatives:
  """Line 8: draws BS / (2 rho) pairs from B, from which line 9 chooses."""

  def __init__(self, buffer: replay.ReplayBuffer, count: int, rho: float):
    """Takes B, BS / 2 and the anticipated negative rate."""
    self._buffer = buffer
    self._drawn = num_candidates(count, rho)

  @property
  def ready(self) -> bool:
    """Whether B holds as much as one draw."""
    return len(self._buffer) >= self._drawn

  def draw(self, rng: np.random.Generator, step: int) -> rollouts.Pairs:
    """Returns what to choose from, after `step` policy steps."""
    del step
    return self._buffer.sample(rng, self._drawn)


class DiscriminatorWorker:
  """Algorithm 1: trains D on goal examples and on states of the policy."""

  def __init__(self, actor: actors.Actor,
               discriminator: optimizers.SharedParameters,
               programs: programs_lib.Programs,
               goal_examples: worlds.GoalExamples,
               buffer: replay.ReplayBuffer, negatives: AnticipatedNegatives,
               batch_size: int, learning_rate: float,
               rng: np.random.Generator):
    """Takes the phi that it updates as `discriminator`."""
    self.actor = actor
    self.rng = rng
    self._discriminator = discriminator
    self._programs = programs
    self._goal_examples = goal_examples
    self._buffer = buffer  # B
    self._negatives = negatives
    self._batch_size = batch_size  # BS
    self._learning_rate = learning_rate

  def iterate(self, parameters: Parameters, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop, lines 4 to 13, after `step` steps."""
    # 2, 5: Sample an instance where an episode has ended; act.
    rollout = self.actor.play(parameters.theta)
    # 6: Add the (c, s) pairs to B, and remove old ones.
    self._buffer.add(*rollout.pairs())
    if not self._negatives.ready:  # B is still too small for line 8.
      return Iteration(rollout, {})
    # 7: Sample BS / 2 goal examples, the positive ones.
    goals = self._goal_examples.sample(self.rng, self._batch_size // 2)
    # 8: Sample BS / (2 rho) examples from B.
    candidates = self._negatives.draw(self.rng, step)
    # 9 to 11: Reject the top 1 - rho of them by D; compute the loss and its
    # gradient.
    gradient, metrics = self._programs.discriminator_gradients(
        parameters.phi, goals, candidates)
    # 11, 12: Update phi, which all workers read.
    norms = self._discriminator.apply(self._learning_rate, gradient)
    values = {name: float(value) for name, value in metrics.items()}
    values['discriminator_gradient_norm'] = float(norms[0])
    _require_finite(values, rows=[0])
    return Iteration(rollout, values)


class PolicyWorker:
  """Algorithm 2: trains the policy on D's decisions or on the ground truth."""

  def __init__(self, actor: actors.Actor, policy: optimizers.SharedParameters,
               programs: programs_lib.Programs,
               auxiliary: replay.RewardPrediction | None,
               buffer: replay.ReplayBuffer | None,
               entropy_weight: Callable[[int], float],
               learning_rate: Callable[[int], float]):
    """Takes the theta that it updates as `policy`.

    `auxiliary` draws the samples of its auxiliary loss. The buffer is B if
    policy workers write to it, and otherwise None. alpha and the rate of
    theta's updates may change with the policy steps.
    """
    self.actor = actor
    self.auxiliary = auxiliary
    self._policy = policy
    self._programs = programs
    self._buffer = buffer
    self._entropy_weight = entropy_weight  # alpha
    self._learning_rate = learning_rate

  def iterate(self, parameters: Parameters, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop, lines 4 to 9, for each row.

    Without phi the reward is the ground truth.
    """
    # 2, 5: Sample an instance where an episode has ended; act.
    theta, phi = parameters
    rollout = self.actor.play(theta)
    if not rollout.steps:  # All rows sat out their first rollout.
      return Iteration(rollout, {})
    if self._buffer is not None:
      self._buffer.add(*rollout.pairs())
    # 6: Compute the rewards.
    if phi is None:
      rewards = self._programs.reward_scale * rollout.true_rewards
      decisions = rollout.true_rewards > 0
    else:
      rewards, decisions = (x.numpy() for x in self._programs.reward(
          phi, rollout.observations, rollout.codes))
    # 7: Compute the gradient of the RL objective, at the theta that acted.
    replayed = None
    if self.auxiliary is not None:
      replayed = self.auxiliary.exchange(rollout, decisions)
    gradients, terms = self._programs.policy_gradients(
        theta, rollout, rewards * rollout.mask,
        self._entropy_weight(step), replayed)
    # 7, 8: Update theta, which all workers read, once for each active row.
    norms = self._policy.apply(self._learning_rate(step), *gradients)
    values = {
        name: value.numpy()[rollout.active] for name, value in terms.items()}
    values['policy_gradient_norm'] = norms.numpy()
    _require_finite(values, rows=rollout.active)
    return Iteration(rollout, {
        name: float(value.mean()) for name, value in values.items()},
        decisions)


class NumericsError(ArithmeticError):
  """A loss or a gradient norm that is not finite, and whose it is."""

  def __init__(self, name: str, row: int | None, value: float):
    super().__init__(f'{name} is {value}')
    self.name = name
    self.row = row  # Its worker's row in the batch; None: shared by all.
    self.value = value


def _require_finite(values: Mapping[str, Any], rows: Sequence[int] | np.ndarray
                   ) -> None:
  """Raises NumericsError for the first of named values that is not finite.

  Each is float32 [N], for the N workers in `rows`, or [1] if they share it.
  """
  for name, value in values.items():
    value = np.atleast_1d(np.asarray(value))
    bad = np.flatnonzero(~np.isfinite(value))
    if len(bad):
      row = int(rows[bad[0]]) if len(value) == len(rows) else None
      raise NumericsError(name, row, float(value[bad[0]]))
