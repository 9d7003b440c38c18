"""Goal states that an exchange makes wrong for their instruction.

A judge of goal states, such as a reward model, should accept a goal state and
reject it after the exchange. How many it accepts instead shows what it cannot
tell apart:

  'red, green'    the two colours are exchanged on the board;
  'circle, rect'  the two shapes are exchanged on the board;
  'direction'     the instruction names the opposite direction;
  'roles'         the two objects of a bring-to instruction are exchanged.

No block and no agent changes its cell. At most one word of an instruction
changes, or the order of its operands. So nothing else gives the exchange away.
States that still satisfy their instruction are left out.
"""

from collections.abc import Sequence
import itertools
from typing import NamedTuple

import numpy as np

from gridlu import language
from gridlu import tasks
from gridlu import world


class Exchanged(NamedTuple):
  """States that one exchange made; none of them satisfies its instruction."""
  instructions: tuple[str, ...]  # N texts.
  states: world.State  # Batch dimensions [N].


def _swapped_blocks(first: str, second: str) -> np.ndarray:
  """Returns what an exchange makes of each block code, int32 [10].

  `first` and `second` are two shapes or two colours.
  """
  other = {first: second, second: first}
  codes = [0]
  for code in range(1, world.NUM_BLOCK_CODES):
    shape, color = world.shape_and_color(code)
    codes.append(
        world.block(other.get(shape, shape), other.get(color, color)))
  return np.array(codes, np.int32)


def _opposite(instruction: language.Instruction
             ) -> language.Instruction | None:
  """Returns the instruction with the opposite direction, if it has one."""
  if not isinstance(instruction, language.Relation):
    return None
  opposite = instruction.twin.word  # A twin has the opposite direction.
  if opposite == instruction.word:  # SameLocation has no direction.
    return None
  return language.Relation(opposite, instruction.left, instruction.right)


def _with_objects_exchanged(instruction: language.Instruction
                           ) -> language.Instruction | None:
  """Returns a bring-to instruction with its two objects exchanged."""
  if not isinstance(instruction, language.Relation) or instruction.is_go_to:
    return None
  return language.Relation(
      instruction.word, instruction.right, instruction.left)


def exchanges(task: tasks.Task, instructions: Sequence[language.Instruction],
              seed: int = 0, count: int = 1000) -> dict[str, Exchanged]:
  """Draws goal states and makes every exchange of this module.

  An instruction that is not in the list after the exchange is left out.

  Args:
    task: A task of GridLU.
    instructions: Those to draw from, which a judge of the states knows.
    seed: The seed of the goal states.
    count: How many goal states are drawn. Each exchange has fewer of them,
      because it has only those that it makes wrong.

  Returns:
    For each name of an exchange the exchanged states. Exchanges without any
    state are left out.
  """
  drawn = task.goal_states(np.random.default_rng(seed), count, instructions)
  goals = [instructions[i] for i in drawn.instruction]
  candidates: dict[str, tuple[list[language.Instruction | None],
                              world.State]] = {}
  for words in world.COLORS, world.SHAPES:
    for first, second in itertools.combinations(words, 2):
      blocks = _swapped_blocks(first, second)[drawn.state.blocks]
      candidates[f'{first}, {second}'] = (
          list(goals), drawn.state._replace(blocks=blocks))
  candidates['direction'] = [_opposite(goal) for goal in goals], drawn.state
  candidates['roles'] = (
      [_with_objects_exchanged(goal) for goal in goals], drawn.state)

  known = set(instructions)
  found = {}
  for name, (changed, states) in candidates.items():
    chosen, rows = [], []
    for row, instruction in enumerate(changed):
      if instruction is not None and instruction in known:
        chosen.append(instruction)
        rows.append(row)
    if not rows:
      continue
    states = world.State(*(np.asarray(x)[rows] for x in states))
    fails = np.flatnonzero(~task.satisfied(task.encode(chosen), states))
    if len(fails):
      found[name] = Exchanged(
          tuple(str(chosen[i]) for i in fails),
          world.State(*(x[fails] for x in states)))
  return found
