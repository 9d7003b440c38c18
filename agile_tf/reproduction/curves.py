"""Reads and averages the curves of runs, from `metrics.csv`."""

import csv
import os
from typing import NamedTuple

import numpy as np

from gridlu import program

# The columns of a metrics.csv by name, each float64 [rows].
Curve = dict[str, np.ndarray]

# The most intervals that a run's curve is averaged over (the paper's have 126
# points). With many more, the maximum would be the maximum of the noise.
POINTS = 100


class CurveError(program.UserError):
  """A metrics.csv that cannot be read."""


def read(path: str) -> Curve:
  """Reads the metrics.csv at a path, or in a run's directory.

  An empty value is NaN. A last row that is still being written is left out.

  Raises:
    CurveError: There is no such file, or it is not a metrics.csv.
  """
  if os.path.isdir(path):
    path = os.path.join(path, 'metrics.csv')
  try:
    with open(path, encoding='utf-8', newline='') as file:
      reader = csv.DictReader(line for line in file if line.endswith('\n'))
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


def intervals(longest: float, rows: int) -> np.ndarray:
  """Returns the ends of equal intervals: one for each row, at most `POINTS`."""
  return np.linspace(0, longest, min(POINTS, max(rows, 1)) + 1)


def averaged(curve: Curve, column: str, edges: np.ndarray) -> np.ndarray:
  """Returns the means of a column over intervals of steps.

  A row is the mean since the previous row. Its weight in an interval is the
  number of steps that the row and the interval share.

  Args:
    curve: From `read`.
    column: The column to average.
    edges: float64 [N + 1], the ends of the intervals, ascending.

  Returns:
    float64 [N], NaN where the curve has no value.
  """
  weight, total = np.diff(_totals(curve, column, edges))
  return _ratio(total, weight, weight > 0)


def moving_average(curve: Curve, column: str, ends: np.ndarray,
                   window: float) -> np.ndarray:
  """Returns the means of a column over the `window` steps before each end.

  A mean is NaN where the curve has not all these steps. 1 % may be missing
  because the first rows have no episode, and the last row ends where it can.
  """
  weight, total = (_totals(curve, column, ends) -
                   _totals(curve, column, ends - window))
  return _ratio(total, weight, weight > 0.99 * window)


def _ratio(total: np.ndarray, weight: np.ndarray, known: np.ndarray
          ) -> np.ndarray:
  return np.divide(
      total, weight, out=np.full(len(weight), np.nan), where=known)


def _totals(curve: Curve, column: str, at: np.ndarray) -> np.ndarray:
  """Returns, up to each step of `at`, the steps with a value and their sum."""
  steps = curve['steps']
  values = curve.get(column, np.full(len(steps), np.nan))
  known = np.isfinite(values)
  # The steps at which each row begins and ends.
  begins = np.concatenate([[0.0], steps])[:-1][known]
  ends, values = steps[known], values[known]
  corners = np.stack([begins, ends], axis=1).reshape(-1)
  shares = np.stack([np.zeros(len(ends)), ends - begins], axis=1).reshape(-1)
  if not len(corners):
    return np.zeros((2, len(at)))
  return np.stack([
      np.interp(at, corners, np.cumsum(shares)),
      np.interp(at, corners, np.cumsum(shares * np.repeat(values, 2)))])


class Best(NamedTuple):
  """The part of a run with the highest rate."""
  steps: int  # The step of the row in which the part ends.
  rate: float


def best(curve: Curve, column: str = 'success_rate') -> Best | None:
  """Returns which of up to `POINTS` equal parts of a run has the highest mean.

  None if the curve has no value in this column.
  """
  if not len(curve['steps']):
    return None
  edges = intervals(curve['steps'][-1], len(curve['steps']))
  rates = averaged(curve, column, edges)
  if not np.isfinite(rates).any():
    return None
  part = int(np.nanargmax(rates))
  row = np.searchsorted(curve['steps'], edges[part + 1] - 0.5)
  return Best(int(curve['steps'][row]), float(rates[part]))
