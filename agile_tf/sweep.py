"""Runs an experiment: its variants, each with several seeds.

  python -m agile_tf.sweep figure4_left --jobs=4
  python -m agile_tf.sweep figure4_left --recipe --ray=auto

The same command skips finished runs and resumes stopped ones. A run that fails
stops no other, and Ctrl-C lets all runs save. What a run prints is in its
directory, in sweep.log. Two sweeps of one run have a file each, such as
sweep.2.log.
"""

from collections.abc import Sequence
import contextlib
import os
import shlex
import shutil
import signal
import sys
import time

from absl import flags

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf import records
from agile_tf.recipe import settings
from agile_tf.reproduction import experiments
from agile_tf.reproduction import pools
from agile_tf.training import checkpoints
from gridlu import flagfiles
from gridlu import program
from gridlu import schema


def _steps(run_dir: str) -> int:
  """Returns the step of a run's newest checkpoint, 0 without any."""
  return (checkpoints.steps(run_dir) or [0])[-1]


def is_trained(run_dir: str) -> bool:
  """Returns whether a run has made all the steps that its settings ask for."""
  path = os.path.join(run_dir, 'config.json')
  return os.path.exists(path) and (
      _steps(run_dir) >= settings.load(path)[0].steps)


def _success(run_dir: str) -> str:
  """Returns the newest success rate in a run's metrics.csv, as text."""
  rates = []
  with contextlib.suppress(OSError, ValueError):  # It may have no row yet.
    # Only the end is read, because long runs would take minutes.
    rates = [float(rate) for row in records.rows(
        os.path.join(run_dir, 'metrics.csv'), 2**16)
             if (rate := row.get('success_rate'))]
  return f'{100 * rates[-1]:.1f} %' if rates else ''


def _total(job: experiments.Job) -> int:
  """Returns how many steps a run should make; UserError for bad settings."""
  values = flags.FlagValues()
  for settings_class in config_lib.Config, settings.Recipe:
    config_lib.define_flags(settings_class, values)
  arguments = presets.expand(job.launch)
  try:
    _, *unknown = values(['launch', *arguments])
  except ValueError as error:  # absl raises it for --nosolved_starts=true.
    raise flags.Error(str(error)) from error
  config = config_lib.from_flags(values)
  # A text's flag without its value takes the next flag for it.
  if unknown or config.run_dir != program.clean_path(job.run_dir):
    raise flags.Error(
        '--set: a flag has no value, so that others after it are not read; '
        'expected a flag of agile_tf.launch with its value, such as '
        '--set=policy_threads=1.')
  recipe = config_lib.from_flags(values, settings.Recipe)
  recipe.check(config)
  with contextlib.suppress(config_lib.MissingError):
    there = config_lib.read(os.path.join(job.run_dir, 'config.json'))
    if differences := config_lib.differences(
        there, settings.saved(config, recipe), settings.DEFAULTS):
      raise program.UserError(
          f'it has other settings ({"; ".join(differences)}). Choose another '
          '--runs, or give the settings that it has.')
  return config.steps


def _is_measured(path: str, arguments: Sequence[str]) -> bool:
  """Returns whether a file has an evaluation of the newest checkpoint."""
  # The last --run_dir counts: an evaluation of figure 5 has one of another run,
  # after that of its own run.
  run_dir = [argument.removeprefix('--run_dir=') for argument in arguments
             if argument.startswith('--run_dir=')][-1]
  try:
    report = records.json_file(path, schema.named({'steps': schema.whole(0)}))
    return report['steps'] == _steps(run_dir)
  except (OSError, ValueError, MemoryError):
    return False


# A run waits for a free place or for another run. One that was started with Ray
# may still be queued there.
_WAITING, _STARTED, _FINISHED, _FAILED, _STOPPED = (
    'waiting', 'started', 'finished', 'failed', 'stopped')


class Sweep:
  """The runs of an experiment."""

  def __init__(self, todo: Sequence[experiments.Job]):
    # The state of each run, by its directory, and why some have failed or
    # cannot be used.
    self.states = {job.run_dir: _WAITING for job in todo}
    self.problems: dict[str, str] = {}
    self._todo = todo
    self._totals: dict[str, int] = {}
    self._running: dict[str, pools.Running] = {}
    self._last_started: dict[str, list[str]] = {}  # Arguments, by run.
    self._printed: dict[str, str] = {}
    for job in todo:
      try:
        self._totals[job.run_dir] = _total(job)
        if not self._next(job):
          self.states[job.run_dir] = _FINISHED
      except program.UserError as error:
        self._fail(job.run_dir, str(error))

  def _fail(self, run_dir: str, problem: str) -> None:
    self.states[run_dir], self.problems[run_dir] = _FAILED, problem

  def table(self, waiting: str = _WAITING) -> list[str]:
    """Returns the table's lines: its header, and a row for each run.

    `waiting` is what it calls the state of a run that waits.
    """
    width = max(map(len, self.states))
    return [f'{"run":{width}} {"steps":>12} {"of":>12} {"success":>8}  state',
            *(f'{program.printable(run_dir):{width}} {_steps(run_dir):12} '
              f'{self._totals.get(run_dir, "?"):>12} {_success(run_dir):>8}  '
              f'{waiting if state == _WAITING else state}'
              for run_dir, state in self.states.items())]

  def show(self) -> None:
    """Prints the table in a terminal; elsewhere the rows of new states."""
    header, *rows = self.table()
    if sys.stdout.isatty():
      rows.sort(key=lambda row: not row.endswith(_STARTED))
      shown = [header, *rows][:shutil.get_terminal_size().lines - 1]
      print('\x1b[H\x1b[J' + '\n'.join(shown), flush=True)
      return
    for row, (run_dir, state) in zip(rows, self.states.items(), strict=True):
      if state != self._printed.get(run_dir):
        self._printed[run_dir] = state
        print(time.strftime('%H:%M:%S'), row, flush=True)

  def _next(self, job: experiments.Job) -> list[str]:
    """Returns Python's arguments for what a run needs next; [] at its end."""
    if _steps(job.run_dir) < self._totals[job.run_dir]:
      return ['-m', 'agile_tf.launch', *job.launch]
    for path, arguments in job.evaluations.items():
      if not _is_measured(path, arguments):
        return ['-m', 'agile_tf.evaluate', *arguments]
    return []

  def commands(self) -> list[str]:
    """Returns a shell command for each run that is not finished.

    A run that must wait for another one shares that run's line, after `&&`.
    """
    lines: dict[str, str] = {}
    given = sys.argv[1:]
    # Arguments after -- are no flags.
    end = given.index('--') if '--' in given else len(given)
    for job in self._todo:
      line = shlex.join([
          sys.executable, '-m', 'agile_tf.sweep', *given[:end],
          '--nocommands', '--jobs=1', f'--only={job.name}',
          f'--first_seed={job.seed}', '--seeds=1', *given[end:]])
      if self.states[job.run_dir] == _WAITING:
        if job.after in lines:
          lines[job.after] += f' && {line}'
        else:
          lines[job.run_dir] = line
    return list(lines.values())

  def carry_out(self, pool: pools.Pool) -> None:
    """Makes the runs, as many at a time as there is room for.

    A signal stops them, and raises KeyboardInterrupt when all have ended.
    """
    def show() -> None:
      # Output that cannot be written, or a disk that does not answer, ends no
      # run.
      with contextlib.suppress(OSError, program.UserError):
        self.show()

    told = 0  # The number of signals that were passed on to the runs.
    next_show = 0.0
    with pools.signals() as arrived:
      while self._running or _WAITING in self.states.values():
        for job in self._todo:
          try:
            self._look(job, bool(arrived))
            if self.states[job.run_dir] == _WAITING:
              self._advance(job, pool, bool(arrived))
          except (OSError, program.UserError) as error:
            self._running.pop(job.run_dir, None)
            self._fail(job.run_dir, str(error))
        if len(arrived) > told:  # A second signal ends them at once.
          told = len(arrived)
          for running in self._running.values():
            running.stop()
        begun = time.monotonic()
        if begun >= next_show:
          show()
          # To read the files of long runs takes time, here at most a twentieth.
          next_show = begun + max(2, 20 * (time.monotonic() - begun))
        time.sleep(0.5)
    show()
    if arrived:
      raise KeyboardInterrupt

  def _look(self, job: experiments.Job, stopped: bool) -> None:
    """Looks whether what was started of a run has ended."""
    running = self._running.get(job.run_dir)
    if running and (problem := running.poll()) is not None:
      del self._running[job.run_dir]
      self.states[job.run_dir] = _WAITING
      if problem and stopped:
        self.states[job.run_dir] = _STOPPED
      elif problem:
        self._fail(job.run_dir, problem)

  def _advance(self, job: experiments.Job, pool: pools.Pool, stopped: bool
              ) -> None:
    """Starts what a run that waits needs next, if that is possible now."""
    run_dir, arguments = job.run_dir, self._next(job)
    # This is None if the run needs no other one, or one of another experiment.
    state_of_needed = self.states.get(job.after)
    if not arguments:
      self.states[run_dir] = _FINISHED
    elif stopped:
      self.states[run_dir] = _STOPPED
    elif state_of_needed == _FAILED:
      self._fail(run_dir, f'{job.after}, which it starts from, has failed.')
    elif job.after and state_of_needed is None and not is_trained(job.after):
      self._fail(run_dir, f'it starts from the networks of {job.after}, which '
                 'is not finished. Finish that run first.')
    elif arguments == self._last_started.get(run_dir):
      # It ended without an error and needs the same again: somebody stopped it.
      self._fail(run_dir, 'it was stopped; the same command resumes it.')
    elif state_of_needed in (None, _FINISHED):
      log = os.path.abspath(os.path.join(run_dir, 'sweep.log'))
      os.makedirs(run_dir, exist_ok=True)
      running = pool(pools.Task(run_dir, arguments, log))
      if running is not None:
        self._running[run_dir] = running
        self._last_started[run_dir] = arguments
        self.states[run_dir] = _STARTED


def _define_flags() -> None:
  flags.DEFINE_bool(
      'recipe', False, 'Add our recipe, the settings of '
      f"{experiments.RECIPE}.flags; a variant's own settings come after it. "
      'No episode of an evaluation begins in a goal state.')
  flags.DEFINE_integer(
      'jobs', 1, 'How many runs to make at a time, each on its share of this '
      "machine's cores and GPUs.", lower_bound=1)
  flags.DEFINE_string(
      'ray', None, 'Make the runs in a Ray cluster: "auto" for the one of this '
      'machine, or an address. Run directories must be on a shared disk.')
  flags.DEFINE_integer(
      'cpus', 1, 'CPUs of a run with --ray. It uses no others.', lower_bound=1)
  flags.DEFINE_float(
      'gpus', 0, 'GPUs of a run with --ray, such as 0.25.', lower_bound=0)
  flags.DEFINE_integer(
      'seeds', None, 'The number of seeds of each variant; default: as in the '
      'paper; 2 for evening, 3 for arrangements_evening; with --recipe 2, but '
      '3 for figure 4 (left).',
      lower_bound=1, upper_bound=1000)
  flags.DEFINE_integer(
      'first_seed', None, 'The first seed; default: 0, or '
      f'{experiments.FIRST_RECIPE_SEED} with --recipe and in the experiments '
      'evening and arrangements_evening, whose settings were chosen with the '
      'earlier ones.', lower_bound=0, upper_bound=2**62)
  program.define_path(
      'runs', None, 'The directory that contains the run directories; default: '
      'runs, or runs/recipe with --recipe.')
  flags.DEFINE_string('only', None, 'Make only the runs of this variant.')
  flags.DEFINE_bool(
      'commands', False, 'Print a command for each run that is not finished, '
      "for a cluster's job array, and run nothing.")
  flags.DEFINE_bool(
      'status', False, 'Print the progress of each run, and run nothing.')
  flags.DEFINE_multi_string(
      'set', [], 'A flag of agile_tf.launch for every run, without its dashes, '
      'such as --set=policy_threads=1')


def _selected(name: str, values: flags.FlagValues, runs: str
             ) -> list[experiments.Job]:
  """Returns the runs that the flags select."""
  experiment = experiments.EXPERIMENTS[name]
  names = experiment.names(values.recipe)
  if not names:
    raise program.UserError(
        f'--recipe: {name} has no runs with the recipe. Leave the flag out.')
  if values.only not in (None, *names):
    raise program.UserError(
        f'--only={values.only} is not a variant of {name}: expected one of '
        f'{", ".join(names)}.')
  for flag in values.set:
    own = flag.partition('=')[0].lstrip('-')
    if own in ('seed', 'run_dir'):
      raise program.UserError(
          f'--set={flag}: each run has its own {own}. Give '
          f'{"--first_seed" if own == "seed" else "--runs"} instead.')
    if not own.isidentifier():
      raise program.UserError(
          f'--set={flag} names no flag; expected a flag of agile_tf.launch '
          'with its value, such as --set=policy_threads=1.')
  first = values.first_seed
  if first is None:
    first = (experiments.FIRST_RECIPE_SEED if values.recipe
             else experiment.first_seed)
  count = values.seeds or (
      experiment.recipe_seeds if values.recipe else experiment.seeds)
  return [
      job for job in experiments.jobs(
          name, runs, range(first, first + count), values.recipe,
          [f'--{flag}' for flag in values.set])
      if values.only in (None, job.name)]


@program.main(_define_flags, arguments=True, expand=flagfiles.expand)
def main(names: Sequence[str]) -> None:
  """Makes the runs of an experiment."""
  if len(names) != 1 or names[0] not in experiments.EXPERIMENTS:
    listed = '\n'.join(
        f'  {name:18} {experiment.title}'
        for name, experiment in experiments.EXPERIMENTS.items())
    raise program.UserError(
        'Name one experiment, such as "python -m agile_tf.sweep figure4_left". '
        f'The experiments are:\n{listed}')
  values = flags.FLAGS
  runs = values.runs or ('runs/recipe' if values.recipe else 'runs')
  todo = _selected(names[0], values, runs)
  sweep, stopped = None, False
  try:
    sweep = Sweep(todo)
    if values.status:
      # Another process may carry them out now.
      print('\n'.join(sweep.table('unfinished')))
    elif values.commands:
      print(program.printable('\n'.join(sweep.commands())))
    else:
      os.makedirs(runs, exist_ok=True)
      with (contextlib.nullcontext(pools.local(values.jobs))
            if values.ray is None else pools.cluster(
                values.ray, values.cpus, values.gpus, runs)) as pool:
        sweep.carry_out(pool)
  except flags.Error as error:  # --set has a wrong flag.
    raise program.UserError(str(error)) from error
  except BrokenPipeError:  # `| head` closes the pipe early.
    raise
  except OSError as error:
    raise program.UserError(
        f'--runs={runs} cannot be used ({error}). Name another directory.'
        ) from error
  except KeyboardInterrupt:
    stopped = True
  problems = sweep.problems if sweep else {}
  for run_dir, problem in problems.items():
    print(program.printable(f'Error: {run_dir}: {problem}'),
          file=sys.stderr)
  if stopped:
    print('Stopped; the same command resumes.', file=sys.stderr)
    sys.exit(128 + signal.SIGINT)
  if problems:
    sys.exit(1)


if __name__ == '__main__':
  main()
