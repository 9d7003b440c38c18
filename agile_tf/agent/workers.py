"""The two kinds of workers: Algorithms 1 and 2 of appendix A.

Each `iterate` is one pass of its algorithm's inner loop; where an episode has
ended, it first begins a new one (line 2). A run calls it again and again (line
1), from one thread or several. Comments give the line numbers of the paper's
boxes. Actors and environments know when an episode ends, so the lines that
count its steps have no code here: lines 3 and 4 of both algorithms, line 13 of
Algorithm 1 and line 9 of Algorithm 2. As in the boxes, R is the length of a
rollout; it is not the paper's objective R_pi. Here D is the discriminator only:
the data set that the paper writes as a calligraphic D is called the goal
examples.

`DiscriminatorLearner` has lines 6 to 12 of Algorithm 1, and needs no
environment: whatever plays episodes can hand it states. `DiscriminatorWorker`
has the rest. `agile_tf.RewardLearner` is another class: it takes images and
texts, and makes of them the observations and codes that this one takes.

One `PolicyWorker` or `DiscriminatorWorker` plays W of the paper's workers at
once; arrays have an axis of length W for them. Each of these has its own
episodes and its own random generator. In `PolicyWorker` each also has its own
gradient, which is clipped and applied separately, unless updates are averaged.
In `DiscriminatorWorker` they only fill B together: phi has one gradient, that
of a batch. P is the number of parameters of a network.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from agile_tf.agent import actors
from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import optimizers
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import worlds


class Snapshot(NamedTuple):
  """Both networks at the start of an iteration; updates go on meanwhile."""
  theta: tf.Tensor  # float32 [P]
  phi: tf.Tensor | None  # None if the ground truth is the reward.


class Iteration(NamedTuple):
  """The rollout and the metrics of one iteration."""
  rollout: rollouts.Rollout
  # The values by name; the policy's are means over the workers that played.
  metrics: dict[str, float]
  # Policy rollouts only: whether each state counted as a goal, bool [R, W].
  decisions: np.ndarray | None = None


class Negatives(Protocol):
  """Chooses the negatives of the discriminator's batches."""

  @property
  def largest_draw(self) -> int:
    """The most pairs that one batch draws from B."""

  def draw(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples,
           rng: np.random.Generator, step: int) -> replay.Candidates:
    """Draws the candidates for a batch's negatives.

    `step` is the number of policy steps so far.
    """


def num_candidates(count: int, rho: float) -> int:
  """Returns how many pairs are drawn from B for `count` negatives.

  The paper's box has BS / (2 (1 - rho)), which contradicts its next line.
  """
  return round(count / rho)


class AnticipatedNegatives(NamedTuple):
  """Line 8: draws BS / (2 rho) pairs from B, from which line 9 chooses."""
  kept: int  # BS / 2
  rho: float  # The anticipated negative rate: the share that is kept.

  @property
  def largest_draw(self) -> int:
    return num_candidates(self.kept, self.rho)

  def draw(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples,
           rng: np.random.Generator, step: int) -> replay.Candidates:
    del goals, step
    return replay.Candidates(buffer.sample(rng, self.largest_draw))


class DiscriminatorSettings(NamedTuple):
  """The settings of a `DiscriminatorLearner`."""
  batch_size: int  # BS; half of a batch are goal examples.
  learning_rate: float
  negatives: Negatives


class DiscriminatorLearner:
  """Lines 6 to 12 of Algorithm 1: trains D, the discriminator.

  Attributes:
    parameters: phi and its optimiser state.
    buffer: B, the pairs of instruction and state that were added last.
  """

  def __init__(self, parameters: optimizers.SharedParameters,
               programs: programs_lib.DiscriminatorPrograms,
               buffer: replay.ReplayBuffer,
               goals: worlds.GoalExamples, settings: DiscriminatorSettings,
               rng: np.random.Generator):
    """Makes a learner.

    Args:
      parameters: phi, which others may read while it is updated.
      programs: Compute D and its gradient.
      buffer: B, which is empty.
      goals: The goal examples, of instructions that D can read.
      settings: The numbers, and the choice of negatives.
      rng: Draws goal examples and negatives.
    """
    self.parameters = parameters
    self.buffer = buffer
    self.rng = rng
    self._programs = programs
    self._goals = goals
    self._settings = settings

  @property
  def needed(self) -> int:
    """The number of pairs that B must hold before phi is updated.

    It is that of one draw. The paper does not name it. B is drawn from with
    replacement, so a batch from fewer pairs would often repeat the same states.
    """
    return self._settings.negatives.largest_draw

  def add(self, codes: np.ndarray, observations: np.ndarray) -> None:
    """Adds (c, s) pairs to B, and removes old ones: line 6.

    Codes are int32 [N, slots], observations uint8 [N, ...].
    """
    self.buffer.add(codes, observations)

  def update(self, phi: tf.Tensor, step: int = 0) -> dict[str, float]:
    """Updates phi once: lines 7 to 12.

    Computes the gradient at a snapshot `phi`. `step` is the number of policy
    steps so far, on which the choice of negatives may depend. Returns metrics
    by name. As long as B is too small for line 8, it updates nothing and
    returns {}.
    """
    settings = self._settings
    if len(self.buffer) < self.needed:
      return {}
    # 7: Sample BS / 2 goal examples, the positive ones.
    goals = self._goals.sample(self.rng, settings.batch_size // 2)
    # 8: Sample BS / (2 rho) examples from B.
    candidates = settings.negatives.draw(
        self.buffer, self._goals, self.rng, step)
    # 9 to 11: Drop the top 1 - rho of them by D; compute the loss and its
    # gradient.
    gradient, terms = self._programs.gradient(phi, goals, candidates)
    # 11, 12: Update phi, which all workers read.
    norm, = self.parameters.update(settings.learning_rate, gradient).numpy()
    metrics = {name: float(value) for name, value in terms.items()}
    metrics['discriminator_gradient_norm'] = float(norm)
    for name, value in metrics.items():
      _require_finite(name, [value], [None])
    return metrics

  def accepts(self, codes: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Returns D's decisions on N pairs as it is now, bool [N]."""
    return self._programs.decisions(
        self.parameters.snapshot(), observations, codes).numpy()


class DiscriminatorWorker:
  """Algorithm 1: trains D on goal examples and on states of the policy."""

  def __init__(self, actor: actors.Actor, learner: DiscriminatorLearner,
               first_states: bool = False):
    """Makes a worker.

    Args:
      actor: Plays its episodes.
      learner: Trains D on them.
      first_states: Whether B also gets the state in which each rollout begins.
    """
    self.actor = actor
    self.learner = learner
    self._first_states = first_states

  def iterate(self, snapshot: Snapshot, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop: lines 2 and 5 to 12.

    `step` is the number of policy steps so far.
    """
    # 2, 5: Sample an instance where an episode has ended; act.
    rollout = self.actor.play(snapshot.theta)
    # 6: Add the (c, s) pairs to B, and remove old ones.
    self.learner.add(*rollout.pairs(self._first_states))
    # 7 to 12: Update phi.
    assert snapshot.phi is not None
    return Iteration(rollout, self.learner.update(snapshot.phi, step))


class PolicyWorker:
  """Algorithm 2: trains the policy on D's decisions or on the ground truth."""

  def __init__(self, actor: actors.Actor, policy: optimizers.SharedParameters,
               policy_programs: programs_lib.PolicyPrograms,
               discriminator_programs: programs_lib.DiscriminatorPrograms,
               entropy_weight: Callable[[int], float],
               learning_rate: Callable[[int], float],
               data: auxiliary_lib.Data | None, rng: np.random.Generator,
               learner: DiscriminatorLearner | None = None):
    """Makes a worker.

    Args:
      actor: Plays the episodes of W workers.
      policy: theta, which others may read while it is updated.
      policy_programs: Compute theta's gradients.
      discriminator_programs: Compute rewards.
      entropy_weight: alpha as a function of the policy steps so far.
      learning_rate: The rate of theta's updates as a function of the policy
        steps so far.
      data: The data of the auxiliary loss of the programs; None without such
        a loss.
      rng: Draws samples of the auxiliary loss.
      learner: Also gets the states of this worker's rollouts; None if the
        discriminator's worker alone adds to B, as in the paper.
    """
    self.actor = actor
    self.rng = rng
    self._policy = policy
    self._policy_programs = policy_programs
    self._discriminator_programs = discriminator_programs
    self._entropy_weight = entropy_weight
    self._learning_rate = learning_rate
    self._data = data
    self._learner = learner

  def iterate(self, snapshot: Snapshot, step: int = 0) -> Iteration:
    """Makes one pass of the inner loop, lines 2 and 5 to 8, for each worker.

    `step` is the number of policy steps so far. Without phi the reward is the
    ground truth times the reward's scale.
    """
    # 2, 5: Sample an instance where an episode has ended; act.
    theta, phi = snapshot
    rollout = self.actor.play(theta)
    if not rollout.steps:  # All workers were `delayed` (see `actors.Actor`).
      return Iteration(rollout, {})
    if self._learner is not None:
      self._learner.add(*rollout.pairs())
    # 6: Compute the rewards.
    d_programs = self._discriminator_programs
    if phi is None:
      rewards = d_programs.reward_scale * rollout.true_rewards
      decisions = rollout.true_rewards > 0
    else:
      rewards, decisions = (x.numpy() for x in d_programs.rewards(
          phi, rollout.observations, rollout.codes))
    # 7: Compute the gradient of the RL objective, and of the auxiliary loss if
    # there is one, at the theta that acted.
    samples = None
    if self._data is not None:
      samples = self._data.add_and_sample(self.rng, rollout, decisions)
    gradients, terms = self._policy_programs.gradients(
        theta, rollout, rewards * rollout.mask,
        self._entropy_weight(step), samples)
    # 7, 8: Update theta, which all workers read, once for each gradient.
    norms = self._policy.update(
        self._learning_rate(step), *gradients.values()).numpy()
    by_worker = {
        name: value.numpy()[rollout.active] for name, value in terms.items()}
    for name, numbers in by_worker.items():
      _require_finite(name, numbers, rollout.active.tolist())
    of_workers = list(gradients)  # Indices, or [None] if they are averaged.
    _require_finite('policy_gradient_norm', norms, of_workers)
    by_worker['policy_gradient_norm'] = norms
    metrics = {
        name: float(numbers.mean()) for name, numbers in by_worker.items()}
    return Iteration(rollout, metrics, decisions)


class NumericsError(ArithmeticError):
  """A loss or a gradient norm that is not finite, and whose it is."""

  def __init__(self, name: str, worker: int | None, value: float):
    super().__init__(f'{name} is {value}')
    self.name = name
    self.worker = worker  # Its index among the W workers; None if all share it.
    self.value = value


def _require_finite(name: str, values: Sequence[float] | np.ndarray,
                    workers: Sequence[int | None]) -> None:
  """Raises NumericsError for the first of N values that is not finite.

  `workers` says whose each value is: an index, or None if all share it.
  """
  for worker, value in zip(workers, values, strict=True):
    if not np.isfinite(value):
      raise NumericsError(name, worker, float(value))
