"""Boards drawn in text, and the world's rules as slow scalar loops.

The loops are the oracle of the array code in `gridlu`; they share nothing with
it but the meaning of a state.
"""

import numpy as np

from gridlu import language
from gridlu import world

_KINDS = {
    color[0] + shape[0]: world.block(shape, color)
    for shape in world.SHAPES for color in world.COLORS
}


def draw(text: str) -> world.State:
  """Returns the state that a text shows.

  Args:
    text: Rows from the top, divided by '/', each of cells divided by spaces.
      A cell is '.' or a block (colour and shape by their first letters: 'rc'
      is a red circle), followed by '@' if a free agent is there or by '!' if a
      carrying one is. Cells left out to the right and below are empty.
  """
  blocks = np.zeros((world.SIZE, world.SIZE), np.int32)
  agents = []
  for row, cells in enumerate(text.split('/')):
    for column, cell in enumerate(cells.split()):
      if cell[-1] in '@!':
        agents.append((row, column, cell[-1] == '!'))
      kind = cell.rstrip('@!').strip('.')
      blocks[row, column] = _KINDS[kind] if kind else 0
  (row, column, carrying), = agents
  return world.State(blocks, np.array([row, column], np.int32),
                     np.array(carrying))


def assert_equal(actual: world.State, expected: world.State) -> None:
  """Fails unless two states, or batches of states, are equal."""
  for field, a, b in zip(world.State._fields, actual, expected, strict=True):
    np.testing.assert_array_equal(a, b, err_msg=field)


def random_states(rng: np.random.Generator, count: int) -> world.State:
  """Returns `count` states with 0 to 22 blocks or so.

  Half the agents that stand on a block carry it.
  """
  blocks = rng.integers(1, world.NUM_BLOCK_CODES, (count, 5, 5))
  density = rng.uniform(0, .9, (count, 1, 1))
  blocks = np.where(rng.random((count, 5, 5)) < density, blocks, 0)
  agent = rng.integers(0, 5, (count, 2))
  on_block = blocks[np.arange(count), agent[:, 0], agent[:, 1]] > 0
  return world.State(blocks.astype(np.int32), agent.astype(np.int32),
                     on_block & (rng.random(count) < .5))


def scalar_step(state: world.State, action: int,
                immovable: tuple[int, ...] = ()) -> world.State:
  """Appendix D in plain words, for one state."""
  blocks = np.array(state.blocks)
  row, column = (int(x) for x in state.agent)
  carrying = bool(state.carrying)
  if action == world.Action.INTERACT:
    if carrying:
      carrying = False
    elif blocks[row, column] != 0 and blocks[row, column] not in immovable:
      carrying = True
  elif action != world.Action.NOOP:
    down, right = {
        world.Action.UP: (-1, 0), world.Action.DOWN: (1, 0),
        world.Action.LEFT: (0, -1), world.Action.RIGHT: (0, 1)}[action]
    new_row, new_column = row + down, column + right
    inside = 0 <= new_row < 5 and 0 <= new_column < 5
    if inside and not (carrying and blocks[new_row, new_column]):
      if carrying:
        blocks[new_row, new_column] = blocks[row, column]
        blocks[row, column] = 0
      row, column = new_row, new_column
  return world.State(blocks, np.array([row, column], np.int32),
                     np.array(carrying))


def _fits(operand: language.Operand, state: world.State, row: int,
          column: int) -> bool:
  """Whether what an operand describes is in a cell."""
  if operand == language.AGENT:
    return (row, column) == tuple(state.agent)
  code = state.blocks[row, column]
  if code == 0:
    return False
  shape, color = world.SHAPES[(code - 1) // 3], world.COLORS[(code - 1) % 3]
  text = str(operand)
  return (('Shape' not in text or shape in text) and
          ('Color' not in text or color in text))


def scalar_satisfied(instruction: language.Instruction,
                     state: world.State) -> bool:
  """The ground truth, cell by cell."""
  # From the right operand's cell to the left one's.
  down, right = {
      'NorthFrom': (-1, 0), 'SouthFrom': (1, 0), 'EastFrom': (0, 1),
      'WestFrom': (0, -1), 'SameLocation': (0, 0),
  }[instruction.word]
  for row in range(5):
    for column in range(5):
      if _fits(instruction.right, state, row, column):
        other_row, other_column = row + down, column + right
        if 0 <= other_row < 5 and 0 <= other_column < 5:
          if _fits(instruction.left, state, other_row, other_column):
            return True
  return False
