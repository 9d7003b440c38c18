"""Finds losses and gradients that are not finite."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class NumericsError(ArithmeticError):
  """A loss or a gradient norm that is not finite, and whose it is."""

  def __init__(self, name: str, row: int, value: float):
    super().__init__(f'{name} is {value}')
    self.name = name
    self.row = row  # Of its worker in the batch.
    self.value = value


def require_finite(values: Mapping[str, Any], rows: Sequence[int] | np.ndarray
                  ) -> None:
  """Raises NumericsError for the first of named values that is not finite.

  They are float32 [rows], where `rows` has the workers' indices.
  """
  for name, value in values.items():
    value = np.atleast_1d(np.asarray(value))
    bad = np.flatnonzero(~np.isfinite(value))
    if len(bad):
      raise NumericsError(name, int(rows[bad[0]]), float(value[bad[0]]))
