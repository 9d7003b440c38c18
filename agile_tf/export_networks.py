"""Copies a run with its networks alone, to give to others.

  python -m agile_tf.export_networks --run_dir=runs/quickstart \
      --output=quickstart

The new directory has the run's `config.json`, the rows of its `metrics.csv` up
to the checkpoint, and the checkpoint without the optimisers' slots, the replay
buffers and the episodes: about a third to a tenth of its size. All programs
that play or judge a run take this directory, and so do --initial_policy and
--reward_model. Only agile_tf.launch cannot resume it.
"""

from collections.abc import Sequence
import dataclasses
import os

from absl import flags
import numpy as np

from agile_tf import config as config_lib
from agile_tf.reproduction import curves
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import files
from gridlu import program


class ExportError(program.UserError):
  """A directory that networks cannot be exported to."""


def export(run_dir: str, output: str, step: int | None = None) -> int:
  """Copies a run with its networks alone.

  Args:
    run_dir: The run's directory.
    output: The directory to make.
    step: The step of the checkpoint; None for the newest.

  Returns:
    The step of the checkpoint.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint.
    CurveError: if its metrics.csv cannot be read.
    ExportError: if `output` is not empty or cannot be written.
  """
  # It needs TensorFlow, which --help does not.
  from agile_tf.evaluation import trained as trained_lib  # pylint: disable=g-import-not-at-top
  trained = trained_lib.load(run_dir, step)
  checkpoint = checkpoints.load(run_dir, trained.steps)
  # The directory's old name means nothing where the copy goes.
  config = dataclasses.replace(trained.config, run_dir='')
  metrics = _metrics(run_dir, trained.steps)
  names = [f'policy:{name}' for name in trained.policy.layout.names]
  if trained.phi is not None:
    names += [f'discriminator:{name}'
              for name in trained.discriminator.layout.names]
  try:
    os.makedirs(output, exist_ok=True)
    if os.listdir(output):
      raise ExportError(
          f'--output={output} is not empty; remove it or name another '
          'directory.')
    if metrics is not None:
      with files.replacing(os.path.join(output, 'metrics.csv')) as copy:
        copy.write(metrics)
  except OSError as error:
    raise ExportError(
        f'--output={output} cannot be written: {error}.') from error
  config_lib.save(config, os.path.join(output, 'config.json'))
  checkpoints.save(output, trained.steps, checkpoints.Checkpoint(
      {name: checkpoint.arrays[name] for name in names},
      {'config': dataclasses.asdict(config), 'steps': trained.steps,
       'tokens': checkpoint.values['tokens'], 'networks_alone': True}), keep=1)
  return trained.steps


def _metrics(run_dir: str, steps: int) -> str | None:
  """Returns metrics.csv up to a step; None if there is none."""
  path = os.path.join(run_dir, 'metrics.csv')
  if not os.path.exists(path):
    return None
  known = curves.read(run_dir)['steps']  # It leaves out an incomplete last row.
  with open(path, newline='', encoding='utf-8') as file:
    rows = file.read().splitlines(keepends=True)
  return ''.join(rows[:1 + np.count_nonzero(known <= steps)])


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
      'run_dir', None, "The run's directory.", required=True)
  flags.DEFINE_string(
      'output', None, 'The directory to make. It must be empty if it exists.',
      required=True)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')


@program.main()
def main(argv: Sequence[str]) -> None:
  """Exports the networks of a run."""
  del argv
  values = flags.FLAGS
  machine.prepare(config_lib.Config())
  steps = export(values.run_dir, values.output, values.checkpoint)
  print(f'{values.output}: the networks of {values.run_dir} at step {steps}')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
