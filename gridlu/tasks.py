"""The tasks by name, and what a program has to know of each.

A new one is a module with the names that `from_module` reads, or a variant of
another task, and in both cases a line in `TASKS`.
"""

from collections.abc import Callable, Sequence
import functools
import types
from typing import NamedTuple

import numpy as np

from gridlu import arrangements
from gridlu import language
from gridlu import relations
from gridlu import world


class Task(NamedTuple):
  """A task: its instructions, its ground truth and its generators."""
  title: str  # What people call it, such as 'GridLU-Relations'.
  instructions: Callable[[], tuple[language.Instruction, ...]]
  tokens: tuple[str, ...]  # All tokens of the instructions' trees.
  episode_length: int  # How many steps an episode has.
  # Whether `satisfied` may reward an agent. If not, it is a checker for
  # evaluation.
  has_ground_truth: bool
  # Encodes instructions as numbers, int32 [N, code size].
  encode: Callable[[Sequence[language.Instruction]], np.ndarray]
  # Takes codes, states and an array module; returns which states satisfy their
  # instruction, bool [...].
  satisfied: Callable[..., world.Array]
  # `instances` and `goal_states` take a generator, a count and instructions
  # (None for all). `instances` draws instructions and states to start from.
  # `goal_states` draws instructions and states that satisfy them, and also
  # takes `distractors`, the fewest and the most of them.
  instances: Callable[..., world.Instances]
  goal_states: Callable[..., world.Instances]
  # Takes an instruction and its episode's first state; returns the groups of an
  # evaluation's report that the episode counts towards. The state has no batch
  # dimensions, and is None if it is not known.
  groups: Callable[[language.Instruction, world.State | None], Sequence[str]]
  # The groups that reports show first, in this order. The others follow in the
  # order of the alphabet.
  first_groups: tuple[str, ...]
  # Whether a block that the agent carries counts as being in the agent's cell.
  # If not, no goal state of `goal_dataset` carries.
  carried_counts: bool = True

  @property
  def gym_id(self) -> str:
    """The task's Gymnasium id, such as 'GridLU-Relations-v0'."""
    return f'{self.title}-v0'


def from_module(module: types.ModuleType) -> Task:
  """Returns the task that a module such as `relations` implements."""
  return Task(
      title=module.TITLE,
      instructions=module.all_instructions,
      tokens=module.TOKENS,
      episode_length=module.EPISODE_LENGTH,
      has_ground_truth=module.HAS_GROUND_TRUTH,
      encode=module.encode,
      satisfied=module.satisfied,
      instances=module.instances,
      goal_states=module.goal_states,
      groups=module.groups,
      first_groups=module.FIRST_GROUPS)


_RELATIONS = from_module(relations)
_CROWD = (0, 3)  # The fewest and the most distractors; the paper has one.

# A task's name here is the `task` of its instructions. Only 'crowded' and
# 'put_down' differ: they have the instructions of 'relations'.
TASKS = {
    'relations': _RELATIONS,
    # Another reading of the paper: an instruction holds only once the agent has
    # put the block down.
    'put_down': _RELATIONS._replace(
        title='GridLU-PutDown',
        satisfied=functools.partial(relations.satisfied, carried_counts=False),
        carried_counts=False),
    'arrangements': from_module(arrangements),
    'crowded': _RELATIONS._replace(
        title='GridLU-Crowded',
        instances=functools.partial(relations.instances, distractors=_CROWD),
        goal_states=functools.partial(
            relations.goal_states, distractors=_CROWD)),
}


def find(name: str) -> Task:
  """Returns the task of this name."""
  if not isinstance(name, str) or name not in TASKS:
    raise ValueError(f'task is {name!r}: expected one of {tuple(TASKS)}.')
  return TASKS[name]


def satisfied(instruction: language.Instruction | str,
              states: world.State) -> world.Array:
  """Returns which states (NumPy) satisfy an instruction.

  The ground truth of GridLU-Relations decides, or the checker of
  GridLU-Arrangements. The task 'put_down' has a ground truth of its own.
  """
  checked = language.checked([instruction])
  task = find(checked[0].task)
  return task.satisfied(task.encode(checked)[0], states)
