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

  def __init__(self, dataset: goal_dataset.GoalDataset, distance: int = 12):
    """Takes goal examples with GridLU states, and the most actions.

    All numbers of actions from 0 up to `distance` are equally likely. Images
    are a ValueError.
    """
    if dataset.states is None:
      raise ValueError('the goal examples are images: expected GridLU states.')
    self._states = dataset.states
    self._instruction = dataset.instruction
    self._texts = [str(language.parse(text)) for text in dataset.instructions]
    self._distance = distance

  def __call__(self, rng: np.random.Generator, count: int,
               instructions: Sequence[language.Instruction],
               physics: world.Physics = world.NORMAL
              ) -> instances_lib.Instances:
    """Draws instances.

    The agent takes random moves from where it is in the goal example. This
    seldom moves a block, so where the instruction is about blocks alone, the
    agent is put on one of them and carries it. In half of these instances it
    puts the block down, half of the time before its last move, so that it moves
    on without it. It carries no block that the physics lets nobody move. A
    start may satisfy its instruction.

    Raises:
      ValueError: No goal example has one of the instructions.
    """
    numbers = {str(each): i for i, each in enumerate(instructions)}
    index = np.array([numbers.get(text, -1) for text in self._texts], np.int32)
    candidates = np.flatnonzero(index[self._instruction] >= 0)
    if not len(candidates):
      raise ValueError(
          f'none of the {len(self._states)} goal examples has one of the '
          f'{len(instructions)} instructions: add some.')
    rows = candidates[rng.integers(len(candidates), size=count)]
    names_agent = np.array(['AGENT' in text for text in self._texts])
    carries = ~names_agent[self._instruction[rows]]
    state = _carrying(
        rng, world.unpack(self._states[rows]), carries, physics)
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
      state = world.step(state, action, physics)
    return instances_lib.Instances(index[self._instruction[rows]], state)


def _carrying(rng: np.random.Generator, state: world.State,
              chosen: np.ndarray, physics: world.Physics) -> world.State:
  """Puts the agents of chosen boards (bool [N]) on a block, to carry it.

  Where no block can be moved, and on the other boards, agents stay. None
  carries a block that cannot be moved.
  """
  cells = state.blocks.reshape(-1, world.NUM_CELLS)
  movable = (cells > 0) & ~np.isin(cells, physics.immovable)
  order = rng.random(cells.shape) * movable
  chosen = chosen & np.any(movable, axis=1)
  places = np.stack(np.divmod(np.argmax(order, axis=1), world.SIZE), axis=-1)
  agent = np.where(chosen[:, None], places, state.agent).astype(np.int32)
  here = movable[np.arange(len(cells)), world.cell_index(agent)]
  return state._replace(
      agent=agent, carrying=(state.carrying | chosen) & here)
