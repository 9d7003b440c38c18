"""Losses and gradients that are not a number, or infinite."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class NumericsError(ArithmeticError):
  """A loss or a gradient that is not a number, or infinite.

  Attributes:
    name: Which one.
    row: Whose, of the workers that were computed together.
    value: What it is.
  """

  def __init__(self, name: str, row: int, value: float):
    super().__init__(f'{name} is {value}')
    self.name = name
    self.row = row
    self.value = value


def require_finite(values: Mapping[str, Any], rows: Sequence[int] | np.ndarray
                  ) -> None:
  """Checks losses and gradient norms.

  Args:
    values: By name, float32 [rows].
    rows: Whose they are.

  Raises:
    NumericsError: at the first that is not finite.
  """
  for name, value in values.items():
    value = np.atleast_1d(np.asarray(value))
    bad = np.flatnonzero(~np.isfinite(value))
    if len(bad):
      raise NumericsError(name, int(rows[bad[0]]), float(value[bad[0]]))
