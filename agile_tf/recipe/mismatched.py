"""Goal examples with the instruction of another one, as negatives.

Such a state rarely satisfies the instruction: 2 % of them do in Relations, and
6 % in Arrangements. The states themselves are those of goal examples, so only
the instruction tells these negatives from goal examples: the discriminator and
reward prediction must look at it.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import numpy as np

from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.recipe import annealing
from agile_tf.recipe import displaced


def require_several(goals: worlds.GoalExamples) -> None:
  """Raises WorldError if all examples have the same instruction."""
  if not goals.several:
    raise worlds.WorldError(
        'All goal examples have the same instruction, so none can have that '
        'of another one: leave out --mismatched_share and '
        '--reward_prediction_goals.')


class Negatives(NamedTuple):
  """A batch's negatives: those from B, as in the paper, and goal examples.

  rho may fall. As many pairs are drawn from B as the smallest rho needs, so
  that the compiled program always gets the same shape. D chooses among the
  first of them: as many as rho asks for now.
  """
  rho: annealing.Linear
  kept: int  # The number of negatives from B.
  # The number of goal examples with the instruction of another one.
  num_mismatched: int
  # The number of goal examples with their own instruction and displaced blocks.
  num_displaced: int

  @property
  def largest_draw(self) -> int:
    return workers.num_candidates(self.kept, self.rho.last)

  def draw(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples,
           rng: np.random.Generator, step: int) -> replay.Candidates:
    pairs = buffer.sample(rng, self.largest_draw)
    unrated = []
    if self.num_mismatched:
      unrated.append(goals.sample_mismatched(rng, self.num_mismatched))
    if self.num_displaced:
      unrated.append(displaced.sample(goals, rng, self.num_displaced))
    num_counted = workers.num_candidates(self.kept, self.rho(step))
    return replay.Candidates(
        pairs, np.int32(num_counted), _joined(unrated) if unrated else None)


def _joined(parts: Sequence[rollouts.Pairs]) -> rollouts.Pairs:
  """Returns all pairs of several parts."""
  return rollouts.Pairs(
      np.concatenate([part.codes for part in parts]),
      np.concatenate([part.observations for part in parts]))


def labelled(goals: worlds.GoalExamples, count: int, rng: np.random.Generator
            ) -> auxiliary_lib.Triples:
  """Draws `count` goal examples, and as many mismatched ones.

  The labels say that the former counted as goal states and the latter did not.
  """
  rewarded = goals.sample(rng, count)
  mismatched = goals.sample_mismatched(rng, count)
  codes, observations = _joined([rewarded, mismatched])
  return codes, observations, np.arange(2 * count) < count


def prediction(cost: float, batch_size: int, replay_size: int, count: int
              ) -> auxiliary_lib.Auxiliary:
  """Returns reward prediction that also learns from goal examples.

  In addition to its batch, each worker has `count` goal examples as rewarded
  states, and as many mismatched ones as states without reward.
  """
  def make(world: worlds.World, goals: worlds.GoalExamples | None
          ) -> auxiliary_lib.RewardPrediction:
    assert goals is not None
    return auxiliary_lib.RewardPrediction(
        replay.of_world(replay_size, world), batch_size,
        functools.partial(labelled, goals, count))

  return auxiliary_lib.reward_prediction(
      cost, batch_size, replay_size)._replace(make=make)
