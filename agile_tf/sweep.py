"""Runs an experiment: its variants, each with several seeds.

  python -m agile_tf.sweep figure4_left --jobs=4
  python -m agile_tf.sweep figure4_left --recipe --ray=auto

The same command skips finished runs and resumes stopped ones. A run that fails
stops no other, and Ctrl-C lets all runs save. What a run prints is in its
directory, in sweep.log; if there is only one, it prints to the terminal.
"""

from collections.abc import Sequence
import contextlib
import os
import shlex
import shutil
import sys
import time

from absl import flags
import numpy as np

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from agile_tf.reproduction import pools
from agile_tf.training import checkpoints
from gridlu import files
from gridlu import program


class SweepError(program.UserError):
  """A sweep that cannot be carried out."""


def _steps(run_dir: str) -> int:
  """Returns the step of a run's newest checkpoint, 0 without any."""
  return (checkpoints.steps(run_dir) or [0])[-1]


def is_trained(run_dir: str) -> bool:
  """Returns whether a run has made all the steps that it was started with."""
  path = os.path.join(run_dir, 'config.json')
  return os.path.exists(path) and (
      _steps(run_dir) >= config_lib.load(path).steps)


def _success(run_dir: str) -> str:
  """Returns the newest success rate in a run's metrics.csv, as text."""
  if not os.path.exists(os.path.join(run_dir, 'metrics.csv')):
    return ''
  rates = curves.read(run_dir).get('success_rate', np.zeros(0))
  known = rates[np.isfinite(rates)]
  return f'{100 * known[-1]:.1f} %' if len(known) else ''


def _total(job: experiments.Job) -> int:
  """Returns the number of steps that a run should make.

  Raises:
    SweepError: if its directory has a run with other settings.
    ConfigError: if its settings contradict each other or cannot be read.
  """
  values = flags.FlagValues()
  for kind in config_lib.Config, settings.Recipe:
    config_lib.define_flags(kind, values)
  values(['launch', *presets.expand(job.launch)])
  config = config_lib.from_flags(values)
  recipe = config_lib.from_flags(values, settings.Recipe)
  path = os.path.join(job.run_dir, 'config.json')
  if os.path.exists(path):
    differences = config_lib.differences(
        config_lib.read(path), settings.saved(config, recipe))
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


def is_finished(job: experiments.Job) -> bool:
  """Returns whether a run is trained and evaluated to its end.

  Raises:
    ConfigError or SweepError: as `_total` does.
  """
  return _steps(job.run_dir) >= _total(job) and all(
      _is_measured(*evaluation) for evaluation in job.evaluations.items())


def _call(name: str, arguments: Sequence[str], **options) -> None:
  """Carries out a program; a signal lets it save and is raised afterwards."""
  process = pools.start(['-m', f'agile_tf.{name}', *arguments], **options)
  if pools.wait(process):
    raise KeyboardInterrupt
  if process.returncode:
    raise SweepError(
        f'agile_tf.{name} failed with exit code {process.returncode}.')


def run(job: experiments.Job) -> None:
  """Trains a run to its end and makes the evaluations that are missing.

  Raises:
    SweepError: if another run must finish first, the run has other settings,
      a program failed, or an evaluation cannot be written.
    ConfigError: if the run's settings cannot be read.
    KeyboardInterrupt: if it was stopped.
  """
  if job.after and not is_trained(job.after):
    raise SweepError(f'{job.run_dir} starts from the networks of {job.after}, '
                     'which is not finished. Finish that run first.')
  if _steps(job.run_dir) < _total(job):
    _call('launch', job.launch)
    if _steps(job.run_dir) < _total(job):
      raise KeyboardInterrupt  # The signal reached the run alone.
  for path, arguments in job.evaluations.items():
    if _is_measured(path, arguments):
      continue
    try:
      with files.replacing(path, 'wb') as file:
        _call('evaluate', arguments, stdout=file)
    except OSError as error:
      raise SweepError(
          f'{path} cannot be written ({error}). Free some disk space, or make '
          'the directory writable.') from error


_STATES = ('running', 'queued', 'failed', 'stopped', 'waiting', 'finished')
_RUNNING, _QUEUED, _FAILED, _STOPPED, _WAITING, _FINISHED = _STATES


class Sweep:
  """The runs of an experiment.

  Attributes:
    states: The state of each run, by its directory.
    problems: Why runs have failed, or cannot be used, by their directories.
  """

  def __init__(self, todo: Sequence[experiments.Job], again: Sequence[str]):
    """Takes the runs, and the arguments of this program that all share."""
    self.states = {job.run_dir: _WAITING for job in todo}
    self.problems: dict[str, str] = {}
    self._todo, self._again = todo, again
    # What `show` has printed: states and times, and the lines in a terminal.
    self._printed: dict[str, tuple[str, float]] = {}
    self._height = 0
    for job in todo:
      try:
        if is_finished(job):
          self.states[job.run_dir] = _FINISHED
      except program.UserError as error:
        self._fail(job.run_dir, str(error))

  def _fail(self, run_dir: str, problem: str) -> None:
    self.states[run_dir], self.problems[run_dir] = _FAILED, problem

  def table(self) -> list[str]:
    """Returns the table's lines: its header, and a row for each run."""
    width = max(map(len, self.states))
    rows = [f'{"run":{width}} {"steps":>12} {"of":>12} {"success":>8}  state']
    for job in self._todo:
      try:
        rows.append(
            f'{job.run_dir:{width}} {_steps(job.run_dir):12} {_total(job):12} '
            f'{_success(job.run_dir):>8}  {self.states[job.run_dir]}')
      except program.UserError as error:
        rows.append(f'{job.run_dir:{width}} cannot be used: {error}')
    return rows

  def show(self) -> None:
    """Prints the table, in a terminal over the one before.

    In a log file, a run's row comes when its state changes, and every ten
    minutes while it runs.
    """
    now = time.monotonic()
    header, *rows = self.table()
    if sys.stdout.isatty():
      states = list(self.states.values())
      order = sorted(range(len(rows)), key=lambda i: _STATES.index(states[i]))
      width, height = shutil.get_terminal_size()
      shown = [header, *(rows[i] for i in order)][:height - 1]
      over = f'\x1b[{self._height}A\x1b[J' if self._height else ''
      print(over + '\n'.join(row[:width - 1] for row in shown), flush=True)
      self._height = len(shown)
      return
    for row, (run_dir, state) in zip(rows, self.states.items(), strict=True):
      before, then = self._printed.get(run_dir, ('', 0.0))
      if state != before or state == _RUNNING and now > then + 600:
        self._printed[run_dir] = state, now
        print(time.strftime('%H:%M:%S'), row, flush=True)

  def _arguments(self, job: experiments.Job) -> list[str]:
    """Returns Python's arguments to make one run."""
    return ['-m', 'agile_tf.sweep', *self._again, f'--only={job.name}',
            f'--first_seed={job.seed}', '--seeds=1']

  def commands(self) -> list[str]:
    """Returns a shell command for each run that is not finished.

    A run that must wait for another one shares that run's line, after `&&`.
    """
    lines: dict[str, str] = {}
    for job in self._todo:
      line = shlex.join(['python', *self._arguments(job)])
      if self.states[job.run_dir] == _WAITING:
        if job.after in lines:
          lines[job.after] += f' && {line}'
        else:
          lines[job.run_dir] = line
    return list(lines.values())

  def carry_out(self, pool: pools.Local | pools.Cluster) -> None:
    """Makes the runs, as many at a time as there is room for.

    Raises:
      KeyboardInterrupt: if there was a signal, after all runs have ended.
    """
    told = 0
    logs = {job.run_dir: os.path.abspath(
        os.path.join(job.run_dir, 'sweep.log')) for job in self._todo}
    due = 0.0
    with pools.handling(lambda: None) as arrived:
      while not {_RUNNING, _QUEUED, _WAITING}.isdisjoint(self.states.values()):
        for job in self._todo:
          if self.states[job.run_dir] == _WAITING:
            self._begin(job, logs[job.run_dir], pool, bool(arrived))
        if len(arrived) > told:  # A second signal ends them at once.
          told = len(arrived)
          pool.stop()
        for run_dir, state in self.states.items():
          if state == _QUEUED and os.path.exists(logs[run_dir]):
            self.states[run_dir] = _RUNNING
        for run_dir, problem in pool.ended().items():
          self.states[run_dir] = _FINISHED
          if problem and arrived:
            self.states[run_dir] = _STOPPED
          elif problem:
            self._fail(run_dir, problem)
        begun = time.monotonic()
        if begun >= due:  # Reading long runs takes a twentieth of the time.
          self.show()
          due = begun + max(2, 20 * (time.monotonic() - begun))
        time.sleep(0.5)
    self.show()
    if arrived:
      raise KeyboardInterrupt

  def _begin(self, job: experiments.Job, log: str,
             pool: pools.Local | pools.Cluster, stopped: bool) -> None:
    """Starts a run that waits, if that is possible now."""
    before = self.states.get(job.after, _FINISHED)
    if stopped:
      self.states[job.run_dir] = _STOPPED
    elif before == _FAILED:
      self._fail(job.run_dir, f'{job.after}, which it starts from, has failed.')
    elif before == _FINISHED and pool.has_room():
      os.makedirs(job.run_dir, exist_ok=True)
      if os.path.exists(log):
        os.replace(log, f'{log}.before')
      pool.start(pools.Task(job.run_dir, self._arguments(job), log))
      self.states[job.run_dir] = _QUEUED


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_bool(
      'recipe', False, 'Add our recipe, the settings of '
      f"{experiments.RECIPE}.flags; a variant's own settings come after it. "
      'Evaluations have 1,000 episodes, of which none begins in a goal state.')
  flags.DEFINE_integer(
      'jobs', 1, "How many runs to make at a time, each on its share of this "
      "machine's cores and GPUs.", lower_bound=1)
  flags.DEFINE_string(
      'ray', None, 'Make the runs in a Ray cluster: "auto" for the one of this '
      'machine, or an address. Run directories must be on a shared disk.')
  flags.DEFINE_integer('cpus', 1, 'CPUs of a run with --ray.', lower_bound=1)
  flags.DEFINE_float(
      'gpus', 0, 'GPUs of a run with --ray, such as 0.25.', lower_bound=0)
  flags.DEFINE_integer(
      'seeds', None, 'The number of seeds of each variant; default: as many as '
      'in the paper; with --recipe 2, and 3 for figure 4 (left).',
      lower_bound=1)
  flags.DEFINE_integer(
      'first_seed', None, 'The first seed; default: 0, or '
      f'{experiments.FIRST_RECIPE_SEED} with --recipe, whose settings were '
      'chosen with the earlier ones.', lower_bound=0)
  flags.DEFINE_string(
      'runs', None, 'The directory that contains the run directories; default: '
      'runs, or runs/recipe with --recipe.')
  flags.DEFINE_string('only', None, 'Make only the runs of this variant.')
  flags.DEFINE_bool(
      'commands', False, 'Print a command for each run that is not finished, '
      "for a cluster's job array, and run nothing.")
  flags.DEFINE_bool(
      'status', False, 'Print the progress of each run, and run nothing.')
  flags.DEFINE_bool(
      'vary_data', False, 'Vary the goal examples and the held-out '
      'instructions with the seed. By default all seeds share them. The paper '
      'does not say which it does.')
  flags.DEFINE_multi_string(
      'set', [], 'A flag of agile_tf.launch for every run, without its dashes, '
      'such as --set=policy_threads=3')


def _selected(name: str, values: flags.FlagValues, runs: str
             ) -> list[experiments.Job]:
  """Returns the runs that the flags select."""
  experiment = experiments.EXPERIMENTS[name]
  names = experiment.names(values.recipe)
  if not names:
    raise SweepError(
        f'--recipe: {name} has no runs with the recipe. Leave the flag out.')
  if values.only not in (None, *names):
    raise SweepError(f'--only={values.only} is not a variant of {name}: '
                     f'expected one of {", ".join(names)}.')
  for flag in values.set:
    own = flag.partition('=')[0].lstrip('-')
    if own in ('seed', 'run_dir'):
      raise SweepError(
          f'--set={flag}: each run has its own {own}. Give '
          f'{"--first_seed" if own == "seed" else "--runs"} instead.')
  first = values.first_seed
  if first is None:
    first = experiments.FIRST_RECIPE_SEED if values.recipe else 0
  count = values.seeds or (
      experiment.recipe_seeds if values.recipe else experiment.seeds)
  return [
      job for job in experiments.jobs(
          name, runs, range(first, first + count), values.recipe,
          [f'--{flag}' for flag in values.set], values.vary_data)
      if values.only in (None, job.name)]


def _make_folder(runs: str) -> None:
  try:
    os.makedirs(runs, exist_ok=True)
  except OSError as error:
    raise SweepError(f'--runs={runs} cannot be made ({error}). Name another '
                     'directory.') from error


@program.main(arguments=True)
def main(argv: Sequence[str]) -> None:
  """Makes the runs of an experiment."""
  if len(argv) != 2 or argv[1] not in experiments.EXPERIMENTS:
    known = '\n'.join(
        f'  {name:18} {experiment.title}'
        for name, experiment in experiments.EXPERIMENTS.items())
    raise SweepError('Name one experiment, such as "python -m agile_tf.sweep '
                     f'figure4_left". The experiments are:\n{known}')
  values = flags.FLAGS
  runs = values.runs or ('runs/recipe' if values.recipe else 'runs')
  todo = _selected(argv[1], values, runs)
  again = [argv[1], f'--runs={runs}',
           *(['--recipe'] if values.recipe else []),
           *(['--vary_data'] if values.vary_data else []),
           *(f'--set={flag}' for flag in values.set)]
  try:
    sweep = Sweep(todo, again)
    if values.status:
      print('\n'.join(sweep.table()))
      return
    if values.commands:
      print('\n'.join(sweep.commands()))
    elif len(todo) == 1 and values.ray is None:
      run(todo[0])
    else:
      _make_folder(runs)
      with (contextlib.nullcontext(pools.Local(values.jobs))
            if values.ray is None else pools.cluster(
                values.ray, values.cpus, values.gpus, runs)) as pool:
        sweep.carry_out(pool)
  except flags.Error as error:  # A flag of --set.
    raise SweepError(str(error)) from error
  except KeyboardInterrupt:
    sys.exit('Stopped; the same command resumes.')
  for run_dir, problem in sweep.problems.items():
    print(f'Error: {run_dir}: {problem}', file=sys.stderr)
  if sweep.problems:
    sys.exit(1)


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
