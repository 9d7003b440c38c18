"""Instances that start near a goal state, for a curriculum.

Far from the goal a policy that knows nothing is rarely rewarded. A few actions
away it often is. These instances are made of goal examples and of the world's
physics alone, without the ground truth.
"""

from collections.abc import Sequence

import numpy as np

from gridlu import goal_dataset
from gridlu import instances as instances_lib
from gridlu import language
from gridlu import world


class NearGoals:
  """Draws goal examples, from where the agent takes random actions."""

  def __init__(self, dataset: goal_dataset.GoalDataset,
               instructions: Sequence[language.Instruction], distance: int):
    """Selects the goal examples of some instructions.

    Args:
      dataset: Goal examples with packed GridLU states.
      instructions: The instructions that the instances number.
      distance: The largest number of actions. All numbers from 0 up to it are
        equally likely.

    Raises:
      ValueError: The data set has images, or no example of the instructions.
    """
    if dataset.states is None:
      raise ValueError('the goal examples are images: expected GridLU states.')
    numbers = {str(each): i for i, each in enumerate(instructions)}
    index = np.array(
        [numbers.get(str(language.parse(text)), -1)
         for text in dataset.instructions], np.int32)
    index = index[dataset.instruction]
    rows = np.flatnonzero(index >= 0)
    if not len(rows):
      raise ValueError(
          f'none of the {len(dataset)} goal examples has one of the '
          f'{len(instructions)} instructions: add some.')
    self._index = index[rows]
    self._states = dataset.states[rows]
    self._names_agent = np.array(['AGENT' in text for text in numbers])
    self._distance = distance

  def __call__(self, rng: np.random.Generator,
               count: int) -> instances_lib.Instances:
    """Draws instances.

    The agent takes random moves from where it is in the goal example. This
    seldom moves a block, so where the instruction is about blocks alone, the
    agent is put on one of them and carries it. In half of these instances it
    puts the block down, half of the time before its last move, so that it moves
    on without it.

    Args:
      rng: The generator to draw from.
      count: N, how many to draw.

    Returns:
      N instances. A start may satisfy its instruction.
    """
    rows = rng.integers(len(self._index), size=count)
    index = self._index[rows]
    carries = ~self._names_agent[index]
    state = _carrying(rng, world.unpack(self._states[rows]), carries)
    length = rng.integers(self._distance + 1, size=count)
    early = (rng.random(count) * length).astype(np.int64)
    put_down = np.where(
        rng.random(count) < 0.5, -1,
        np.where(rng.random(count) < 0.5, early, length))
    moves = rng.integers(
        world.Action.INTERACT, size=[self._distance + 1, count])
    for t, action in enumerate(moves):
      action = np.select(
          [carries & (t == put_down), t >= length],
          [world.Action.INTERACT, world.Action.NOOP], action)
      state = world.step(state, action)
    return instances_lib.Instances(index, state)


def _carrying(rng: np.random.Generator, state: world.State,
              chosen: np.ndarray) -> world.State:
  """Puts the agents of chosen boards (bool [N]) on a block, to carry it."""
  cells = state.blocks.reshape(-1, world.NUM_CELLS)
  order = rng.random(cells.shape) * (cells > 0)
  chosen = chosen & np.any(cells > 0, axis=1)
  places = np.stack(np.divmod(np.argmax(order, axis=1), world.SIZE), axis=-1)
  return state._replace(
      agent=np.where(chosen[:, None], places, state.agent).astype(np.int32),
      carrying=state.carrying | chosen)
