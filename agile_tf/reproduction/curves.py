"""The curves of runs, as `metrics.csv` has them."""

import csv
import os
from typing import NamedTuple

import numpy as np

from gridlu import program


class CurveError(program.UserError):
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
      # A row that is still being written has no end of line.
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
  """Averages a column over intervals of steps, wherever its rows stand.

  A row is the mean since the row before it, and counts in each interval for as
  many steps as the two share.

  Args:
    curve: From `read`.
    column: What to average.
    edges: float64 [N + 1], the intervals' ends, ascending.

  Returns:
    float64 [N], NaN where the curve has nothing.
  """
  steps = curve['steps']
  values = curve.get(column, np.full(len(steps), np.nan))
  known = np.isfinite(values)
  # Where each row begins and ends.
  begins = np.concatenate([[0.0], steps])[:-1][known]
  ends, values = steps[known], values[known]
  corners = np.stack([begins, ends], axis=1).reshape(-1)
  shares = np.stack([np.zeros(len(ends)), ends - begins], axis=1).reshape(-1)
  if not len(corners):
    return np.full(len(edges) - 1, np.nan)
  weight = np.interp(edges, corners, np.cumsum(shares))
  total = np.interp(
      edges, corners, np.cumsum(shares * np.repeat(values, 2)))
  weight, total = np.diff(weight), np.diff(total)
  return np.divide(total, weight, out=np.full(len(weight), np.nan),
                   where=weight > 0)


# A run's curve is looked at in at most this many intervals: the paper's have
# 126 points. The maximum over more and shorter ones would be one of noise.
POINTS = 100


def intervals(longest: float, rows: int) -> np.ndarray:
  """Returns the ends of equal intervals, at most `POINTS` and one a row."""
  return np.linspace(0, longest, min(POINTS, max(rows, 1)) + 1)


class Best(NamedTuple):
  """The best part of a run."""
  steps: int  # Where it ends.
  rate: float


def best(curve: dict[str, np.ndarray], column: str = 'success_rate'
        ) -> Best | None:
  """Returns where a rate was highest, None if it is nowhere.

  What is compared are the means over up to `POINTS` parts of the run.

  Args:
    curve: From `read`.
    column: Which rate.
  """
  if not len(curve['steps']):
    return None
  edges = intervals(curve['steps'][-1], len(curve['steps']))
  rates = averaged(curve, column, edges)
  if not np.isfinite(rates).any():
    return None
  part = int(np.nanargmax(rates))
  return Best(int(edges[part + 1]), float(rates[part]))
