"""The GridLU-Arrangements task: forms, instances, goal states and a checker.

Implements section 3.4 and appendix G of the paper. The paper has no ground
truth for this task; people judged the results. `satisfied` is our checker for
evaluation: do not train with it. An instruction holds if the blocks that fit
its description (with SCENE: all blocks) are exactly four and stand in one of
its word's placements: any position on the board, turned and mirrored in any
way.
"""

from collections.abc import Sequence

import numpy as np

from gridlu import language
from gridlu import world

TITLE = 'GridLU-Arrangements'
EPISODE_LENGTH = 45
HAS_GROUND_TRUTH = False
TOKENS = language.ARRANGEMENTS_TOKENS
FIRST_GROUPS = ('4 blocks', '8 blocks')  # Reports show these groups first.
all_instructions = language.arrangements_instructions

CODE_SIZE = 2  # How many numbers encode an instruction.
_FORM_SIZE = 4  # How many blocks a form has.

# One example of each form, as figure 3 draws them.
_FORMS = {
    'Square': ('xx', 'xx'),
    'Line': ('xxxx',),
    'Dline': ('x...', '.x..', '..x.', '...x'),
    'Triangle': ('xxx', '.x.'),
    'Circle': ('.x.', 'x.x', '.x.'),
    'Eel': ('x.', 'x.', 'xx'),
    'Snake': ('xx.', '.xx'),
}
# The forms from which the generator draws for each word.
_FORMS_OF = {
    **{form: (form,) for form in _FORMS},
    'Connected': ('Line', 'Square', 'Eel', 'Snake', 'Triangle'),
    'Disconnected': ('Dline', 'Circle'),
}


def _placements(form: str) -> np.ndarray:
  """Returns every placement of a form, int32 [P, 4], its cells in order."""
  example = np.array([[c == 'x' for c in row] for row in _FORMS[form]])
  found = set()
  for turned in range(4):
    for mirrored in (example, example[:, ::-1]):
      rows, columns = np.nonzero(np.rot90(mirrored, turned))
      for down in range(world.SIZE - rows.max()):
        for right in range(world.SIZE - columns.max()):
          found.add(tuple(
              sorted(world.SIZE * (rows + down) + columns + right)))
  return np.array(sorted(found), np.int32)


_FORM_PLACEMENTS = {form: _placements(form) for form in _FORMS}

# Each word's placements: int32 [P, 4], cells 5 * row + column in order.
PLACEMENTS = {
    word: np.concatenate([_FORM_PLACEMENTS[form] for form in _FORMS_OF[word]])
    for word in language.Arrangement.words}

# int32 [words, placements]: each placement as a set of cells (see
# `world.BITS`). Words with fewer placements are padded with -1, which is no set
# of cells.
_SETS = np.full(
    (len(PLACEMENTS), max(map(len, PLACEMENTS.values()))), -1, np.int32)
for _row, _placed in zip(_SETS, PLACEMENTS.values()):
  _row[:len(_placed)] = np.sum(world.BITS[_placed], axis=1)
# int32 [4 * 10]: 1 at 10 * (1 + colour) + block if the block fits the colour,
# else 0. Colour -1 is any.
_FITS = np.array(
    [language.Blocks(color).fits(block) for color in (None, *world.COLORS)
     for block in range(world.NUM_BLOCK_CODES)], np.int32)


def encode(instructions: Sequence[language.Instruction]) -> np.ndarray:
  """Encodes instructions, int32 [N, 2]: word, and colour or -1 for any."""
  codes = np.zeros((len(instructions), CODE_SIZE), np.int32)
  for i, instruction in enumerate(instructions):
    target = instruction.right
    # `Arrangement.problem` allows no other.
    assert isinstance(target, language.Blocks)
    codes[i] = [language.Arrangement.words.index(instruction.word),
                world.COLORS.index(target.color) if target.color else -1]
  return codes


def satisfied(codes: world.Array, states: world.State,
              xp: world.ArrayModule = np) -> world.Array:
  """Returns which states satisfy their instruction, bool [...].

  Batch dimensions of codes (see `encode`) and states broadcast together. This
  is the checker for evaluation: do not train with it.
  """
  codes = xp.asarray(codes, np.int32)
  blocks = xp.asarray(states.blocks, np.int32)
  row = ((1 + codes[..., 1]) * world.NUM_BLOCK_CODES)[..., None, None]
  cells = xp.sum(
      xp.take(_FITS, row + blocks) * world.BITS.reshape(world.SIZE, world.SIZE),
      axis=(-2, -1), dtype=np.int32)
  sets = xp.take(_SETS, codes[..., 0], axis=0)
  return xp.any(sets == cells[..., None], axis=-1)


def groups(instruction: language.Instruction,
           start: world.State | None) -> Sequence[str]:
  """Returns the groups of a report to which an episode belongs.

  They are its number of blocks, if that is known, and its word.
  """
  if start is None:
    return (instruction.word,)
  return f'{np.count_nonzero(start.blocks)} blocks', instruction.word


def _propose(rng: np.random.Generator, count: int, codes: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Draws the instructions and the blocks of N instances, but no cells.

  Args:
    rng: The generator.
    count: The number of instances, N.
    codes: The instructions to draw from, as `encode` returns them.

  Returns:
    Three arrays [N]: the index of the instruction, int32, the block code of the
    four blocks that it is about, and the block code of the distractors, which
    is 0 where there are none.
  """
  # The instructions that name no colour, and those that name one.
  plain = np.flatnonzero(codes[:, 1] < 0)
  colored = np.flatnonzero(codes[:, 1] >= 0)
  share = .5 if len(plain) and len(colored) else float(len(plain) > 0)
  is_plain = rng.random(count) < share
  instruction = np.zeros(count, np.int32)
  for pool, chosen in ((plain, is_plain), (colored, ~is_plain)):
    if chosen.any():
      instruction[chosen] = pool[rng.integers(len(pool), size=chosen.sum())]
  color = codes[instruction, 1]
  color = np.where(is_plain, rng.integers(len(world.COLORS), size=count), color)
  other = (color + rng.integers(1, len(world.COLORS), size=count)) % len(
      world.COLORS)
  rect = world.block('rect', world.COLORS[0])
  return instruction, rect + color, np.where(is_plain, 0, rect + other)


def _put(board: np.ndarray, cells: np.ndarray, code: np.ndarray) -> None:
  """Puts blocks of one code [N] into cells of int [N, 25] boards."""
  np.put_along_axis(board, cells, code[:, None].astype(board.dtype), axis=1)


def instances(
    rng: np.random.Generator, count: int,
    instructions: Sequence[language.Instruction] | None = None
) -> world.Instances:
  """Draws task instances: instructions and states to start from.

  Half have four rects of one colour and an instruction that names no colour.
  The other half have four rects each of two colours, one of which the
  instruction names. If all instructions are of one kind, so are the instances.
  Blocks and agent are in different random cells. The agent is free.
  """
  codes = encode(language.chosen(instructions, all_instructions()))
  instruction, target, distractor = _propose(rng, count, codes)
  cells = np.argsort(rng.random((count, world.NUM_CELLS)), axis=1)
  board = np.zeros((count, world.NUM_CELLS), np.int32)
  _put(board, cells[:, :_FORM_SIZE], target)
  _put(board, cells[:, _FORM_SIZE:2 * _FORM_SIZE], distractor)
  return world.Instances(
      instruction, world.free_agents(board, cells[:, 2 * _FORM_SIZE]))


def goal_states(
    rng: np.random.Generator, count: int,
    instructions: Sequence[language.Instruction] | None = None,
    distractors: tuple[int, int] = (_FORM_SIZE, _FORM_SIZE)
) -> world.Instances:
  """Draws goal examples: pairs of an instruction and a goal state.

  The blocks that the instruction is about stand in a form that its word means.
  The form is drawn uniformly (Connected and Disconnected have several), then
  its placement. If the instruction names a colour, there are distractors of
  another colour. `distractors` are the fewest and the most of them; the paper
  has four. They are uniform over the other cells, and the free agent over all.
  """
  world.check_distractors(distractors, world.NUM_CELLS - _FORM_SIZE)
  codes = encode(language.chosen(instructions, all_instructions()))
  instruction, target, distractor = _propose(rng, count, codes)
  form_cells = np.zeros((count, _FORM_SIZE), np.int32)
  # Numbers from 0 to 1, which choose a form and a placement for each instance.
  form_draws, placement_draws = rng.random((2, count))
  for index, word in enumerate(language.Arrangement.words):
    forms = _FORMS_OF[word]
    drawn_form = (form_draws * len(forms)).astype(np.int32)
    for i, form in enumerate(forms):
      chosen = np.flatnonzero(
          (codes[instruction, 0] == index) & (drawn_form == i))
      placements = _FORM_PLACEMENTS[form]
      form_cells[chosen] = placements[
          (placement_draws[chosen] * len(placements)).astype(np.int32)]
  # Sorted by these numbers, the cells are in random order, with the form last.
  order = rng.random((count, world.NUM_CELLS))
  np.put_along_axis(order, form_cells, 1.0, axis=1)
  fewest, most = distractors
  others = np.argsort(order, axis=1)[:, :most]
  board = np.zeros((count, world.NUM_CELLS), np.int32)
  if fewest == most:
    _put(board, others, distractor)
  else:
    number = rng.integers(fewest, most + 1, size=(count, 1))
    kept = np.where(np.arange(most) < number, distractor[:, None], 0)
    np.put_along_axis(board, others, kept.astype(board.dtype), axis=1)
  _put(board, form_cells, target)
  agent = rng.integers(world.NUM_CELLS, size=count)
  return world.Instances(instruction, world.free_agents(board, agent))
