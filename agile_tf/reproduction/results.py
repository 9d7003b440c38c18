"""Runs by variant, and the lines that figures show of them."""

from collections.abc import Sequence
import csv
import itertools
import os
import re
import sys
from typing import Any, NamedTuple

import numpy as np

from agile_tf import config as config_lib
from agile_tf import records
from agile_tf.recipe import settings
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from gridlu import files
from gridlu import program
from gridlu import schema


class Run(NamedTuple):
  """A run, as far as it has been carried out."""
  path: str
  seed: int
  curve: curves.Curve
  evaluations: dict[str, Any]  # What evaluate --output wrote, by name.
  config: config_lib.Config

  @property
  def on_papers_instructions(self) -> bool:
    """Whether its instructions are those of the paper."""
    return self.config.instructions in experiments.PAPERS_INSTRUCTIONS


def runs_by_variant(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Returns runs by variant. Runs without a row of metrics are left out.

  A directory has the name of its variant, or one of the user's own, and may end
  in `_seedN`. Raises UserError if a path is not a run, or if two runs of a
  variant cannot be averaged.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    config, _ = settings.load(os.path.join(path, 'config.json'))
    # A name need not be UTF-8, as the files of figures are.
    name = program.printable(
        re.sub(r'_seed\d+$', '', os.path.basename(os.path.abspath(path))))
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


def _share(value: Any, place: str) -> None:
  """Checks a rate of successes."""
  schema.number(value, place)
  schema.require(0 <= value <= 1, value, place, 'a number from 0 to 1')


_RATE = schema.named({'rate': _share}, {'interval': schema.each(_share, 2)})
_EVALUATION = schema.named({'success': schema.named({'all': _RATE})}, {
    'steps': schema.whole(0)})


def _evaluations(run_dir: str, variant: experiments.Variant
                ) -> dict[str, Any]:
  """Returns the evaluations of a run, by name."""
  found = {}
  for name in variant.evaluations:
    path = os.path.join(run_dir, f'{name}.json')
    try:
      report = records.json_file(path, schema.by_name(schema.anything))
      if 'success' not in report:
        continue  # The world has no ground truth.
      _EVALUATION(report, '')
      schema.by_name(_RATE)(report['success'], 'success')
      found[name] = report
    except FileNotFoundError:
      continue
    except (OSError, ValueError, MemoryError) as error:
      raise program.UserError(
          f'{path} has no success rate ({error}): '
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
    there, here = (
        config_lib.read(os.path.join(each.path, 'config.json'))
        for each in (other, run))
    differences = [
        line for line in config_lib.differences(there, here, settings.DEFAULTS)
        if not line.startswith(own)]
    if differences:
      raise program.UserError(
          f'{run.path} cannot be averaged with {other.path}, which has other '
          f'settings: {"; ".join(differences)}. Draw them separately.')


# A line shows a run's means over up to a hundred intervals; its moving average
# over the paper's window; its evaluations; or what the paper has.
_SOURCES = OURS, AVERAGED, EVALUATED, PAPER = (
    'ours', 'averaged', 'evaluated', 'paper')
_FIELDS = ['agent', 'source', 'seed', 'column', 'x', 'y', 'low', 'high']
# The least and the most of each number. Every y is a rate, and the ends of the
# paper's shaded areas may lie beyond 0 and 1.
_LIMITS = {'x': (0, 1e15), 'y': (0, 1), 'low': (-1, 1), 'high': (0, 2)}


class Line(NamedTuple):
  """What a figure shows of one run, or of the paper."""
  agent: str
  source: str
  seed: str  # It is empty for the paper.
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


def write_lines(path: str, lines: Sequence[Line]) -> None:
  """Writes the lines of a figure as CSV, a row for each point."""
  with files.replacing(path) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(_FIELDS)
    for line in lines:
      for x, *rates in line.points:
        writer.writerow([*line[:4], f'{x:.0f}', *(
            '' if np.isnan(rate) else f'{rate:.5f}' for rate in rates)])


def _check_row(row: dict[str, str]) -> None:
  """Raises a ValueError for a row that `write_lines` does not write."""
  if [*row] != _FIELDS:
    raise ValueError(f'the first line is not {",".join(_FIELDS)}')
  if row['source'] not in _SOURCES:
    raise ValueError(f'source is {row["source"]!r:.100}; expected one of '
                     f'{", ".join(_SOURCES)}')
  for name, (least, most) in _LIMITS.items():
    number = records.number(row[name], name)
    if not (least <= number <= most or
            np.isnan(number) and name in ('low', 'high')):
      raise ValueError(f'{name} is {row[name]!r:.100}; expected a number from '
                       f'{least} to {most:g}')


def read_lines(path: str) -> list[Line]:
  """Reads what `write_lines` wrote; UserError if it is another file."""
  try:
    rows = records.rows(path, check=_check_row)
    if not rows:
      raise ValueError('it has no rows')
    return [
        Line(agent, source, seed, column, np.array([
            [records.number(row[name], name) for name in _FIELDS[4:]]
            for row in points]))
        for (agent, source, seed, column), points in itertools.groupby(
            rows, lambda row: tuple(
                program.printable(row[name]) for name in _FIELDS[:4]))]
  except (OSError, ValueError) as error:
    raise program.UserError(
        f'{path} cannot be read ({error}): expected the CSV file of a figure, '
        'from agile_tf.figures.') from error
