"""Finds losses and gradients that are not finite."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class NumericsError(ArithmeticError):
  """A loss or a gradient norm that is not finite.

  Attributes:
    name: Its name.
    row: The index of its worker in the batch.
    value: Its value.
  """

  def __init__(self, name: str, row: int, value: float):
    super().__init__(f'{name} is {value}')
    self.name = name
    self.row = row
    self.value = value


def require_finite(values: Mapping[str, Any], rows: Sequence[int] | np.ndarray
                  ) -> None:
  """Checks that losses and gradient norms are finite.

  Args:
    values: float32 [rows] by name.
    rows: The worker of each row.

  Raises:
    NumericsError: for the first value that is not finite.
  """
  for name, value in values.items():
    value = np.atleast_1d(np.asarray(value))
    bad = np.flatnonzero(~np.isfinite(value))
    if len(bad):
      raise NumericsError(name, int(rows[bad[0]]), float(value[bad[0]]))
