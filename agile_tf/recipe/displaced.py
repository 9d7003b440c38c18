"""Goal examples of which some blocks lie elsewhere: seldom goal states.

They are made without the ground truth.
"""

import numpy as np

from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from gridlu import world


def move(states: np.ndarray, sources: np.ndarray, targets: np.ndarray,
         numbers: np.ndarray) -> np.ndarray:
  """Moves the blocks in each row's first `numbers` sources to its targets.

  Takes packed states, uint8 [N, 27], cells, int [N, ...], and numbers, int [N].
  """
  result = states.copy()
  for j in range(numbers.max(initial=0)):
    rows = np.flatnonzero(numbers > j)
    result[rows, targets[rows, j]] = states[rows, sources[rows, j]]
    result[rows, sources[rows, j]] = 0
  return result


def displace(rng: np.random.Generator, states: np.ndarray, chosen: np.ndarray
            ) -> np.ndarray:
  """Puts chosen blocks, bool [N, 25], into other cells that were free.

  Takes and returns packed states, uint8 [N, 27]. The agent is then free, in a
  random cell.
  """
  before = states[:, :world.NUM_CELLS]
  free = rng.random(before.shape) * (before == 0)
  result = move(states, np.argsort(~chosen, axis=1), np.argsort(-free, axis=1),
                chosen.sum(axis=1))
  result[:, world.NUM_CELLS] = rng.integers(world.NUM_CELLS, size=len(states))
  result[:, world.NUM_CELLS + 1] = 0
  return result


def sample(goals: worlds.GoalExamples, rng: np.random.Generator, count: int
          ) -> rollouts.Pairs:
  """Draws goal examples of which one to all blocks are displaced.

  All numbers are equally likely. Half of the agents on a block carry it.
  """
  pairs = goals.sample(rng, count)
  blocks = pairs.observations[:, :world.NUM_CELLS] > 0
  order = np.argsort(np.argsort(
      rng.random(blocks.shape) - blocks, axis=1), axis=1)
  number = np.ceil(rng.random([count, 1]) * blocks.sum(axis=1, keepdims=True))
  states = displace(rng, pairs.observations, blocks & (order < number))
  here = states[np.arange(count), states[:, world.NUM_CELLS]] > 0
  states[:, world.NUM_CELLS + 1] = here & (rng.random(count) < 0.5)
  return rollouts.Pairs(pairs.codes, states)
