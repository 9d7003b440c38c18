"""Goal states in which something was exchanged, so that they are none any more.

A judge of goal states, such as a reward model, should accept a goal state and
reject it after the exchange. How many it accepts instead shows what it cannot
tell apart:

  'red, green'    the two colours are exchanged on the board;
  'circle, rect'  the two shapes are exchanged on the board;
  'direction'     the instruction names the opposite direction;
  'roles'         the instruction's two operands are exchanged.

No block and no agent changes its cell, and at most one word of an instruction
or the order of its operands changes, so nothing else gives the exchange away.
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
  """Goal states of one exchange, which do not satisfy their instruction."""
  instructions: tuple[str, ...]  # N texts
  states: world.State  # Batch dimensions [N].


def _swapped_blocks(first: str, second: str) -> np.ndarray:
  """Returns the code of each block code after an exchange, int32 [10]."""
  other = {first: second, second: first}
  return np.array([0, *(
      world.block(*(
          other.get(word, word) for word in world.shape_and_color(code)))
      for code in range(1, world.NUM_BLOCK_CODES))], np.int32)


def _opposite(instruction: language.Instruction
             ) -> language.Instruction | None:
  """Returns the instruction with the opposite direction, if it has one."""
  if not isinstance(instruction, language.Relation):
    return None
  twin = instruction.twin
  if twin.word == instruction.word:  # SameLocation has no opposite.
    return None
  return language.Relation(twin.word, instruction.left, instruction.right)


def _turned(instruction: language.Instruction) -> language.Instruction | None:
  """Returns the instruction with its two operands exchanged, if it has two."""
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
    count: How many goal states are drawn. Each exchange has those of them that
      it changes, so it has fewer.

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
  candidates['roles'] = [_turned(goal) for goal in goals], drawn.state

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
