"""GridLU: a small block world and its instruction language.

`GridLU` is the environment and `satisfied` the ground truth; the rest is in
the modules (`gridlu.goal_dataset`, which is also a program, is imported by
name).
"""

from gridlu import environment
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import world
from gridlu.environment import GridLU

__all__ = ('GridLU', 'environment', 'language', 'relations', 'rendering',
           'satisfied', 'world')


def satisfied(instruction: language.Instruction | str,
              states: world.State) -> world.Array:
  """Returns which states satisfy an instruction: the ground truth.

  For many different instructions at once see `relations.satisfied`.

  Args:
    instruction: A GridLU-Relations instruction, or its text.
    states: A batch of states (NumPy).

  Returns:
    bool [...], with the batch dimensions of `states`.

  Raises:
    language.InstructionError: The text is not an instruction.
    ValueError: The instruction is of GridLU-Arrangements, which has no ground
      truth yet.
  """
  if isinstance(instruction, str):
    instruction = language.parse(instruction)
  return relations.satisfied(relations.encode([instruction])[0], states)
