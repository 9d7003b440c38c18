"""Runs by variant, and the lines that figures show of them."""

from collections.abc import Sequence
import csv
import itertools
import json
import os
import re
import sys
from typing import Any, NamedTuple

import numpy as np

from agile_tf import config as config_lib
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from gridlu import files
from gridlu import program


class Run(NamedTuple):
  """A run, as far as it has been carried out."""
  path: str
  seed: int
  curve: curves.Curve
  evaluations: dict[str, Any]  # By name, from agile_tf.evaluate --output.
  config: config_lib.Config

  @property
  def on_papers_instructions(self) -> bool:
    """Whether its instructions are those of the paper."""
    return self.config.instructions in experiments.PAPERS_INSTRUCTIONS


def load(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Returns runs by variant. Runs without a row of metrics are left out.

  A directory has the name of its variant, or one of the user's own, and may end
  in `_seedN`. Raises UserError if a path is not a run, or if two runs of a
  variant cannot be averaged.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    config = config_lib.load(os.path.join(path, 'config.json'))
    name = re.sub(r'_seed\d+$', '', os.path.basename(os.path.abspath(path)))
    curve = curves.read(path)
    if not len(curve['steps']):
      print(program.printable(f'Left out: {path} has no row of metrics yet.'),
            file=sys.stderr)
      continue
    found = runs.setdefault(name, [])
    found.append(Run(path, config.seed, curve,
                     _evaluations(path, experiments.variant(name)), config))
    _check_belongs(*found)
  return runs


def _evaluations(run_dir: str, variant: experiments.Variant
                ) -> dict[str, Any]:
  """Returns the evaluations of a run, by name."""
  found = {}
  for name in variant.evaluations:
    path = os.path.join(run_dir, f'{name}.json')
    try:
      with open(path, encoding='utf-8') as file:
        report = json.load(file)
      if isinstance(report, dict) and 'success' not in report:
        continue  # The world has no ground truth.
      float(report['success']['all']['rate'])
      found[name] = report
    except FileNotFoundError:
      continue
    except (OSError, ValueError, TypeError, KeyError) as error:
      raise program.UserError(
          f'{path} has no success rate ({type(error).__name__}: {error}): '
          'expected what agile_tf.evaluate --output writes.') from error
  return found


def _check_belongs(*runs: Run) -> None:
  """Raises UserError if the last run cannot be averaged with the others."""
  *others, run = runs
  for other in others:
    if other.seed == run.seed:
      raise program.UserError(
          f'{run.path} and {other.path} have the same variant and seed. Name '
          'only one of them.')
    # Each seed of fine-tuning starts from a different run.
    own = ('--seed:', '--reward_model:', '--initial_policy:')
    differences = [
        line for line in config_lib.differences(*(
            config_lib.read(os.path.join(each.path, 'config.json'))
            for each in (other, run)))
        if not line.startswith(own)]
    if differences:
      raise program.UserError(
          f'{run.path} cannot be averaged with {other.path}, which has other '
          f'settings: {"; ".join(differences)}. Draw them separately.')


# What a line shows: a run's means over up to a hundred intervals; its moving
# average over the paper's window; its evaluations; or the paper's curve.
OURS, AVERAGED, EVALUATED, PAPER = 'ours', 'averaged', 'evaluated', 'paper'
_FIELDS = ['agent', 'source', 'seed', 'column', 'x', 'y', 'low', 'high']


class Line(NamedTuple):
  """What a figure shows of one run, or of the paper."""
  agent: str
  source: str
  seed: str  # Empty for the paper.
  column: str
  points: np.ndarray  # float64 [N, 4]: x, y, its interval's ends (NaN: none).

  @classmethod
  def of(cls, agent: str, source: str, seed: int | str, column: str,
         x: Any, y: Any, low: Any = np.nan, high: Any = np.nan) -> 'Line':
    """Returns the line through the points of which y is finite."""
    points = np.stack(np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(a, float)) for a in (x, y, low, high))), 1)
    return cls(agent, source, str(seed), column,
               points[np.isfinite(points[:, 1])])


def rate(evaluation: dict[str, Any], group: str) -> tuple[float, ...]:
  """Returns a group's success rate and its interval, NaN where unknown."""
  success = evaluation['success'].get(group, {})
  return success.get('rate', np.nan), *success.get('interval', [np.nan] * 2)


def stack(lines: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
  """Returns the x of all lines, [N], and their y, [lines, N], NaN for none."""
  x = np.unique(np.concatenate([line.points[:, 0] for line in lines]))
  y = np.full((len(lines), len(x)), np.nan)
  for row, line in zip(y, lines, strict=True):
    row[np.searchsorted(x, line.points[:, 0])] = line.points[:, 1]
  return x, y


def write(path: str, lines: Sequence[Line]) -> None:
  """Writes the lines of a figure as CSV, a row for each point."""
  with files.replacing(path) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(_FIELDS)
    for line in lines:
      for x, *rates in line.points:
        writer.writerow([*line[:4], f'{x:.0f}', *(
            '' if np.isnan(rate) else f'{rate:.5f}' for rate in rates)])


def read(path: str) -> list[Line]:
  """Reads what `write` wrote; UserError if it is another file."""
  try:
    rows = files.read_rows(path)
    if not rows or [*rows[0]] != _FIELDS:
      raise ValueError(f'its first line is not {",".join(_FIELDS)}')
    return [
        Line(agent, source, seed, column, np.array([
            [float(row[name] or 'nan') for name in _FIELDS[4:]]
            for row in points]))
        for (agent, source, seed, column), points in itertools.groupby(
            rows, lambda row: tuple(row[name] for name in _FIELDS[:4]))]
  except (OSError, ValueError, TypeError) as error:
    raise program.UserError(
        f'{path} cannot be read ({error}): expected the CSV file of a figure, '
        'from agile_tf.figures.') from error
