"""The curves of runs, as `metrics.csv` has them."""

import csv
import os
from typing import NamedTuple

import numpy as np


class CurveError(ValueError):
  """A file of curves that cannot be read."""


def read(path: str) -> dict[str, np.ndarray]:
  """Reads a `metrics.csv`.

  Args:
    path: The file, or the directory of its run.

  Returns:
    Each column as float64 [rows], NaN where a row has nothing.

  Raises:
    CurveError: There is no such file, or it is not one of metrics.
  """
  if os.path.isdir(path):
    path = os.path.join(path, 'metrics.csv')
  try:
    with open(path, encoding='utf-8', newline='') as file:
      reader = csv.DictReader(file)
      rows = list(reader)
      names = reader.fieldnames or []
    if 'steps' not in names:
      raise ValueError('its first line does not name a column "steps"')
    return {
        name: np.array([float(row[name] or 'nan') for row in rows], float)
        for name in names}
  except FileNotFoundError as error:
    raise CurveError(
        f'There is no {path}: expected the metrics.csv of a run, or its '
        'directory.') from error
  except (OSError, ValueError, TypeError, csv.Error) as error:
    raise CurveError(
        f'{path} cannot be read ({error}): expected the metrics.csv of a '
        'run.') from error


class Best(NamedTuple):
  """The best row of a run."""
  steps: int
  rate: float


def best(curve: dict[str, np.ndarray]) -> Best | None:
  """Returns where the success rate was highest, None if it is nowhere."""
  rates = curve.get('success_rate', np.array([]))
  if not np.isfinite(rates).any():
    return None
  row = int(np.nanargmax(rates))
  return Best(int(curve['steps'][row]), float(rates[row]))
