"""The curves of runs: the columns of `metrics.csv`, and their averages."""

import os
from typing import NamedTuple

import numpy as np

from gridlu import files
from gridlu import program

# The columns of a metrics.csv by name, each float64 [rows].
Curve = dict[str, np.ndarray]

# The most intervals that a run's curve is averaged over (the paper's have 126
# points). With many more, the maximum would be the maximum of the noise.
POINTS = 100

_RATES = {'success_rate', 'reward_model_accuracy', 'false_positives',
          'false_negatives'}


def read(path: str) -> Curve:
  """Reads the metrics.csv at a path or in a run's directory; empty is NaN.

  Raises:
    UserError: There is no such file, or it is not a metrics.csv.
  """
  if os.path.isdir(path):
    path = os.path.join(path, 'metrics.csv')
  try:
    rows = files.read_rows(path)
    names = rows[0] if rows else {'steps': ''}
    if 'steps' not in names:
      raise ValueError('its first line does not name a column "steps"')
    curve = {
        name: np.array([float(row[name] or 'nan') for row in rows], float)
        for name in names}
    _check(curve)
    return curve
  except FileNotFoundError as error:
    raise program.UserError(
        f'There is no {path}: expected the metrics.csv of a run, or its '
        'directory.') from error
  except (OSError, ValueError, TypeError) as error:
    raise program.UserError(
        f'{path} cannot be read ({error}): expected the metrics.csv of a '
        'run.') from error


def _check(curve: Curve) -> None:
  """Raises ValueError unless steps increase, and rates are from 0 to 1."""
  for name, values in curve.items():
    good, expected = np.full(len(values), True), ''
    if name == 'steps':
      good = np.isfinite(values) & (np.diff(values, prepend=-1) > 0)
      expected = 'more than in the line before'
    elif name in _RATES:
      good = np.isnan(values) | (values >= 0) & (values <= 1)
      expected = '0 to 1'
    if not good.all():
      row = int(np.argmin(good))
      raise ValueError(f'line {row + 2}: {name} is {values[row]:.12g}, '
                       f'expected {expected}')


def intervals(longest: float, rows: int) -> np.ndarray:
  """Returns the ends of equal intervals: one for each row, at most `POINTS`."""
  return np.linspace(0, longest, min(POINTS, max(rows, 1)) + 1)


def averaged(curve: Curve, column: str, begins: np.ndarray, ends: np.ndarray,
             least: float = 0.0) -> np.ndarray:
  """Returns the means of a column over spans of steps, float64 [N].

  A row is the mean since the previous row. Its weight in a span is the number
  of steps that the row and the span share. A mean is NaN unless the curve has
  values for more than the share `least` of the span's steps.
  """
  weight, total = _totals(curve, column, ends) - _totals(curve, column, begins)
  return np.divide(total, weight, out=np.full(len(weight), np.nan),
                   where=weight > least * (ends - begins))


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
  steps = curve['steps']
  edges = intervals(max(steps, default=0), len(steps))
  rates = averaged(curve, column, edges[:-1], edges[1:])
  if not np.isfinite(rates).any():
    return None
  part = int(np.nanargmax(rates))
  row = np.searchsorted(steps, edges[part + 1] - 0.5)
  return Best(int(steps[row]), float(rates[part]))
