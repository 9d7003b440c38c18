"""Goal examples with the instruction of another one, as negatives.

Such a state rarely satisfies the instruction (2 % in Relations, 6 in
Arrangements), and whether it does cannot be told from the state alone. So the
discriminator and reward prediction must look at the instruction.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import programs
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.recipe import annealing
from agile_tf.recipe import displaced


def require_several(goals: worlds.GoalExamples) -> None:
  """Raises WorldError if all examples have the same instruction."""
  instruction = goals.dataset.instruction
  if not np.any(instruction != instruction[0]):
    raise worlds.WorldError(
        'All goal examples have the same instruction, so none can have that '
        'of another one: leave out --mismatched_share and '
        '--reward_prediction_goals.')


def sample(goals: worlds.GoalExamples, rng: np.random.Generator, count: int
          ) -> rollouts.Pairs:
  """Draws pairs whose instruction is never the state's own.

  Of goals that `require_several` lets pass; others have no such pair.
  """
  instruction = goals.dataset.instruction
  rows, others = rng.integers(len(goals), size=[2, count])
  while len(same := np.flatnonzero(instruction[rows] == instruction[others])):
    others[same] = rng.integers(len(goals), size=len(same))
  return rollouts.Pairs(
      goals.codes[instruction[others]], goals.observations[rows])


class Candidates(NamedTuple):
  """What the negatives of a batch of the discriminator are chosen from."""
  codes: rollouts.Array  # Of M pairs from B, as in `rollouts.Pairs`.
  observations: rollouts.Array
  drawn: rollouts.Array  # int32 [], how many of them count, as rho is now.
  mismatched: rollouts.Pairs | None  # Pairs that are taken as negatives.


class Programs(programs.Programs):
  """Programs that choose a batch's negatives from `Candidates`."""

  def _rate(self, phi: tf.Tensor, candidates: Any
           ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    logits, results = super()._rate(phi, candidates)
    return tf.where(tf.range(candidates.codes.shape[0]) < candidates.drawn,
                    logits, logits.dtype.max), results

  def _negatives(self, phi: tf.Tensor, candidates: Any, count: int
                ) -> tuple[rollouts.Pairs, list[tf.Tensor]]:
    others = candidates.mismatched
    if others is None:
      return super()._negatives(phi, candidates, count)
    kept, known = super()._negatives(
        phi, candidates, count - others.codes.shape[0])
    return rollouts.Pairs(
        *(tf.concat(parts, 0) for parts in zip(kept, others))), known


class Negatives(workers.AnticipatedNegatives):
  """A batch's negatives: anticipated ones from B, and mismatched ones."""

  def __init__(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples,
               rho: annealing.Linear, kept: int, count: int,
               displaced_share: float = 0.0):
    """Takes B, the goal examples and a rho that falls.

    `kept` negatives are from B. Of `count` others, `displaced_share` are
    displaced goal examples with their own instruction, the rest mismatched.
    """
    super().__init__(buffer, kept, rho.last)
    self._goals = goals
    self._rho = rho
    self._kept = kept
    self._displaced = int(displaced_share * count)
    self._count = count - self._displaced

  def draw(self, rng: np.random.Generator, step: int) -> Any:
    """Returns `Candidates`."""
    candidates = super().draw(rng, step)
    others = None
    if self._count:
      others = sample(self._goals, rng, self._count)
      if self._displaced:
        others = rollouts.Pairs(*map(np.concatenate, zip(
            others, displaced.sample(self._goals, rng, self._displaced))))
    drawn = workers.num_candidates(self._kept, self._rho(step))
    return Candidates(*candidates, np.int32(drawn), others)


class Prediction(replay.RewardPrediction):
  """Reward prediction that also learns from goal examples.

  They are rewarded states; as many mismatched ones are states without reward.
  """

  def __init__(self, buffer: replay.ReplayBuffer, batch_size: int,
               rng: np.random.Generator, goals: worlds.GoalExamples,
               count: int):
    super().__init__(buffer, batch_size, rng)
    self._goals = goals
    self._count = count

  def batch(self) -> tuple[np.ndarray, ...]:
    replayed = super().batch()
    goals = self._goals.sample(self.rng, self._count)
    others = sample(self._goals, self.rng, self._count)
    rewarded = np.ones([self._count], np.bool_)
    return tuple(map(np.concatenate, zip(
        replayed, (*goals, rewarded), (*others, ~rewarded))))
