"""The runs of experiments: read by setting, and averaged over seeds."""

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

_END_ROWS = 10  # The rows whose mean is a run's end.


class Run(NamedTuple):
  """What there is of one run."""
  path: str
  name: str  # The setting's.
  seed: int
  curve: dict[str, np.ndarray]  # The columns of metrics.csv.
  evaluations: dict[str, Any]  # By name, what agile_tf.evaluate --json said.
  config: config_lib.Config | None  # None if nobody knows.

  @property
  def is_replica(self) -> bool:
    """Whether its job is known to be smaller than the paper's."""
    return (self.config is not None and
            self.config.instructions not in experiments.PAPERS_INSTRUCTIONS)


class ResultError(program.UserError):
  """Runs that cannot be read, or do not belong together."""


def _evaluations(run_dir: str, setting: experiments.Setting
                ) -> dict[str, Any]:
  """Reads what was measured on a run."""
  found = {}
  for evaluation in setting.evaluations:
    path = os.path.join(run_dir, f'{evaluation.name}.json')
    if not os.path.exists(path):
      continue
    try:
      with open(path, encoding='utf-8') as file:
        found[evaluation.name] = files.parse_json(file.read())
      float(found[evaluation.name]['success']['all']['rate'])
    except (OSError, ValueError, TypeError, KeyError) as error:
      raise ResultError(
          f'{path} has no success rate ({type(error).__name__}: {error}): '
          'expected what agile_tf.evaluate --json prints.') from error
  return found


def _name_and_seed(run_dir: str, config: config_lib.Config | None
                  ) -> tuple[str, int]:
  """Tells from its name, or its configuration, which run this is."""
  match = re.fullmatch(
      r'(\w+?)(?:_seed(\d+))?', os.path.basename(os.path.abspath(run_dir)))
  if not match or match[1] not in experiments.SETTINGS:
    raise ResultError(
        f'{run_dir}: expected the directory of a run, or its metrics.csv, in a '
        'directory named NAME_seedN, with one of these names: '
        f'{", ".join(experiments.SETTINGS)}.')
  if match[2]:
    return match[1], int(match[2])
  return match[1], config.seed if config else 0


def load(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Reads runs, by setting. Those without a row yet are left out.

  Args:
    paths: Directories, or the files metrics.csv in them.

  Raises:
    ResultError, ConfigError or CurveError: if a path is not a run of a known
      setting, or two do not belong together.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    if os.path.basename(path) == 'metrics.csv':
      path = os.path.dirname(os.path.abspath(path))
    config_path = os.path.join(path, 'config.json')
    config = (
        config_lib.load(config_path) if os.path.exists(config_path) else None)
    name, seed = _name_and_seed(path, config)
    if os.path.isdir(path) and not os.path.exists(
        os.path.join(path, 'metrics.csv')):
      logging.warning('%s has no metrics.csv yet and is left out.', path)
      continue
    curve = curves.read(path)
    if not len(curve['steps']):
      logging.warning('%s has no row yet and is left out.', path)
      continue
    run = Run(path, name, seed, curve,
              _evaluations(path, experiments.SETTINGS[name]), config)
    others = runs.setdefault(name, [])
    _check_belongs(run, others)
    others.append(run)
  return {name: found for name, found in runs.items() if found}


def _check_belongs(run: Run, others: Sequence[Run]) -> None:
  """Checks that a run can be averaged with others of its setting."""
  for other in others:
    if other.seed == run.seed:
      raise ResultError(
          f'{run.path} and {other.path} are the same setting and seed: name '
          'one of them.')
    if (run.config is None) != (other.config is None):
      without, known = (
          (run, other) if run.config is None else (other, run))
      raise ResultError(
          f'{without.path} has no config.json, so that nobody knows whether it '
          f'can be averaged with {known.path}: copy it there from the run.')
    if run.config is None or other.config is None:
      continue
    # Fine-tuning begins with a run of its own seed.
    own = ('--seed:', '--reward_model:', '--initial_policy:')
    differences = [
        line for line in config_lib.differences(other.config, run.config)
        if not line.startswith(own)]
    if differences:
      raise ResultError(
          f'{run.path} cannot be averaged with {other.path}, which was trained '
          f'with other settings: {"; ".join(differences)}.')


class Mean(NamedTuple):
  """A curve over seeds."""
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N]
  deviation: np.ndarray  # float64 [N], the standard deviation
  complete: np.ndarray  # bool [N], whether all seeds have come so far


def deviation(values: np.ndarray | Sequence[float]) -> np.ndarray:
  """Returns the seeds' standard deviation [...] of [seeds, ...], 0 for one."""
  values = np.asarray(values, float)
  count = np.isfinite(values).sum(axis=0)
  squares = np.nansum((values - np.nanmean(values, axis=0))**2, axis=0)
  return np.sqrt(squares / np.maximum(count - 1, 1))


def mean_curve(runs: Sequence[Run], column: str) -> Mean | None:
  """Averages a column over seeds, each in the same intervals of steps.

  Where only some runs have come so far, they alone count.

  Returns:
    None if no run has the column.
  """
  runs = [run for run in runs
          if np.isfinite(run.curve.get(column, np.nan)).any()]
  if not runs:
    return None
  ends = [run.curve['steps'][-1] for run in runs]
  edges = curves.intervals(
      max(ends), max(len(run.curve['steps']) for run in runs))
  values = np.stack([curves.averaged(run.curve, column, edges)
                     for run in runs])
  drawn = np.isfinite(values).any(axis=0)
  values, last_steps = values[:, drawn], edges[1:][drawn]
  return Mean(
      last_steps, np.nanmean(values, axis=0), deviation(values),
      last_steps - (edges[1] - edges[0]) / 2 <= min(ends))


def end(run: Run, column: str) -> float:
  """Returns a run's mean over its last rows, NaN if it has none."""
  values = run.curve.get(column, np.array([]))
  values = values[np.isfinite(values)][-_END_ROWS:]
  return float(np.mean(values)) if len(values) else float('nan')


def are_replicas(runs: Iterable[Sequence[Run]]) -> bool:
  """Whether runs are on a smaller job than the paper's, all or none.

  Raises:
    ResultError: if some are and some are not.
  """
  found: dict[bool, Run] = {
      run.is_replica: run for of_setting in runs for run in of_setting}
  if len(found) > 1:
    raise ResultError(
        f'{found[True].path} is on a smaller job than {found[False].path}, and '
        'both belong into one figure: draw them apart.')
  return True in found


def rates(runs: Sequence[Run], evaluation: str, group: str = 'all',
          key: str = 'rate') -> list[float]:
  """The rates of a group of episodes that an evaluation of each seed has."""
  values = [run.evaluations[evaluation]['success'].get(group, {}).get(key)
            for run in runs if evaluation in run.evaluations]
  return [value for value in values if value is not None]
