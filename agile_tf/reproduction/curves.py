"""Reads and averages the curves of runs, from `metrics.csv`."""

import csv
import os
from typing import NamedTuple

import numpy as np

from gridlu import program


class CurveError(program.UserError):
  """A metrics.csv that cannot be read."""


def read(path: str) -> dict[str, np.ndarray]:
  """Reads a `metrics.csv`.

  Args:
    path: The file, or the directory of its run.

  Returns:
    The columns by name, float64 [rows], NaN where a row is empty.

  Raises:
    CurveError: There is no such file, or it is not a metrics.csv.
  """
  if os.path.isdir(path):
    path = os.path.join(path, 'metrics.csv')
  try:
    with open(path, encoding='utf-8', newline='') as file:
      # Skips a row that is still being written: it has no end of line.
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


def averaged(curve: dict[str, np.ndarray], column: str, edges: np.ndarray
            ) -> np.ndarray:
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
  return np.divide(total, weight, out=np.full(len(weight), np.nan),
                   where=weight > 0)


def moving_average(curve: dict[str, np.ndarray], column: str,
                   ends: np.ndarray, window: float) -> np.ndarray:
  """Returns the means of a column over the steps before some points.

  Args:
    curve: From `read`.
    column: The column to average.
    ends: float64 [N], the points.
    window: How many steps before each point.

  Returns:
    float64 [N], NaN where the curve has not all these steps. 1 % may be missing
    because the first rows have no episode, and the last row ends where it can.
  """
  weight, total = (_totals(curve, column, ends) -
                   _totals(curve, column, ends - window))
  return np.divide(total, weight, out=np.full(len(weight), np.nan),
                   where=weight > 0.99 * window)


def _totals(curve: dict[str, np.ndarray], column: str, at: np.ndarray
           ) -> np.ndarray:
  """Returns the steps that have a value, and the sum of the values over them.

  Args:
    curve: From `read`.
    column: The column to sum up.
    at: float64 [N], the steps to count up to.

  Returns:
    float64 [2, N], the counts and the sums.
  """
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


# The most intervals that a run's curve is averaged over (the paper's have 126
# points). With many more, the maximum would be the maximum of the noise.
POINTS = 100


def intervals(longest: float, rows: int) -> np.ndarray:
  """Returns the ends of equal intervals: one for each row, at most `POINTS`."""
  return np.linspace(0, longest, min(POINTS, max(rows, 1)) + 1)


class Best(NamedTuple):
  """The part of a run with the highest rate."""
  steps: int  # The step of the row in which the part ends.
  rate: float


def best(curve: dict[str, np.ndarray], column: str = 'success_rate'
        ) -> Best | None:
  """Returns the part of a run with the highest rate; None without any rate.

  The rate of a part is its mean; a run has up to `POINTS` equal parts.

  Args:
    curve: From `read`.
    column: The column of the rate.
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
