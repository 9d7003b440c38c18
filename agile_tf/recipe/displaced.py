"""Goal examples with some blocks moved elsewhere, which are seldom goal states.

They are made without the ground truth. A packed state, uint8 [27], has the
block in each of 25 cells (0 if it is empty), the agent's cell, and whether the
agent carries the block there.
"""

import numpy as np

from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from gridlu import world

# The indices, in a packed state, of the agent's cell and of whether it carries.
AGENT, CARRIES = world.NUM_CELLS, world.NUM_CELLS + 1


def move(states: np.ndarray, sources: np.ndarray, targets: np.ndarray,
         counts: np.ndarray) -> np.ndarray:
  """Moves counts[n] blocks of each state n.

  For each i < counts[n], the block in cell sources[n, i] goes to cell
  targets[n, i].

  Args:
    states: Packed states, uint8 [N, 27].
    sources: Cells, int [N, at least the largest count].
    targets: Cells, int [N, at least the largest count].
    counts: int [N].

  Returns:
    Packed states, uint8 [N, 27].
  """
  result = states.copy()
  for i in range(counts.max(initial=0)):
    rows = np.flatnonzero(counts > i)
    result[rows, targets[rows, i]] = states[rows, sources[rows, i]]
    result[rows, sources[rows, i]] = 0
  return result


def displace(rng: np.random.Generator, states: np.ndarray, chosen: np.ndarray
            ) -> np.ndarray:
  """Puts chosen blocks, bool [N, 25], into other cells that were empty.

  Takes and returns packed states, uint8 [N, 27]. The agent then carries
  nothing, and is in a random cell.
  """
  cells = states[:, :world.NUM_CELLS]
  is_empty = cells == 0
  chosen_first = np.argsort(~chosen, axis=1)
  # Empty cells come first, in random order.
  empty_first = np.argsort(-rng.random(cells.shape) * is_empty, axis=1)
  result = move(states, chosen_first, empty_first, chosen.sum(axis=1))
  result[:, AGENT] = rng.integers(world.NUM_CELLS, size=len(states))
  result[:, CARRIES] = 0
  return result


def sample(goals: worlds.GoalExamples, rng: np.random.Generator, count: int
          ) -> rollouts.Pairs:
  """Draws goal examples and displaces some of their blocks, at least one.

  All numbers of blocks are equally likely. Half of the agents on a block carry
  it.
  """
  pairs = goals.sample(rng, count)
  filled = pairs.observations[:, :world.NUM_CELLS] > 0
  # The cells with blocks come first, in random order.
  filled_first = np.argsort(rng.random(filled.shape) - filled, axis=1)
  rank = np.argsort(filled_first, axis=1)  # A cell's place in this order.
  num_blocks = filled.sum(axis=1, keepdims=True)
  num_displaced = np.ceil(rng.random([count, 1]) * num_blocks)
  states = displace(rng, pairs.observations, filled & (rank < num_displaced))
  on_block = states[np.arange(count), states[:, AGENT]] > 0
  states[:, CARRIES] = on_block & (rng.random(count) < 0.5)
  return rollouts.Pairs(pairs.codes, states)
