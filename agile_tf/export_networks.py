r"""Copies a run with its networks alone, to give to others.

  python -m agile_tf.export_networks --run_dir=runs/quickstart \
      --output=quickstart

The new directory has the run's `config.json`, the rows of its `metrics.csv` up
to the checkpoint, and the checkpoint without the optimiser states, the replay
buffers and the episodes. All programs that play or judge a run take it, and so
do --initial_policy and --reward_model. agile_tf.launch cannot resume it.

If the run has a discriminator, the directory `reward_model/` in the new one is
a copy of it alone, which can be given away on its own:
`agile_tf.load_reward_model` and --reward_model take it.
"""

import contextlib
import csv
import os
import shutil

from absl import flags

from agile_tf import config as config_lib
from agile_tf.evaluation import options
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import files
from gridlu import flagfiles
from gridlu import program


def export(run_dir: str, output: str, step: int | None = None,
           world: str = '', model: str = '') -> int:
  """Copies a run with its networks alone; returns the checkpoint's step."""
  # They need TensorFlow, which --help does not.
  from agile_tf.evaluation import trained as trained_lib
  from agile_tf.training import metrics
  from agile_tf.training import reward_models
  trained = trained_lib.load(run_dir, step, world=world, model=model)
  checkpoint = checkpoints.load(run_dir, trained.steps)
  # The directory's old name means nothing where the copy goes.
  settings = config_lib.read(os.path.join(run_dir, 'config.json')) | {
      'run_dir': ''}
  rows = [row for row in metrics.read(os.path.join(run_dir, 'metrics.csv'))
          if int(row['steps']) <= trained.steps]
  names = [f'policy:{name}' for name in trained.policy.layout.names]
  if trained.phi is not None:
    names += [f'discriminator:{name}'
              for name in trained.discriminator.layout.names]
  existed = os.path.isdir(output)
  try:
    os.makedirs(output, exist_ok=True)
    if os.listdir(output):
      raise program.UserError(
          f'--output={output} is not empty; remove it or name another '
          'directory.')
    with contextlib.ExitStack() as failed:
      # These run in reverse: what was written is removed, and then a directory
      # that the user had made is made again.
      if existed:
        failed.callback(os.makedirs, output, exist_ok=True)
      failed.callback(shutil.rmtree, output, ignore_errors=True)
      with files.replacing(os.path.join(output, 'metrics.csv')) as file:
        copy = csv.DictWriter(file, rows[0] if rows else ['steps'])
        copy.writeheader()
        copy.writerows(rows)
      config_lib.save(settings, os.path.join(output, 'config.json'))
      checkpoints.save(output, trained.steps, checkpoints.Checkpoint(
          {name: checkpoint.arrays[name] for name in names},
          {'config': settings, 'steps': trained.steps,
           'tokens': checkpoint.values['tokens'], 'networks_alone': True}),
                       keep=1)
      if trained.phi is not None:
        reward_models.save(
            os.path.join(output, reward_models.FOLDER_IN_RUN),
            trained.saved_reward_model())
      failed.pop_all()  # Nothing failed, so it stays.
  except OSError as error:
    raise program.UserError(
        f'--output={output} cannot be written: {error}.') from error
  return trained.steps


def _define_flags() -> None:
  options.define_run()
  program.define_path(
      'output', None, 'The directory to make. It must be empty if it exists.',
      required=True)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Exports the networks of a run."""
  values = flags.FLAGS
  options.check(
      values.run_dir, values.checkpoint, values.world, values.model)
  files.check_directory('output', values.output)
  machine.prepare(config_lib.Config())  # It reads only `devices`, here 'auto'.
  steps = export(
      values.run_dir, values.output, values.checkpoint, values.world,
      values.model)
  print(program.printable(
      f'{values.output}: the networks of {values.run_dir} at step {steps}'))


if __name__ == '__main__':
  main()
