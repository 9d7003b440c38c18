"""Runs an experiment: its variants, each with several seeds.

  python -m agile_tf.sweep figure4_left
  python -m agile_tf.sweep figure4_left --laptop

The runs are made one after another, in the directory --runs. The same command
skips finished runs and resumes stopped ones. If a run fails, the others are
still made. --only makes the runs of one variant. --commands prints a command
for each run, for a cluster's job array. --status prints the progress of each
run.
"""

from collections.abc import Iterable, Sequence
import os
import shlex
import signal
import subprocess
import sys
from typing import NamedTuple

from absl import flags
import numpy as np

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from agile_tf.training import checkpoints
from gridlu import files
from gridlu import program


class Job(NamedTuple):
  """A run of a variant with a seed, and its evaluations."""
  name: str
  seed: int
  run_dir: str
  launch: list[str]  # Arguments of agile_tf.launch.
  # Path of the JSON file to write: arguments of agile_tf.evaluate.
  evaluations: dict[str, list[str]]
  after: str = ''  # The directory of a run that must finish first.


class SweepError(program.UserError):
  """A sweep that cannot be carried out."""


def jobs(experiment: str, runs: str, seeds: Sequence[int], laptop: bool,
         extra: Sequence[str] = (), vary_data: bool = False) -> list[Job]:
  """Returns the runs of an experiment, in an order in which they can be made.

  Args:
    experiment: A key of `experiments.EXPERIMENTS`.
    runs: The directory that will contain the run directories.
    seeds: The seeds of each variant.
    laptop: Whether to use the job and hyperparameters of `laptop.flags`.
    extra: Flags for every run.
    vary_data: Whether the goal examples and the held-out instructions vary
      with the seed.
  """
  names = experiments.EXPERIMENTS[experiment].names(laptop)
  return [
      _job(name, seed, runs, laptop, [*extra, *(
          [f'--dataset_seed={seed}', f'--held_out_seed={seed}']
          if vary_data else [])])
      for seed in seeds for name in names]


def _job(name: str, seed: int, runs: str, laptop: bool,
         extra: Sequence[str]) -> Job:
  variant = experiments.VARIANTS[name]
  run_dir = os.path.join(runs, f'{name}_seed{seed}')
  after = variant.after
  if laptop and variant.laptop_after:
    after = variant.laptop_after
  after = after and os.path.join(runs, f'{after}_seed{seed}')
  launch = [f'--preset={variant.flagfile}', *variant.flags]
  if laptop:
    launch.insert(0, '--preset=laptop')
    if not variant.about_rho:
      launch.append(experiments.LAPTOP_RHO)
    launch += variant.laptop
  launch += extra
  measured = variant.evaluations
  if laptop and variant.laptop_evaluations:
    measured = variant.laptop_evaluations
  evaluations = {
      os.path.join(run_dir, f'{evaluation.name}.json'): [
          f'--run_dir={run_dir}', *evaluation.flags, '--json']
      for evaluation in measured}

  def fill(arguments: Iterable[str]) -> list[str]:
    return [argument.replace('{after}', after) for argument in arguments]

  return Job(
      name, seed, run_dir,
      [*fill(launch), f'--run_dir={run_dir}', f'--seed={seed}'],
      {path: fill(arguments) for path, arguments in evaluations.items()}, after)


def _command(program: str, arguments: Sequence[str]) -> list[str]:
  return [sys.executable, '-m', f'agile_tf.{program}', *arguments]


def shell_lines(todo: Sequence[Job], again: Sequence[str]) -> list[str]:
  """Returns a shell command for each run that is not finished.

  A run that must wait for another one shares that run's line, after `&&`. Runs
  that cannot be used are left out, with a message on stderr.

  Args:
    todo: The runs.
    again: The command and the arguments that all runs share.
  """
  lines: dict[str, str] = {}
  for job in todo:
    try:
      if is_finished(job):
        continue
    except program.UserError as error:
      print(f'Error: {error}', file=sys.stderr)
      continue
    line = shlex.join([*again, f'--only={job.name}', f'--first_seed={job.seed}',
                       '--seeds=1'])
    if job.after in lines:
      lines[job.after] += f' && {line}'
    else:
      lines[job.run_dir] = line
  return list(lines.values())


class Progress(NamedTuple):
  """The progress of a run."""
  steps: int  # At the newest checkpoint.
  total: int | None  # --steps of the run; None if it has not started.
  success: float | None  # In the last row of metrics.csv that has it.

  @property
  def finished(self) -> bool:
    """Whether the run has made all the steps that it was started with."""
    return self.total is not None and self.steps >= self.total


def progress(run_dir: str) -> Progress:
  """Reads the progress of a run from its directory.

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
    if rates is not None and np.isfinite(rates).any():
      success = float(rates[np.isfinite(rates)][-1])
  return Progress(steps, config_lib.load(path).steps, success)


def _total(job: Job) -> int:
  """Returns the number of steps that a run should make.

  Raises:
    SweepError: if its directory has a run with other settings.
    ConfigError: if its settings contradict each other or cannot be read.
  """
  values = flags.FlagValues()
  config_lib.define_flags(values)
  values(['launch', *presets.expand(job.launch)])
  config = config_lib.from_flags(values)
  path = os.path.join(job.run_dir, 'config.json')
  if os.path.exists(path):
    differences = config_lib.differences(config_lib.load(path), config)
    if differences:
      raise SweepError(
          f'{job.run_dir} has a run with other settings ('
          f'{"; ".join(differences)}). Choose another --runs, or give the '
          'settings that it has.')
  return config.steps


def _is_measured(path: str, arguments: Sequence[str]) -> bool:
  """Returns whether a file has an evaluation of the newest checkpoint."""
  run_dir = [argument.removeprefix('--run_dir=') for argument in arguments
             if argument.startswith('--run_dir=')][-1]
  try:
    with open(path, encoding='utf-8') as file:
      steps = files.parse_json(file.read())['steps']
    return steps == checkpoints.steps(run_dir)[-1]
  except (OSError, ValueError, KeyError, IndexError, TypeError):
    return False


def is_finished(job: Job) -> bool:
  """Returns whether a run is trained and evaluated to its end.

  Raises:
    ConfigError or CurveError: if the run's files cannot be read.
    SweepError: if the run has other settings.
  """
  return progress(job.run_dir).steps >= _total(job) and all(
      _is_measured(*evaluation) for evaluation in job.evaluations.items())


def table(todo: Sequence[Job]) -> str:
  """Returns the progress of the runs as text for the terminal."""
  width = max(len(job.run_dir) for job in todo)
  lines = [f'{"run":{width}} {"steps":>12} {"of":>12} {"success":>8}']
  for job in todo:
    try:
      steps, _, success = progress(job.run_dir)
      total = _total(job)
    except program.UserError as error:
      lines.append(f'{job.run_dir:{width}} cannot be used: {error}')
      continue
    rate = '' if success is None else f'{100 * success:.1f} %'
    lines.append(
        f'{job.run_dir:{width}} {steps:12} {total:12} {rate:>8}'.rstrip())
  return '\n'.join(lines)


def _call(command: Sequence[str], captured: bool = False) -> bytes:
  """Runs a program to its end.

  SIGINT and SIGTERM are forwarded to the program, so that it can save.

  Args:
    command: The program and its arguments.
    captured: Whether to return its output instead of showing it.

  Returns:
    The program's stdout, if `captured`.

  Raises:
    CalledProcessError: if the program failed.
    KeyboardInterrupt: if there was a signal.
  """
  stopped = []
  with subprocess.Popen(
      command, stdout=subprocess.PIPE if captured else None) as process:

    def forward(number: int, _) -> None:
      stopped.append(number)
      process.send_signal(number)

    handlers = {number: signal.signal(number, forward)
                for number in (signal.SIGINT, signal.SIGTERM)}
    try:
      output, _ = process.communicate()
    finally:
      for number, handler in handlers.items():
        signal.signal(number, handler)
  if stopped:
    raise KeyboardInterrupt
  if process.returncode:
    raise subprocess.CalledProcessError(process.returncode, command)
  return output


def run(job: Job) -> bool:
  """Trains a run to its end and makes the evaluations that are missing.

  Returns:
    Whether the run is finished; False if it was stopped.

  Raises:
    SweepError: if another run must finish first, the run has other settings,
      or an evaluation cannot be written.
    ConfigError or CurveError: if the run's files cannot be read.
    subprocess.CalledProcessError: if training or evaluation failed.
    KeyboardInterrupt: if there was a signal.
  """
  if job.after and not progress(job.after).finished:
    raise SweepError(f'{job.run_dir} starts from the networks of {job.after}, '
                     'which is not finished. Finish that run first.')
  if progress(job.run_dir).steps < _total(job):
    _call(_command('launch', job.launch))
    if progress(job.run_dir).steps < _total(job):
      return False
  for path, arguments in job.evaluations.items():
    if _is_measured(path, arguments):
      continue
    output = _call(_command('evaluate', arguments), captured=True)
    try:
      with files.replacing(path, 'wb') as file:
        file.write(output)
    except OSError as error:
      raise SweepError(
          f'{path} cannot be written ({error}). Free some disk space, or make '
          'the directory writable.') from error
  return True


def carry_out(todo: Sequence[Job]) -> bool:
  """Makes the runs one after another; returns whether all are finished."""
  failures = []
  for i, job in enumerate(todo):
    print(f'{i + 1} of {len(todo)}: {job.run_dir}', flush=True)
    try:
      if not run(job):
        print(f'{job.run_dir} was stopped; the same command resumes it.')
        return False
    except subprocess.CalledProcessError as error:
      failures.append(f'{shlex.join(error.cmd)} failed with exit code '
                      f'{error.returncode}; see above.')
    except program.UserError as error:
      failures.append(str(error))
  print(table(todo))
  for failure in failures:
    print(f'Error: {failure}', file=sys.stderr)
  return not failures


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_bool(
      'laptop', False, 'Use the small job and the hyperparameters of '
      "laptop.flags in place of the paper's.")
  flags.DEFINE_integer(
      'seeds', None, 'The number of seeds of each variant; default: as many as '
      'in the paper, 3 with --laptop, or 1 to 3 in our own experiments.',
      lower_bound=1)
  flags.DEFINE_integer('first_seed', 0, 'The first seed.', lower_bound=0)
  flags.DEFINE_string(
      'runs', None, 'The directory that contains the run directories; default: '
      'runs, or runs/laptop with --laptop.')
  flags.DEFINE_string('only', None, 'Make only the runs of this variant.')
  flags.DEFINE_bool(
      'commands', False, 'Print a command for each run that is not finished, '
      'and run nothing.')
  flags.DEFINE_bool(
      'status', False, 'Print the progress of each run, and run nothing.')
  flags.DEFINE_bool(
      'vary_data', False, 'Vary the goal examples and the held-out '
      'instructions with the seed. By default all seeds share them. The paper '
      'does not say which it does.')
  flags.DEFINE_multi_string(
      'set', [], 'A flag of agile_tf.launch for every run, without its dashes, '
      'such as --set=policy_threads=3')


@program.main(arguments=True)
def main(argv: Sequence[str]) -> None:
  """Makes the runs of an experiment."""
  known = '\n'.join(
      f'  {name:18} {experiment.title}'
      for name, experiment in experiments.EXPERIMENTS.items())
  if len(argv) != 2 or argv[1] not in experiments.EXPERIMENTS:
    raise SweepError('Name one experiment, such as "python -m agile_tf.sweep '
                     f'figure4_left". The experiments are:\n{known}')
  values = flags.FLAGS
  experiment = experiments.EXPERIMENTS[argv[1]]
  if values.laptop and not experiment.replica:
    raise SweepError(f'--laptop: {argv[1]} has no replica on a laptop. Leave '
                     'the flag out.')
  names = experiment.names(values.laptop)
  if values.only not in (None, *names):
    raise SweepError(f'--only={values.only} is not a variant of {argv[1]}: '
                     f'expected one of {", ".join(names)}.')
  for flag in values.set:
    name = flag.partition('=')[0].lstrip('-')
    if name in ('seed', 'run_dir'):
      raise SweepError(
          f'--set={flag}: each run has its own {name}. Give '
          f'{"--first_seed" if name == "seed" else "--runs"} instead.')
  count = values.seeds or (3 if values.laptop else experiment.seeds)
  runs = values.runs or ('runs/laptop' if values.laptop else 'runs')
  todo = [
      job for job in jobs(
          argv[1], runs,
          range(values.first_seed, values.first_seed + count), values.laptop,
          [f'--{flag}' for flag in values.set], values.vary_data)
      if values.only in (None, job.name)]
  try:
    if values.status:
      print(table(todo))
    elif values.commands:
      print('\n'.join(shell_lines(todo, [
          'python', '-m', 'agile_tf.sweep', argv[1], f'--runs={runs}',
          *(['--laptop'] if values.laptop else []),
          *(['--vary_data'] if values.vary_data else []),
          *(f'--set={flag}' for flag in values.set)])))
    elif not carry_out(todo):
      sys.exit(1)
  except flags.Error as error:  # A flag of --set.
    raise SweepError(str(error)) from error
  except KeyboardInterrupt:
    sys.exit('Stopped; the same command resumes.')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
