"""The two tasks by name, for all that works on either of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gridlu import arrangements
from gridlu import instances as instances_lib
from gridlu import language
from gridlu import relations
from gridlu import world


class Task(NamedTuple):
  """What a task is made of."""
  instructions: Callable[[], tuple[language.Instruction, ...]]
  tokens: tuple[str, ...]  # Of the instructions' trees.
  episode_length: int  # The paper's, in steps.
  # Whether the paper has a ground truth for it, which may reward an agent. Of
  # Arrangements there is only a checker, for evaluation.
  has_ground_truth: bool
  # The rest are functions as in `relations`.
  encode: Callable[[Sequence[language.Instruction]], np.ndarray]
  satisfied: Callable[..., world.Array]
  instances: Callable[..., instances_lib.Instances]
  goal_states: Callable[..., instances_lib.Instances]


TASKS = {
    'relations': Task(
        language.relations_instructions, language.RELATIONS_TOKENS, 30, True,
        relations.encode, relations.satisfied, relations.instances,
        relations.goal_states),
    'arrangements': Task(
        language.arrangements_instructions, language.ARRANGEMENTS_TOKENS, 45,
        False, arrangements.encode, arrangements.satisfied,
        arrangements.instances, arrangements.goal_states),
}


def find(name: str) -> Task:
  """Returns a task.

  Args:
    name: 'relations' or 'arrangements'.

  Raises:
    ValueError: There is no such task.
  """
  if name not in TASKS:
    raise ValueError(f'task is {name!r}: expected one of {tuple(TASKS)}.')
  return TASKS[name]
