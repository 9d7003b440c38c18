"""The start and the end of a run: its checks, its lock, signals and left-overs.

Nothing here imports TensorFlow, which takes ten seconds. So mistakes that can
be found without it are reported at once, and signals are handled from the first
moment on.
"""

from collections.abc import Iterator, Mapping
import contextlib
import os
from typing import Any, NamedTuple

from absl import logging

from agile_tf import code_checks
from agile_tf import config as config_lib
from agile_tf import records
from agile_tf.training import checkpoints
from agile_tf.training import reward_models
from agile_tf.training import run_lock
from agile_tf.training import selection
from agile_tf.training import signals as signals_lib
from gridlu import goal_dataset
from gridlu import program
from gridlu import tasks

_CONFIG, _METRICS = 'config.json', 'metrics.csv'
_CHECKPOINTS, _EVENTS = 'checkpoints', 'events.out.tfevents.'


class Begun(NamedTuple):
  """The lock and the signals, which a run has from its first moment on."""
  check_lock: run_lock.Check  # See `run_lock.hold`.
  signals: signals_lib.Signals


@contextlib.contextmanager
def begin(config: config_lib.Config, settings: Mapping[str, Any],
          defaults: Mapping[str, Any]) -> Iterator[Begun]:
  """Checks the settings of a run and holds its directory.

  `settings` are all settings by name. Among them are those that `config` does
  not have, whose `defaults` an earlier run has that lacks them. A new run that
  ends before its first row and its first checkpoint leaves no files, so that
  the command can be changed and given again.

  Raises:
    UserError: if a setting cannot be right, or another process has the run.
    KeyboardInterrupt: if a signal has stopped it before it began.
  """
  with (signals_lib.Signals() as signals,
        run_lock.hold(config.run_dir) as check_lock,
        _without_left_overs(config.run_dir, check_lock)):
    check_same_run(config.run_dir, settings, defaults)
    check(config)
    try:
      yield Begun(check_lock, signals)
    except KeyboardInterrupt:
      if signals.stopped:  # Something else may raise it, such as a world.
        logging.info(
            'Stopped before the run began; there is nothing to save.%s',
            ' What it had saved before is still there.'
            if checkpoints.steps(config.run_dir) else '')
      raise


@contextlib.contextmanager
def _without_left_overs(run_dir: str, check_lock: run_lock.Check
                       ) -> Iterator[None]:
  """Removes the files of a new run that has made nothing by the block's end."""
  before = {*os.listdir(run_dir)}
  try:
    yield
  finally:
    with contextlib.suppress(OSError, program.UserError):
      check_lock()  # The files may be another run's by now.
      if _CONFIG not in before and not _has_made_something(run_dir):
        for name in {*os.listdir(run_dir)} - before:
          path = os.path.join(run_dir, name)
          if name in (_CONFIG, _METRICS) or name.startswith(_EVENTS):
            os.remove(path)
          elif name == _CHECKPOINTS:  # Not one could be saved in it.
            os.rmdir(path)


def _has_made_something(run_dir: str) -> bool:
  """Returns whether a run has a checkpoint or a row, or had rows before.

  A file that cannot be read counts as rows.
  """
  if checkpoints.steps(run_dir) or os.path.exists(
      os.path.join(run_dir, f'{_METRICS}.1')):
    return True
  try:
    return bool(records.rows(os.path.join(run_dir, _METRICS)))
  except FileNotFoundError:
    return False
  except (OSError, ValueError):
    return True


def config_path(run_dir: str) -> str:
  """Returns the path of a run's settings."""
  return os.path.join(run_dir, _CONFIG)


def check_same_run(run_dir: str, settings: Mapping[str, Any],
                   defaults: Mapping[str, Any]) -> None:
  """Raises ConfigError if a directory has a run with other settings.

  One that has made nothing may be begun again with any settings. `settings` and
  `defaults` are those of `begin`.
  """
  path = config_path(run_dir)
  try:
    saved = config_lib.read(path)
  except config_lib.MissingError:
    if checkpoints.steps(run_dir):
      raise config_lib.ConfigError(
          f'--run_dir={run_dir} has checkpoints but no config.json with their '
          'settings. Put it back, or choose another --run_dir.') from None
    return
  config_lib.check_names(config_lib.complete(saved, defaults), settings, path)
  if not _has_made_something(run_dir):
    return
  if differences := config_lib.differences(saved, settings, defaults):
    raise config_lib.ConfigError(
        f'--run_dir={run_dir} contains a run with other settings:\n  ' +
        '\n  '.join(differences) +
        '\nTo resume that run, use its settings. For a new run, choose another '
        '--run_dir.')


def check(config: config_lib.Config) -> None:
  """Raises UserError for a setting that names something which is not there.

  It also raises one if --branch_from begins where the run has ended.
  """
  code_checks.check_module(config.world)
  if config.world in tasks.TASKS:
    selection.instructions(config)
  if config.dataset and not os.path.exists(config.dataset):
    goal_dataset.load(config.dataset)  # Raises an error that says so.
  if not checkpoints.steps(config.run_dir):  # Resuming needs none of this.
    if config.reward_model and not reward_models.is_one(config.reward_model):
      checkpoints.find(config.reward_model)
    if config.initial_policy:
      checkpoints.find(config.initial_policy)
    if config.branch:
      _, step = config.branch
      if step >= config.steps:
        raise config_lib.ConfigError(
            f'--branch_from={config.branch_from} begins at step {step}, where '
            f'a run of --steps={config.steps} has ended; make --steps larger.')
      checkpoints.find(*config.branch)
