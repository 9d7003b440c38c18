"""Reads the runs of experiments by variant, and averages them over seeds."""

from collections.abc import Iterable, Sequence
import os
import re
from typing import Any, NamedTuple

from absl import logging
import numpy as np

from agile_tf import config as config_lib
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from gridlu import files
from gridlu import program

_END_ROWS = 10  # The end of a run is the mean of this many last rows.


class Run(NamedTuple):
  """A run, as far as it has been carried out."""
  path: str
  name: str  # The name of its variant.
  seed: int
  curve: dict[str, np.ndarray]  # The columns of metrics.csv.
  evaluations: dict[str, Any]  # By name, output of agile_tf.evaluate --json.
  config: config_lib.Config | None  # None without a config.json.

  @property
  def is_replica(self) -> bool:
    """Whether it has other instructions than the paper's; False if unknown."""
    return (self.config is not None and
            self.config.instructions not in experiments.PAPERS_INSTRUCTIONS)


class ResultError(program.UserError):
  """Runs that cannot be read, or cannot be averaged or drawn together."""


def _evaluations(run_dir: str, variant: experiments.Variant
                ) -> dict[str, Any]:
  """Returns the evaluations of a run, by name."""
  found = {}
  for evaluation in variant.evaluations:
    path = os.path.join(run_dir, f'{evaluation.name}.json')
    if not os.path.exists(path):
      continue
    try:
      with open(path, encoding='utf-8') as file:
        found[evaluation.name] = files.parse_json(file.read())
      rate = found[evaluation.name]['success']['all']['rate']
      if not isinstance(rate, (int, float)):
        raise TypeError(f'its rate is {rate!r}')
    except (OSError, ValueError, TypeError, KeyError) as error:
      raise ResultError(
          f'{path} has no success rate ({type(error).__name__}: {error}): '
          'expected what agile_tf.evaluate --json prints.') from error
  return found


def _name_and_seed(run_dir: str, config: config_lib.Config | None
                  ) -> tuple[str, int]:
  """Returns the variant and the seed of a run."""
  name = os.path.basename(os.path.abspath(run_dir))
  match = re.fullmatch(r'(.+)_seed(\d+)', name)
  if match:
    return match[1], int(match[2])
  return name, config.seed if config else 0


def load(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Returns runs by variant. Runs without a row of metrics are left out.

  A variant is a key of `experiments.VARIANTS` or, for a run of the user's own,
  the name of its directory without `_seedN`.

  Args:
    paths: Run directories, or the metrics.csv in them.

  Raises:
    ResultError, ConfigError or CurveError: if a path is not a run, or two runs
      of a variant cannot be averaged.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    if os.path.basename(path) == 'metrics.csv':
      path = os.path.dirname(os.path.abspath(path))
    config_path = os.path.join(path, 'config.json')
    config = (
        config_lib.load(config_path) if os.path.exists(config_path) else None)
    name, seed = _name_and_seed(path, config)
    if not os.path.exists(os.path.join(path, 'metrics.csv')) and (
        config is not None or
        name in experiments.VARIANTS and os.path.isdir(path)):
      logging.warning('Left out: %s has no metrics.csv yet.', path)
      continue
    curve = curves.read(path)
    if not len(curve['steps']):
      logging.warning('Left out: the metrics.csv of %s has no row yet.', path)
      continue
    run = Run(path, name, seed, curve,
              _evaluations(path, experiments.variant(name)), config)
    others = runs.setdefault(name, [])
    _check_belongs(run, others)
    others.append(run)
  return {name: found for name, found in runs.items() if found}


def _check_belongs(run: Run, others: Sequence[Run]) -> None:
  """Raises ResultError if a run cannot be averaged with others."""
  for other in others:
    if other.seed == run.seed:
      raise ResultError(
          f'{run.path} and {other.path} have the same variant and seed. Name '
          'only one of them.')
    if (run.config is None) != (other.config is None):
      without, known = (
          (run, other) if run.config is None else (other, run))
      raise ResultError(
          f'{without.path} has no config.json, so its settings cannot be '
          f'compared with those of {known.path}. Copy config.json from the '
          'original run.')
    if run.config is None or other.config is None:
      continue
    # Each seed of fine-tuning starts from a different run.
    own = ('--seed:', '--reward_model:', '--initial_policy:')
    differences = [
        line for line in config_lib.differences(other.config, run.config)
        if not line.startswith(own)]
    if differences:
      raise ResultError(
          f'{run.path} cannot be averaged with {other.path}, which has other '
          f'settings: {"; ".join(differences)}. Draw them separately.')


class Mean(NamedTuple):
  """The mean of a curve over seeds."""
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N]
  deviation: np.ndarray  # float64 [N], the standard deviation
  complete: np.ndarray  # bool [N], whether all seeds have got so far


def deviation(values: np.ndarray | Sequence[float]) -> np.ndarray:
  """Returns the standard deviation over the first axis; 0 for one seed.

  NaNs are ignored.

  Args:
    values: [seeds, ...]

  Returns:
    float64 [...], with n - 1 in the denominator.
  """
  values = np.asarray(values, float)
  count = np.isfinite(values).sum(axis=0)
  squares = np.nansum((values - np.nanmean(values, axis=0))**2, axis=0)
  return np.sqrt(squares / np.maximum(count - 1, 1))


def mean_curve(runs: Sequence[Run], column: str, window: float = 0
              ) -> Mean | None:
  """Returns a column averaged over seeds, or None if no run has it.

  All seeds are averaged over the same intervals of steps. Where only some have
  got so far, the mean is over these.

  Args:
    runs: The seeds.
    column: The column of metrics.csv.
    window: If not 0, a value is a moving average over so many steps in place of
      its interval. Then it is also None if no run has so many.
  """
  runs = [run for run in runs
          if np.isfinite(run.curve.get(column, np.nan)).any()]
  if not runs:
    return None
  ends = [run.curve['steps'][-1] for run in runs]
  edges = curves.intervals(
      max(ends), max(len(run.curve['steps']) for run in runs))
  values = np.stack([
      curves.moving_average(run.curve, column, edges[1:], window) if window
      else curves.averaged(run.curve, column, edges) for run in runs])
  drawn = np.isfinite(values).any(axis=0)
  if not drawn.any():
    return None
  values, last_steps = values[:, drawn], edges[1:][drawn]
  return Mean(
      last_steps, np.nanmean(values, axis=0), deviation(values),
      last_steps - (edges[1] - edges[0]) / 2 <= min(ends))


def end(run: Run, column: str) -> float:
  """Returns the mean of a run's last rows; NaN if it has none."""
  values = run.curve.get(column, np.array([]))
  values = values[np.isfinite(values)][-_END_ROWS:]
  return float(np.mean(values)) if len(values) else float('nan')


def are_replicas(runs: Iterable[Sequence[Run]]) -> bool:
  """Returns whether the runs have a smaller job than the paper's.

  Raises:
    ResultError: if some do and some do not.
  """
  found: dict[bool, Run] = {
      run.is_replica: run for of_variant in runs for run in of_variant}
  if len(found) > 1:
    raise ResultError(
        f'{found[True].path} has a smaller job than {found[False].path}, but '
        'both belong in one figure. Draw them separately.')
  return True in found


class Point(NamedTuple):
  """The success rate of a checkpoint, as agile_tf.evaluate measured it."""
  steps: int
  rate: float
  low: float  # The 95 % confidence interval (Wilson's).
  high: float


def points(runs: Sequence[Run]) -> list[Point]:
  """Returns the evaluated success rates of runs, one for each.

  Runs without an evaluation, or without its steps or interval, are left out.
  """
  found = []
  for run in runs:
    evaluation = run.evaluations.get('evaluation', {})
    success = evaluation.get('success', {}).get('all', {})
    if 'steps' in evaluation and 'interval' in success:
      found.append(Point(
          evaluation['steps'], success['rate'], *success['interval']))
  return found


def rates(runs: Sequence[Run], evaluation: str, group: str = 'all',
          key: str = 'rate') -> list[float]:
  """Returns the rates of a group of episodes, one for each evaluated seed."""
  values = [run.evaluations[evaluation]['success'].get(group, {}).get(key)
            for run in runs if evaluation in run.evaluations]
  return [value for value in values if value is not None]
