"""The GridLU-Relations task: ground truth, instances and goal states.

Implements section 3.3 and appendix F.1 of the paper. The ground truth looks at
positions only: a carried block counts as being in its cell. Relations mean
immediate adjacency: NorthFrom(a, b) holds if some block that fits a is in the
cell directly above some block that fits b.
"""

from collections.abc import Sequence
import itertools
from typing import NamedTuple

import numpy as np

from gridlu import language
from gridlu import world

TITLE = 'GridLU-Relations'
EPISODE_LENGTH = 30
HAS_GROUND_TRUTH = True
TOKENS = language.RELATIONS_TOKENS
FIRST_GROUPS = ('go to', 'bring to')  # Reports show these groups first.
all_instructions = language.relations_instructions

CODE_SIZE = 3  # How many numbers encode an instruction.
# With more, nearly all proposals would have two blocks in one cell.
_MOST_DISTRACTORS = 8

# The probability that the generator proposes a go-to instruction. The paper
# does not state it, but reports that 25 % of the accepted instances are go-to,
# which this value gives. (A uniform choice among the 990 instructions gives
# 15 %.)
GO_TO_PROPOSAL = .2551

# A cell's contents are a number: the code of its block or 0 for none, plus 10
# if the agent is there. This is how many such numbers there are.
_NUM_CONTENTS = 2 * world.NUM_BLOCK_CODES

# An operand's description is its index in this list: 16 for AGENT, else
# 4 * (1 + shape) + 1 + colour, where -1 stands for any shape or colour.
_OPERANDS: list[language.Operand] = [
    language.Blocks(color, shape) for shape in (None, *world.SHAPES)
    for color in (None, *world.COLORS)] + [language.AGENT]
_DESCRIPTIONS = {operand: index for index, operand in enumerate(_OPERANDS)}


def _fits(operand: language.Operand, contents: int) -> bool:
  """Returns whether a cell with these contents holds what an operand names."""
  agent, block = divmod(contents, world.NUM_BLOCK_CODES)
  if isinstance(operand, language.Agent):
    return bool(agent)
  return operand.fits(block)


# int32 [17 * 20]: 1 at 20 * description + contents if a cell's contents fit a
# description, else 0.
_FITS = np.array(
    [_fits(operand, contents) for operand in _OPERANDS
     for contents in range(_NUM_CONTENTS)], np.int32)

# In a set of cells (see `world.BITS`), the bit of the cell below is 5 bits up
# and that of the cell to the right 1 bit up, except from the last column.
_BITS = world.BITS.reshape(world.SIZE, world.SIZE)
_DOWN = 2**world.SIZE
_RIGHT = 2
_NOT_LAST_COLUMN = np.int32(np.sum(_BITS[:, :-1]))


def encode(instructions: Sequence[language.Instruction]) -> np.ndarray:
  """Encodes instructions for `satisfied`, int32 [N, 3].

  An instruction's three numbers are its relation (an index into
  `Relation.words`) and the descriptions of its left and its right operand.
  """
  return np.array([
      [language.Relation.words.index(each.word), _DESCRIPTIONS[each.left],
       _DESCRIPTIONS[each.right]] for each in instructions], np.int32
      ).reshape(-1, CODE_SIZE)


def satisfied(codes: world.Array, states: world.State,
              xp: world.ArrayModule = np, carried_counts: bool = True
             ) -> world.Array:
  """Returns which states satisfy their instruction, bool: the ground truth.

  Batch dimensions of codes (see `encode`) and states broadcast together. A
  block that the agent carries counts as being in the agent's cell; unless
  `carried_counts`, it is nowhere until the agent has put it down.
  """
  codes = xp.asarray(codes, np.int32)
  cell = world.cell_index(xp.asarray(states.agent, np.int32))
  agent = world.cell_mask(cell, xp)
  blocks = xp.asarray(states.blocks, np.int32)
  if not carried_counts:
    carrying = xp.asarray(states.carrying, np.int32)[..., None, None]
    blocks = blocks * (1 - carrying * agent)
  contents = blocks + agent * world.NUM_BLOCK_CODES
  # For each operand the set of cells that hold what it describes. `[()]`: see
  # `world.numbers`.
  rows = (codes[..., 1:] * _NUM_CONTENTS)[..., None, None]
  fits = world.take(_FITS, rows + contents[..., None, :, :], 0, xp)
  cells = xp.sum(fits * _BITS, axis=(-2, -1), dtype=np.int32)
  left, right = cells[..., 0][()], cells[..., 1][()]
  relation = codes[..., 0][()]
  north, south, east, west, same = (
      relation == index for index in range(len(language.Relation.words)))
  return (
      (north & (((left * _DOWN) & right) != 0)) |
      (south & ((left & (right * _DOWN)) != 0)) |
      (east & ((left & ((right & _NOT_LAST_COLUMN) * _RIGHT)) != 0)) |
      (west & ((((left & _NOT_LAST_COLUMN) * _RIGHT) & right) != 0)) |
      (same & ((left & right) != 0)))


def groups(instruction: language.Instruction,
           start: world.State | None) -> Sequence[str]:
  """Returns the groups of a report to which an episode belongs.

  They are 'go to' or 'bring to', and its relation.
  """
  del start
  return 'go to' if instruction.is_go_to else 'bring to', instruction.word


class _Drawn(NamedTuple):
  """Instances with free agents."""
  instruction: np.ndarray  # int32 [N]
  # int32 [N, B], block codes: the two objects that the instruction names (0 in
  # place of AGENT) and the distractors; 0 for those that are not there.
  blocks: np.ndarray
  cells: np.ndarray  # int32 [N, B], the blocks' cells, from 0 to 24.
  agent: np.ndarray  # int32 [N], the agent's cell.

  def take(self, rows: np.ndarray) -> '_Drawn':
    return _Drawn(*(x[rows] for x in self))

  def clash(self) -> np.ndarray:
    """Returns whether two blocks are in the same cell, bool [N]."""
    clash = np.zeros(len(self.blocks), np.bool_)
    for i, j in itertools.combinations(range(self.blocks.shape[1]), 2):
      clash |= ((self.cells[:, i] == self.cells[:, j]) &
                (self.blocks[:, i] > 0) & (self.blocks[:, j] > 0))
    return clash

  def state(self) -> world.State:
    """Returns the boards; no two blocks may clash, because codes are added."""
    board = np.zeros((len(self.blocks), world.NUM_CELLS), np.int32)
    for cells, blocks in zip(self.cells.T, self.blocks.T):
      board[np.arange(len(board)), cells] += blocks
    return world.free_agents(board, self.agent)


def _propose_blocks(rng: np.random.Generator, count: int, codes: np.ndarray,
                    distractors: tuple[int, int]
                   ) -> tuple[np.ndarray, np.ndarray]:
  """Draws `instruction` and `blocks` of `_Drawn` (appendix F.1)."""
  names_agent = np.any(codes[:, 1:] == _DESCRIPTIONS[language.AGENT], axis=1)
  go_to = np.flatnonzero(names_agent)
  bring_to = np.flatnonzero(~names_agent)
  # If the list has only one kind, all are of that kind.
  share = GO_TO_PROPOSAL if len(go_to) and len(bring_to) else float(
      len(go_to) > 0)
  is_go_to = rng.random(count) < share
  # The list of both kinds begins with the go-to instructions. Each instance
  # takes a random one of its own kind.
  lengths = np.where(is_go_to, len(go_to), len(bring_to))
  instruction = np.concatenate([go_to, bring_to])[
      (rng.random(count) * lengths).astype(np.int32) +
      np.where(is_go_to, 0, len(go_to))].astype(np.int32)

  # The objects fit their descriptions; distractors may be anything.
  descriptions = codes[instruction, 1:]
  fewest, most = distractors
  size = (count, 2 + most)
  shape = rng.integers(len(world.SHAPES), size=size, dtype=np.int32)
  color = rng.integers(len(world.COLORS), size=size, dtype=np.int32)
  named_shape, named_color = (
      x - 1 for x in np.divmod(descriptions, 1 + len(world.COLORS)))
  shape[:, :2] = np.where(named_shape < 0, shape[:, :2], named_shape)
  color[:, :2] = np.where(named_color < 0, color[:, :2], named_color)
  blocks = 1 + len(world.COLORS) * shape + color
  # AGENT is no block.
  blocks[:, :2][descriptions == _DESCRIPTIONS[language.AGENT]] = 0
  if fewest < most:
    number = rng.integers(fewest, most + 1, size=(count, 1))
    blocks[:, 2:] *= np.arange(most) < number
  return instruction, blocks


def _propose_places(rng: np.random.Generator, blocks: np.ndarray
                   ) -> tuple[np.ndarray, np.ndarray]:
  """Draws `cells` and `agent` of `_Drawn`, independently of each other."""
  count, most = blocks.shape
  draws = rng.integers(
      world.NUM_CELLS, size=(most + 1, count), dtype=np.int32)
  return draws[:-1].T, draws[-1]


def _draw(rng: np.random.Generator, count: int, codes: np.ndarray,
          distractors: tuple[int, int]) -> _Drawn:
  """Draws instances, rejecting as the paper does."""
  world.check_distractors(distractors, _MOST_DISTRACTORS)
  accepted: list[_Drawn] = []
  missing = count
  # This ends, whatever the instructions are. With one distractor, more than
  # half of the proposals pass; with eight distractors, more than a tenth.
  while missing > 0 or not accepted:
    proposals = missing + missing // 4 + 8
    instruction, blocks = _propose_blocks(rng, proposals, codes, distractors)
    drawn = _Drawn(instruction, blocks, *_propose_places(rng, blocks))
    largest = np.max(blocks, axis=1, keepdims=True)
    all_identical = np.all((blocks == 0) | (blocks == largest), axis=1) & (
        np.count_nonzero(blocks, axis=1) > 1)
    keep = np.flatnonzero(~(drawn.clash() | all_identical))[:missing]
    accepted.append(drawn.take(keep))
    missing -= len(keep)
  return _Drawn(*map(np.concatenate, zip(*accepted)))


def instances(
    rng: np.random.Generator, count: int,
    instructions: Sequence[language.Instruction] | None = None,
    distractors: tuple[int, int] = (1, 1)) -> world.Instances:
  """Draws task instances: instructions and states to start from (F.1).

  With one distractor, a quarter of the instances have go-to instructions (see
  `GO_TO_PROPOSAL`), unless all of `instructions` are of one kind. Within go-to
  and bring-to, instructions are proposed uniformly. So are the attributes of
  the named blocks that the instruction leaves open, and the distractors.
  `distractors` are the fewest and the most of these; the paper has one. All
  blocks and the free agent are placed uniformly over the 25 cells. A proposal
  is rejected as a whole if two blocks share a cell or all blocks are identical.
  A start may satisfy its instruction (see `solved_starts` of `gridlu.GridLU`).
  """
  drawn = _draw(
      rng, count, encode(language.chosen(instructions, all_instructions())),
      distractors)
  return world.Instances(drawn.instruction, drawn.state())


# Placements that are tried at once: some 10 MB of boards and masks.
_TRIES = 8192


def goal_states(
    rng: np.random.Generator, count: int,
    instructions: Sequence[language.Instruction] | None = None,
    distractors: tuple[int, int] = (1, 1)) -> world.Instances:
  """Draws goal examples: pairs of an instruction and a goal state.

  Blocks and agent of an instance (see `instances`) are placed again, uniformly,
  until no two blocks share a cell and the ground truth holds.
  """
  codes = encode(language.chosen(instructions, all_instructions()))
  drawn = _draw(rng, count, codes, distractors)
  # Each round takes some of the pairs that have no goal state yet. It tries one
  # placement for each, or several when few pairs remain. This ends: for every
  # instruction some 3 % of the placements or more satisfy it.
  unsolved = np.arange(count)  # Indices of pairs.
  while len(unsolved):
    chosen = unsolved[:_TRIES]
    pairs = np.tile(chosen, max(1, _TRIES // len(chosen)))
    cells, agent = _propose_places(rng, drawn.blocks[pairs])
    proposed = drawn.take(pairs)._replace(cells=cells, agent=agent)
    possible = np.flatnonzero(~proposed.clash())
    pairs, proposed = pairs[possible], proposed.take(possible)
    hits = np.flatnonzero(
        satisfied(codes[proposed.instruction], proposed.state()))
    # The first success of each pair counts.
    solved, first = np.unique(pairs[hits], return_index=True)
    drawn.cells[solved] = proposed.cells[hits[first]]
    drawn.agent[solved] = proposed.agent[hits[first]]
    failed = np.isin(chosen, solved, invert=True)
    unsolved = np.concatenate([chosen[failed], unsolved[_TRIES:]])
  return world.Instances(drawn.instruction, drawn.state())
