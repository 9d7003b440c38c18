"""The GridLU world: what a state is, and its physics.

Implements appendix D of the paper (figure 6 shows the dynamics): a 5x5 board
inside a wall, blocks of 3 shapes and 3 colours, at most one in a cell, and an
agent that may carry one of them. A carried block stays in the agent's cell and
moves with it.

Functions with an argument `xp` are pure and take any number of leading batch
dimensions: `xp=np`, or `xp=tf.experimental.numpy` to run the same lines inside
a compiled TensorFlow program. That is why they use masks and arithmetic with
explicit dtypes, and neither assign, nor index by arrays, nor reshape unknown
dimensions.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import enum
import operator
from typing import Any, NamedTuple

import numpy as np

Array = Any  # np.ndarray, or tf.Tensor where xp is tf.experimental.numpy.
ArrayModule = Any  # numpy, or tf.experimental.numpy.

SIZE = 5  # Cells on a side of the board.
NUM_CELLS = SIZE * SIZE
SHAPES = ('circle', 'rect', 'triangle')
COLORS = ('red', 'green', 'blue')
NUM_BLOCK_CODES = 1 + len(SHAPES) * len(COLORS)  # 0 is the empty cell.
PACKED_SIZE = NUM_CELLS + 2  # Bytes of a packed state.
# [27]: each byte of a packed state is less than this.
PACKED_LIMITS = (*[NUM_BLOCK_CODES] * NUM_CELLS, NUM_CELLS, 2)


class State(NamedTuple):
  """A board, or a batch of boards."""
  # int32 [..., 5, 5]: 0 for an empty cell, else 1 + 3 * shape + colour. Row 0
  # is the top (north).
  blocks: Array
  agent: Array  # int32 [..., 2]: row from the top, column from the left.
  carrying: Array  # bool [...]: whether the agent carries its cell's block.


class Instances(NamedTuple):
  """N instructions that a task draws, each with an initial or goal state."""
  instruction: np.ndarray  # int32 [N], indices into a list of instructions.
  state: State  # Batch dimensions [N].


class Action(enum.IntEnum):
  """The six actions of appendix D."""
  UP = 0
  DOWN = 1
  LEFT = 2
  RIGHT = 3
  INTERACT = 4  # Picks up the block in the agent's cell, or puts it down.
  NOOP = 5


# Policies choose among the first five: NOOP is none of theirs (appendix H).
NUM_POLICY_ACTIONS = len(Action) - 1


# The index of a cell is 5 * row + column. [25, 2]: a cell's row and column.
_ROW_AND_COLUMN = np.stack(
    np.divmod(np.arange(NUM_CELLS, dtype=np.int32), SIZE), axis=-1)
# [6, 2]: how far down and right each action leads.
_MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0], [0, 0]], np.int32)
# [6 * 25]: the cell where an action leads from a cell if no block is in the
# way, at 25 * action + cell.
_NEXT_CELL = np.dot(
    np.clip(_ROW_AND_COLUMN + _MOVES[:, None], 0, SIZE - 1),
    np.array([SIZE, 1], np.int32)).reshape(-1)
# [4, 25]: where each move leads from each cell.
NEIGHBOURS = _NEXT_CELL.reshape(-1, NUM_CELLS)[:Action.INTERACT]
# [25, 5, 5]: 1 in the cell and 0 elsewhere.
_CELL_MASK = np.eye(NUM_CELLS, dtype=np.int32).reshape(NUM_CELLS, SIZE, SIZE)
# A sum of these is a set of cells in the bits of an int32: bit 5 * row + column
# stands for the cell in that row and column.
BITS = 2**np.arange(NUM_CELLS, dtype=np.int32)


def block(shape: str, color: str) -> int:
  """Returns the code of a block in `State.blocks`, from 1 to 9."""
  if shape not in SHAPES:
    raise ValueError(f'shape is {shape!r}: expected one of {SHAPES}.')
  if color not in COLORS:
    raise ValueError(f'color is {color!r}: expected one of {COLORS}.')
  return 1 + len(COLORS) * SHAPES.index(shape) + COLORS.index(color)


def shape_and_color(code: int) -> tuple[str, str]:
  """Returns the shape and the colour of a block: the inverse of `block`."""
  shape, color = divmod(code - 1, len(COLORS))
  return SHAPES[shape], COLORS[color]


@dataclasses.dataclass(frozen=True)
class Physics:
  """The rules of the world that can differ."""
  # Codes (see `block`) of the blocks that cannot be picked up.
  immovable: tuple[int, ...] = ()

  def __post_init__(self):
    if not isinstance(self.immovable, Iterable):
      raise ValueError(f'Physics.immovable is {self.immovable!r}: expected a '
                       'tuple of block codes. Put a single code into a tuple.')
    codes = tuple(self.immovable)
    for code in codes:
      if isinstance(code, bool) or code not in range(1, NUM_BLOCK_CODES):
        raise ValueError(
            f'Physics.immovable has {code!r}: expected block codes from 1 to '
            f"{NUM_BLOCK_CODES - 1}, such as world.block('rect', 'red').")
    object.__setattr__(
        self, 'immovable', tuple(sorted({int(code) for code in codes})))


NORMAL = Physics()
# The changed world of figure 5: "all red square objects immovable".
IMMOVABLE_RED_RECTS = Physics(immovable=(block('rect', 'red'),))
# The physics by the names that flags have for them.
PHYSICS = {'normal': NORMAL, 'immovable_red_rects': IMMOVABLE_RED_RECTS}


def find_physics(physics: str | Mapping[str, Any] | Physics) -> Physics:
  """Returns the physics that a name or a mapping of its attributes stands for.

  The names are those in `PHYSICS`. A `Physics` is returned as it is.
  """
  # Gymnasium saves a `Physics` as JSON, which makes a mapping of it.
  if isinstance(physics, Mapping) and physics.keys() == {'immovable'}:
    return Physics(**physics)
  found = PHYSICS.get(physics) if isinstance(physics, str) else physics
  if not isinstance(found, Physics):
    raise ValueError(f'physics is {physics!r}: expected a world.Physics, or '
                     f'one of {tuple(PHYSICS)}.')
  return found


def take(values: Array, indices: Array, axis: int,
         xp: ArrayModule = np) -> Array:
  """Returns `xp.take`; NumPy's method takes half the time of its function."""
  if xp is np:
    return values.take(indices, axis=axis)
  return xp.take(values, indices, axis=axis)


def numbers(values: Array, dtype: Any, xp: ArrayModule = np) -> Array:
  """Converts numbers to an array of a dtype.

  A single number becomes a NumPy scalar, with which NumPy computes faster than
  with an array without dimensions.
  """
  return xp.asarray(values, dtype)[()]


def cell_index(agent: Array) -> Array:
  """Returns 5 * row + column, int32 [...], of cells int32 [..., 2]."""
  # A single cell's index is computed with NumPy scalars, which are fast.
  return agent[..., 0][()] * SIZE + agent[..., 1][()]


def cell_mask(cell: Array, xp: ArrayModule = np) -> Array:
  """Returns int32 [..., 5, 5], 1 in the cells with these indices, else 0."""
  return take(_CELL_MASK, cell, 0, xp)


def block_at(blocks: Array, cell: Array, xp: ArrayModule = np) -> Array:
  """Returns the code of the block in one cell (an index) of each board."""
  # On a single board this takes a fifth of the time that the mask would take.
  if cell.ndim == 0 and blocks.ndim == 2:
    return xp.reshape(blocks, NUM_CELLS)[cell]
  return xp.max(blocks * cell_mask(cell, xp), axis=(-2, -1))


def free_agents(blocks: np.ndarray, cell: np.ndarray) -> State:
  """Makes N states from blocks [N, 25] and the cells [N] of free agents."""
  return State(
      blocks.reshape(-1, SIZE, SIZE).astype(np.int32), _ROW_AND_COLUMN[cell],
      np.zeros(len(blocks), np.bool_))


def check_distractors(distractors: Any, limit: int) -> None:
  """Raises a ValueError unless they are the fewest and the most, 0 to limit."""
  try:
    fewest, most = map(operator.index, distractors)
  except (TypeError, ValueError):
    fewest = most = -1
  if not 0 <= fewest <= most <= limit:
    raise ValueError(
        f'distractors is {distractors!r:.100}: expected a pair, the fewest and '
        f'the most, of whole numbers from 0 to {limit}.')


def step(state: State, action: Array, physics: Physics = NORMAL,
         xp: ArrayModule = np) -> State:
  """Returns the state that an action leads to.

  A move into the wall changes nothing. A free agent enters any cell; an agent
  that carries a block does not enter a cell that holds another. INTERACT lets
  a free agent pick up the block in its cell, unless the physics makes that
  block immovable, and lets a carrying agent put its block down where it stands
  (the paper's "in any non-empty cell" is a slip: a carrying agent's cell never
  holds another block). INTERACT in an empty cell and NOOP change nothing.

  Actions are from 0 to 5, not checked. Batch dimensions broadcast.
  """
  # These lines multiply by masks, because `where` is slow on one board.
  blocks = xp.asarray(state.blocks, np.int32)
  cell = cell_index(xp.asarray(state.agent, np.int32))
  carrying = numbers(state.carrying, np.bool_, xp)
  action = numbers(action, np.int32, xp)

  target = take(_NEXT_CELL, action * NUM_CELLS + cell, 0, xp)
  block_here, block_there = (block_at(blocks, x, xp) for x in (cell, target))

  # A carrying agent that does not move counts as blocked by its own block. It
  # stays where it is in either case.
  blocked = carrying & (block_there > 0)
  moved_block = block_here * numbers(carrying & ~blocked, np.int32, xp)
  change = cell_mask(target, xp) - cell_mask(cell, xp)
  new_blocks = blocks + change * moved_block[..., None, None]
  new_cell = cell + (target - cell) * numbers(~blocked, np.int32, xp)

  interact = action == int(Action.INTERACT)
  liftable = block_here > 0
  for code in physics.immovable:
    liftable = liftable & (block_here != code)
  # INTERACT makes a carrying agent free, and a free one carry if there is
  # something to lift.
  new_carrying = (carrying & ~interact) | (~carrying & interact & liftable)
  return State(new_blocks, take(_ROW_AND_COLUMN, new_cell, 0, xp),
               new_carrying)


def pack(state: State, xp: ArrayModule = np) -> Array:
  """Packs states into 27 bytes each, uint8 [..., 27].

  They are the 25 cells row by row, the index of the agent's cell
  (5 * row + column), and 1 if the agent carries a block, else 0.
  """
  blocks = xp.asarray(state.blocks, np.int32)
  cell = cell_index(xp.asarray(state.agent, np.int32))
  carrying = xp.asarray(state.carrying, np.int32)
  values = [blocks[..., row, :] for row in range(SIZE)]
  values += [cell[..., None], carrying[..., None]]
  return xp.asarray(xp.concatenate(values, axis=-1), np.uint8)


def unpack(packed: Array, xp: ArrayModule = np) -> State:
  """Inverts `pack`."""
  values = xp.asarray(packed, np.int32)
  blocks = xp.stack(
      [values[..., SIZE * row:SIZE * (row + 1)] for row in range(SIZE)],
      axis=-2)
  agent = take(_ROW_AND_COLUMN, values[..., NUM_CELLS], 0, xp)
  return State(blocks, agent, values[..., NUM_CELLS + 1] != 0)
