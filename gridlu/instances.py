"""What a task draws: instructions, each with a state."""

from typing import NamedTuple

import numpy as np

from gridlu import world


class Instances(NamedTuple):
  """N instructions, each with a state to start from or a goal state."""
  instruction: np.ndarray  # int32 [N], indices into a list of instructions.
  state: world.State  # Batch dimensions [N].
