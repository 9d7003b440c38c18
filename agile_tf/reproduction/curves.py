"""The curves of runs: the columns of `metrics.csv`, and their averages."""

import os

import numpy as np

from agile_tf import records
from gridlu import program

# These columns of a metrics.csv, which figures show, are from 0 to 1.
_RATES = ('success_rate', 'reward_model_accuracy', 'false_positives',
          'false_negatives')

# The columns of a metrics.csv by name, each float64 [rows].
Curve = dict[str, np.ndarray]

# The most intervals that a run's curve is averaged over (the paper's have 126
# points). With many more, the maximum would be the maximum of the noise.
POINTS = 100


def read(run_dir: str) -> Curve:
  """Reads the metrics.csv in a run's directory.

  An empty cell is NaN. Without the file, the curve has no rows.

  Raises:
    UserError: if it is not a metrics.csv.
  """
  path = os.path.join(run_dir, 'metrics.csv')
  try:
    rows = records.rows(path, check=_check)
    steps = np.array([float(row['steps']) for row in rows], float)
    if wrong := np.flatnonzero(np.diff(steps) <= 0).tolist():
      raise ValueError(f'step {steps[wrong[0] + 1]:.0f} comes after step '
                       f'{steps[wrong[0]]:.0f}')
    return {'steps': steps} | {
        name: np.array([float(row[name] or 'nan') for row in rows], float)
        for name in (rows[0] if rows else ())}
  except FileNotFoundError:
    return {'steps': np.zeros(0)}
  except (OSError, ValueError) as error:
    raise program.UserError(
        f'{path} cannot be read ({error}): expected the metrics.csv of a '
        'run.') from error


def _check(row: dict[str, str]) -> None:
  """Raises a ValueError for a row that no run writes."""
  if 'steps' not in row:
    raise ValueError('the first line does not name a column "steps"')
  for name, text in row.items():
    number = records.number(text, name)
    if name == 'steps' and not 0 <= number < np.inf:
      raise ValueError(f'steps is {text!r}; expected a number')
    if name in _RATES and not (0 <= number <= 1 or np.isnan(number)):
      raise ValueError(
          f'{name} is {text!r:.100}; expected a number from 0 to 1')


def intervals(end: float, rows: int) -> np.ndarray:
  """Returns the edges of N equal intervals from 0 to `end`, float64 [N + 1].

  N is the number of rows, at least 1 and at most `POINTS`.
  """
  return np.linspace(0, end, min(POINTS, max(rows, 1)) + 1)


def averaged(curve: Curve, column: str, begins: np.ndarray, ends: np.ndarray,
             least: float = 0.5) -> np.ndarray:
  """Returns the means of a column over spans of steps, float64 [N].

  A row is the mean since the previous row. Its weight in a span is the number
  of steps that the row and the span share. A mean is NaN unless the curve has
  values for more than the share `least` of the span's steps.
  """
  weight, total = _totals(curve, column, ends) - _totals(curve, column, begins)
  return np.divide(total, weight, out=np.full(len(weight), np.nan),
                   where=weight > least * (ends - begins))


def _totals(curve: Curve, column: str, at: np.ndarray) -> np.ndarray:
  """Returns two sums over the steps up to each step of `at`, float64 [2, N].

  The first is the number of steps with a value; the second is the sum of the
  values of these steps.
  """
  steps = curve['steps']
  values = curve.get(column, np.full(len(steps), np.nan))
  known = np.isfinite(values)
  spans = np.where(known, np.diff(steps, prepend=0.0), 0.0)
  corners = np.concatenate([[0.0], steps])
  return np.stack([
      np.interp(at, corners, np.concatenate([[0.0], np.cumsum(each)]))
      for each in (spans, spans * np.where(known, values, 0.0))])


def best(curve: Curve) -> float:
  """Returns the highest success rate of up to `POINTS` equal parts of a run.

  It is NaN if the run has none.
  """
  steps = curve['steps']
  edges = intervals(max(steps, default=0), len(steps))
  rates = averaged(curve, 'success_rate', edges[:-1], edges[1:])
  return float(np.fmax.reduce(rates))
