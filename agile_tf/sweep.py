"""Runs an experiment of the paper: its settings, each with several seeds.

  python -m agile_tf.sweep figure4_left
  python -m agile_tf.sweep figure4_left --laptop

Runs are made one after another in --runs. What is finished is not run again,
and what was stopped goes on. --commands prints a line for each run in place of
running it, for a cluster's job array; --status prints how far each one is.
"""

from collections.abc import Iterable, Sequence
import os
import shlex
import subprocess
import sys
from typing import NamedTuple

from absl import app
from absl import flags

from agile_tf import checkpoints
from agile_tf import config as config_lib
from agile_tf import curves
from agile_tf import experiments


class Job(NamedTuple):
  """A run of a setting with a seed, and what is measured on it."""
  name: str
  seed: int
  run_dir: str
  launch: list[str]  # Arguments of agile_tf.launch.
  # From the JSON file to write to the arguments of agile_tf.evaluate.
  evaluations: dict[str, list[str]]


def jobs(experiment: str, runs: str, seeds: Sequence[int], laptop: bool,
         extra: Sequence[str] = ()) -> list[Job]:
  """Lists the runs of an experiment, in an order in which they can be made.

  Args:
    experiment: A key of `experiments.EXPERIMENTS`.
    runs: The directory for their directories.
    seeds: Which seeds.
    laptop: Whether to use the quickstart's job and hyperparameters.
    extra: Flags for every run.
  """
  names = experiments.EXPERIMENTS[experiment].names(laptop)
  return [_job(name, seed, runs, laptop, extra)
          for seed in seeds for name in names]


def _job(name: str, seed: int, runs: str, laptop: bool,
         extra: Sequence[str]) -> Job:
  setting = experiments.SETTINGS[name]
  run_dir = os.path.join(runs, f'{name}_seed{seed}')
  after = os.path.join(runs, f'{setting.after}_seed{seed}')
  flagfiles = [setting.flagfile]
  if laptop:
    flagfiles.insert(0, 'quickstart')
  launch = [f'--flagfile=launch/{flagfile}.flags' for flagfile in flagfiles]
  launch += [*setting.flags, *(setting.laptop if laptop else ()), *extra]
  measured = setting.evaluations
  if laptop and setting.laptop_evaluations:
    measured = setting.laptop_evaluations
  evaluations = {
      os.path.join(run_dir, f'{evaluation.name}.json'): [
          f'--run_dir={run_dir}', *evaluation.flags, '--json']
      for evaluation in measured}

  def fill(arguments: Iterable[str]) -> list[str]:
    return [argument.replace('{after}', after) for argument in arguments]

  return Job(
      name, seed, run_dir,
      [*fill(launch), f'--run_dir={run_dir}', f'--seed={seed}'],
      {path: fill(arguments) for path, arguments in evaluations.items()})


def _command(program: str, arguments: Sequence[str]) -> list[str]:
  return [sys.executable, '-m', f'agile_tf.{program}', *arguments]


def shell_line(job: Job) -> str:
  """Returns a job as one line for a shell."""
  parts = [shlex.join(['python', *_command('launch', job.launch)[1:]])]
  for path, arguments in job.evaluations.items():
    parts.append(
        shlex.join(['python', *_command('evaluate', arguments)[1:]]) +
        f' > {shlex.quote(path)}')
  return ' && '.join(parts)


class Progress(NamedTuple):
  """How far a run is."""
  steps: int  # At its newest checkpoint.
  total: int | None  # None: it has not begun.
  success: float | None  # The last row of its metrics.

  @property
  def finished(self) -> bool:
    """Whether there is nothing left to train."""
    return self.total is not None and self.steps >= self.total


def progress(run_dir: str) -> Progress:
  """Looks at a run's directory.

  Raises:
    ConfigError or CurveError: if its files cannot be read.
  """
  path = os.path.join(run_dir, 'config.json')
  if not os.path.exists(path):
    return Progress(0, None, None)
  steps = (checkpoints.steps(run_dir) or [0])[-1]
  success = None
  if os.path.exists(os.path.join(run_dir, 'metrics.csv')):
    rates = curves.read(run_dir).get('success_rate')
    if rates is not None and len(rates):
      success = float(rates[-1])
  return Progress(steps, config_lib.load(path).steps, success)


def table(todo: Sequence[Job]) -> str:
  """Formats how far the runs are."""
  width = max(len(job.run_dir) for job in todo)
  lines = [f'{"run":{width}} {"steps":>12} {"of":>12} {"success":>8}']
  for job in todo:
    steps, total, success = progress(job.run_dir)
    of = '-' if total is None else str(total)
    rate = '' if success is None else f'{100 * success:.1f} %'
    lines.append(
        f'{job.run_dir:{width}} {steps:12} {of:>12} {rate:>8}'.rstrip())
  return '\n'.join(lines)


def run(job: Job) -> bool:
  """Makes a run, or the rest of it, and measures what is not measured yet.

  Returns:
    Whether it is finished; False if somebody stopped it.

  Raises:
    subprocess.CalledProcessError: if it failed.
  """
  if not progress(job.run_dir).finished:
    subprocess.run(_command('launch', job.launch), check=True)
    if not progress(job.run_dir).finished:
      return False
  for path, arguments in job.evaluations.items():
    if os.path.exists(path):
      continue
    result = subprocess.run(
        _command('evaluate', arguments), check=True, stdout=subprocess.PIPE)
    with open(f'{path}.part', 'wb') as file:
      file.write(result.stdout)
    os.replace(f'{path}.part', path)
  return True


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_bool(
      'laptop', False, "Use the quickstart's job and hyperparameters, that a "
      "laptop can carry out, in place of the paper's.")
  flags.DEFINE_integer(
      'seeds', None, "How many seeds; default: the paper's number, or 3 on a "
      'laptop.', lower_bound=1)
  flags.DEFINE_integer('first_seed', 0, 'The first seed.', lower_bound=0)
  flags.DEFINE_string(
      'runs', None,
      'The directory for the runs; default: runs, or runs/laptop.')
  flags.DEFINE_bool(
      'commands', False, 'Print a line for each run, and do not run it.')
  flags.DEFINE_bool('status', False, 'Print how far each run is.')
  flags.DEFINE_multi_string(
      'set', [], 'A flag for every run, without dashes: '
      '--set=policy_threads=3.')


def main(argv: Sequence[str]) -> None:
  """Carries an experiment out."""
  known = '\n'.join(
      f'  {name:15} {experiment.title}'
      for name, experiment in experiments.EXPERIMENTS.items())
  if len(argv) != 2 or argv[1] not in experiments.EXPERIMENTS:
    sys.exit('Error: name one of the experiments, such as "python -m '
             f'agile_tf.sweep figure4_left":\n{known}')
  values = flags.FLAGS
  experiment = experiments.EXPERIMENTS[argv[1]]
  count = values.seeds or (3 if values.laptop else experiment.seeds)
  todo = jobs(
      argv[1], values.runs or ('runs/laptop' if values.laptop else 'runs'),
      range(values.first_seed, values.first_seed + count), values.laptop,
      [f'--{flag}' for flag in values.set])
  if values.commands:
    print('\n'.join(map(shell_line, todo)))
    return
  try:
    if values.status:
      print(table(todo))
      return
    for i, job in enumerate(todo):
      print(f'{i + 1} of {len(todo)}: {job.run_dir}', flush=True)
      if not run(job):
        print(f'{job.run_dir} was stopped; the same command goes on.')
        return
    print(table(todo))
  except subprocess.CalledProcessError as error:
    sys.exit(f'Error: {shlex.join(error.cmd)} failed with exit code '
             f'{error.returncode}; see above. The same command goes on.')
  except (config_lib.ConfigError, curves.CurveError) as error:
    sys.exit(f'Error: {error}')
  except KeyboardInterrupt:  # The run has it too, and saves.
    sys.exit('Stopped; the same command goes on.')


if __name__ == '__main__':
  define_flags()
  app.run(main)
