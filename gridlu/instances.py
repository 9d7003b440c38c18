"""What a task draws: instructions, each with a state."""

from typing import NamedTuple

import numpy as np

from gridlu import world


class Instances(NamedTuple):
  """N instructions, each with a state to start from or a goal state."""
  instruction: np.ndarray  # int32 [N], indices into a list of instructions.
  state: world.State  # Batch dimensions [N].


def generator(seed: int | None) -> np.random.Generator:
  """Returns a random generator; None for a random seed."""
  if seed is not None and (not hasattr(seed, '__index__') or seed < 0):
    raise ValueError(f'seed is {seed!r}: expected a whole number from 0 up.')
  return np.random.default_rng(seed)
