"""The long proofs: real faults, starts and stops, memory and speed.

  python -m tests.endurance --kills=100
  python -m tests.endurance --equal_kills=100
  python -m tests.endurance --hangs=10
  python -m tests.endurance --removals=10
  python -m tests.endurance --errors=200
  python -m tests.endurance --flips=51224
  python -m tests.endurance --starts=200
  python -m tests.endurance --minutes=60

They take from minutes to hours, so that neither pytest nor CI runs them. Each
prints its figures, and ends with an error at the first thing that is not as
promised. What is watched for --minutes is relations.flags with 3 threads, or
what follows `--`, which is for agile_tf.launch and may keep the run (its own
--steps do not end it):

  python -m tests.endurance --minutes=60 -- \\
      --flagfile=launch/quickstart.flags --policy_threads=3 --run_dir=runs/hour
"""

from collections.abc import Iterator, Sequence
import contextlib
import errno
import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock
import zipfile

from absl import app
from absl import flags
import numpy as np
import tqdm

from agile_tf import launch
from agile_tf.reproduction import curves
from agile_tf.training import checkpoints
from agile_tf.training import schedule as schedule_lib
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from gridlu import archives
from gridlu import program
from tests.agile_tf import tiny

flags.DEFINE_integer('kills', 0, 'How many kill -9 to survive.', lower_bound=0)
flags.DEFINE_integer(
    'equal_kills', 0, 'How many kill -9 of a repeatable run, whose end is then '
    'compared with an undisturbed one.', lower_bound=0)
flags.DEFINE_integer(
    'hangs', 0, 'How many times a worker hangs, half of them with two signals.',
    lower_bound=0)
flags.DEFINE_integer(
    'removals', 0, 'How many times the directory of a run is moved or removed.',
    lower_bound=0)
flags.DEFINE_integer(
    'errors', 0, 'How many starts with an error of the system.', lower_bound=0)
flags.DEFINE_integer(
    'flips', 0, "How many bits of a checkpoint's headers to flip.",
    lower_bound=0)
flags.DEFINE_integer(
    'starts', 0, 'How many starts and stops to survive.', lower_bound=0)
flags.DEFINE_float(
    'minutes', 0, 'For how long to watch memory and speed.', lower_bound=0)
flags.DEFINE_integer(
    'seed', 0, 'Decides when and where faults come.', lower_bound=0)

# Saves follow each other so closely that many kills fall into one.
_KILLED = (
    '--flagfile=launch/relations.flags', '--policy_workers=3',
    '--policy_threads=3', '--dataset_size=1000', '--instructions=AGENT',
    '--rollout_length=5', '--log_steps=50', '--steps=1000000000',
    '--checkpoint_minutes=0.005', '--steps_per_discriminator_update=100',
    '--batch_size=16', '--reward_prediction')
_REPEATABLE = (*_KILLED, '--policy_threads=1')
_HUNG = tuple(tiny.flags(
    policy_workers=3, policy_threads=3, steps=1_000_000_000, log_steps=100,
    checkpoint_minutes=0.05, stall_minutes=1))
_WATCHED = ('--flagfile=launch/relations.flags', '--policy_threads=3')
_DRIFT = 0.05  # By how much memory or speed may change in an hour.
_COMPILE_SECONDS = 60  # Before a run's first minute.
_SAVE_SECONDS = 5.0  # What a save may take beside the interval.


@contextlib.contextmanager
def _training(run_dir: str, arguments: Sequence[str],
              program: str = 'agile_tf.launch') -> Iterator[subprocess.Popen]:
  """A training run, which does not outlive the block."""
  os.makedirs(os.path.dirname(run_dir) or '.', exist_ok=True)
  with open(f'{run_dir}.log', 'a', encoding='utf-8') as log:
    # The directory comes last: flagfiles name one, too.
    process = subprocess.Popen(
        [sys.executable, '-m', program, *arguments,
         f'--run_dir={run_dir}'], stderr=log, stdout=log)
  try:
    yield process
  finally:
    process.kill()
    process.wait()


def _newest(run_dir: str) -> int:
  return (checkpoints.steps(run_dir) or [0])[-1]


def _go_on(run_dir: str, process: subprocess.Popen, before: int) -> None:
  """Waits until a run has a newer checkpoint."""
  deadline = time.monotonic() + 300
  while _newest(run_dir) <= before:
    if process.poll() is not None or time.monotonic() > deadline:
      with open(f'{run_dir}.log', encoding='utf-8') as file:
        raise RuntimeError(f'The run did not go on:\n{file.read()[-3000:]}')
    time.sleep(0.05)


def _is_saving(run_dir: str) -> bool:
  names = os.listdir(os.path.join(run_dir, 'checkpoints'))
  return any(name.endswith('.part') for name in names)


def survive_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a run again and again; each time it must go on.

  Every other kill waits for a save to have begun.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if something was lost.
  """
  in_a_save = 0
  ages = []
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    for i in tqdm.trange(count, unit=' kills'):
      with _training(run_dir, _KILLED) as process:
        _go_on(run_dir, process, _newest(run_dir))
        # Time enough for the compiler, whom a first save may have to wait for.
        time.sleep(rng.uniform(0, 2) if i % 2 else rng.uniform(8, 10))
        deadline = time.monotonic() + 30
        while i % 2 and not _is_saving(run_dir):
          if time.monotonic() > deadline:
            raise RuntimeError('It has not saved for 30 seconds.')
          time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
      now = time.time()
      in_a_save += _is_saving(run_dir)
      checkpoint = checkpoints.load(run_dir)  # Raises if it is not whole.
      step = checkpoint.values['steps']
      if not i % 2:
        ages.append(now - os.path.getmtime(os.path.join(
            run_dir, 'checkpoints', f'step_{step:012d}')))
        if ages[-1] > 60 * 0.005 + _SAVE_SECONDS:
          raise RuntimeError(
              f'The newest checkpoint was {ages[-1]:.1f} seconds old.')
      _check_rows(run_dir)
    if count > 1 and not in_a_save:
      raise RuntimeError('No kill was in a save.')
    with _training(run_dir, _KILLED) as process:
      _go_on(run_dir, process, _newest(run_dir))
    _check_rows(run_dir)
  return (f'{count} kills survived, {in_a_save} of them in a save; the newest '
          f'checkpoint of the others was {np.median(ages):.1f} seconds old in '
          f'the median and {max(ages):.1f} at most.')


def _check_rows(run_dir: str) -> None:
  """Checks that no row of metrics is doubled."""
  steps = curves.read(run_dir)['steps']
  if (np.diff(steps) <= 0).any():
    raise RuntimeError(f'metrics.csv has rows of the steps {steps}.')


def end_equal_after_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a repeatable run again and again, and compares how it ends.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if it does not end as one that nothing disturbed.
  """
  with tempfile.TemporaryDirectory() as folder:
    killed, undisturbed = (
        os.path.join(folder, name) for name in ('killed', 'undisturbed'))
    for _ in tqdm.trange(count, unit=' kills'):
      with _training(killed, _REPEATABLE) as process:
        _go_on(killed, process, _newest(killed))
        time.sleep(rng.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    total = f'--steps={_newest(killed) + 500}'
    for run_dir in killed, undisturbed:
      with _training(run_dir, (*_REPEATABLE, total)) as process:
        if process.wait():
          raise RuntimeError(f'{run_dir} has failed:\n{_log(run_dir)}')
    ends = [checkpoints.load(run_dir) for run_dir in (killed, undisturbed)]
  _require_equal(*ends)
  return (f'{count} kills; at step {ends[0].values["steps"]} all '
          f'{len(ends[0].arrays)} arrays and the state are those of a run that '
          'nothing disturbed.')


def _require_equal(one: checkpoints.Checkpoint,
                   other: checkpoints.Checkpoint) -> None:
  """Raises RuntimeError unless two checkpoints are equal to the last bit."""
  settings = [
      {**checkpoint.values['config'], 'run_dir': ''}
      for checkpoint in (one, other)]
  if one.arrays.keys() != other.arrays.keys() or (
      {**one.values, 'config': settings[0]} !=
      {**other.values, 'config': settings[1]}):
    raise RuntimeError('The states are not equal.')
  for name, value in one.arrays.items():
    if (value.dtype, value.shape, value.tobytes()) != (
        other.arrays[name].dtype, other.arrays[name].shape,
        other.arrays[name].tobytes()):
      raise RuntimeError(f'{name} is not equal.')


def _log(run_dir: str) -> str:
  with open(f'{run_dir}.log', encoding='utf-8') as file:
    return file.read()[-3000:]


def end_where_a_worker_hangs(count: int) -> str:
  """Lets a worker hang in a run that saves every few seconds.

  Every other time two signals come in place of the next save.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if the run does not end as it should, or cannot go on.
  """
  seconds: dict[bool, list[float]] = {False: [], True: []}
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    for i in tqdm.trange(count, unit=' hangs'):
      by_signal = bool(i % 2)
      with _training(run_dir, _HUNG, 'tests.hung_launch') as process:
        _go_on(run_dir, process, _newest(run_dir))
        with open(f'{run_dir}.hang', 'w', encoding='utf-8'):
          pass
        time.sleep(5)  # By then the others wait, or a save does.
        start = time.monotonic()
        if by_signal:
          process.send_signal(signal.SIGTERM)
          time.sleep(3)
          process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=300)
        seconds[by_signal].append(time.monotonic() - start)
      os.remove(f'{run_dir}.hang')
      log = _log(run_dir)
      if code != (128 + signal.SIGTERM if by_signal else 1) or not (
          by_signal or '_hang_or_iterate' in log and
          'The run has ended. It was not saved' in log):
        raise RuntimeError(f'It ended with {code}:\n{log}')
      checkpoints.load(run_dir)  # Raises if it is not whole.
    with _training(run_dir, _HUNG) as process:
      _go_on(run_dir, process, _newest(run_dir))
  return (f'{count} hangs: each run ended with an error that names the worker, '
          f'{max(seconds[False]):.0f} seconds later at most, or '
          f'{max(seconds[True] or [0]):.1f} seconds after the first of two '
          'signals; the next command went on.')


def end_where_the_directory_goes(count: int) -> str:
  """Moves or removes the directory of a run that trains.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if the run does not end with an error, or writes there again.
  """
  seconds = []
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    moved = os.path.join(folder, 'moved')
    for i in tqdm.trange(count, unit=' removals'):
      with _training(run_dir, _HUNG) as process:
        _go_on(run_dir, process, _newest(run_dir))
        os.rename(run_dir, moved)
        if i % 2:
          shutil.rmtree(moved)
        start = time.monotonic()
        code = process.wait(timeout=300)
        seconds.append(time.monotonic() - start)
      log = _log(run_dir)
      if code != 1 or 'was removed or moved while' not in log:
        raise RuntimeError(f'It ended with {code}:\n{log}')
      if os.path.exists(run_dir):
        raise RuntimeError(f'It wrote {os.listdir(run_dir)} again.')
      if not i % 2:
        checkpoints.load(moved)  # Raises if it is not whole.
        os.rename(moved, run_dir)
  return (f'{count} directories moved or removed: each run ended with an error '
          f'that says so, {max(seconds):.1f} seconds later at most, and made '
          'nothing in its place.')


def start_among_errors(count: int, rng: np.random.Generator) -> str:
  """Starts a run while one of the files in its directory cannot be opened.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if a checkpoint is set aside, or lost.
  """
  errors = [OSError(number, os.strerror(number)) for number in (
      errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE)] + [MemoryError()]
  refused, opener = 0, open
  with tempfile.TemporaryDirectory() as run_dir:
    for steps in 16, 32, 48:
      launch.train(tiny.config(run_dir=run_dir, steps=steps))
    before = checkpoints.steps(run_dir)
    for _ in tqdm.trange(count, unit=' errors'):
      error = errors[rng.integers(len(errors))]
      victim = itertools.count(-int(rng.integers(4)))

      def fail(path, *args, victim=victim, error=error, **kwargs):
        if str(path).startswith(run_dir) and (
            str(path).endswith(('json', 'npz'))) and not next(victim):
          raise error
        return opener(path, *args, **kwargs)

      with mock.patch('builtins.open', fail):
        try:
          _, run = launch.build(
              tiny.config(run_dir=run_dir, steps=64), lambda: None)
          run.close()
        except (program.UserError, MemoryError) as caught:
          refused += 1
          if (str(error) or 'MemoryError') not in repr(caught):
            raise RuntimeError(f'{error!r} became {caught!r}') from caught
      if checkpoints.steps(run_dir) != before or any(
          'damaged' in name
          for name in os.listdir(os.path.join(run_dir, 'checkpoints'))):
        raise RuntimeError(f'{error!r} lost a checkpoint.')
  return (f'{count} starts with an error of the system: {refused} were refused '
          'and named it; no checkpoint was set aside.')


def load_nothing_wrong(count: int, rng: np.random.Generator) -> str:
  """Flips bits of the headers in a checkpoint's archive.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if something else is loaded.
  """
  with tempfile.TemporaryDirectory() as run_dir:
    launch.train(tiny.config(
        run_dir=run_dir, steps=16, reward_prediction=True))
    path = os.path.join(
        run_dir, 'checkpoints', f'step_{_newest(run_dir):012d}', 'arrays.npz')
    with open(path, 'rb') as file:
      content = bytearray(file.read())
  expected = archives.arrays(bytes(content))
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    places = [
        place for info in archive.infolist()
        for place in range(info.header_offset, info.header_offset + 200)
        if place < archive.start_dir]
    places += range(archive.start_dir, len(content))
  bits = rng.permutation(8 * len(places))[:count]
  refused = 0
  for bit in tqdm.tqdm(bits, unit=' flips'):
    place = places[bit // 8]
    content[place] ^= 1 << (bit % 8)
    try:
      found = archives.arrays(bytes(content))
    except archives.ArchiveError:
      refused += 1
    else:
      _require_equal(*(
          checkpoints.Checkpoint(arrays, {'config': {}})
          for arrays in (found, expected)))
    content[place] ^= 1 << (bit % 8)
  return (f'{len(bits)} of the {8 * len(places)} bits in the headers of '
          f'{len(expected)} arrays flipped: {refused} were refused, and '
          f'{len(bits) - refused} mean nothing; no number was another.')


def survive_starts(count: int, rng: np.random.Generator) -> str:
  """Starts and stops a run's threads again and again.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if a thread is left.
  """
  with tempfile.TemporaryDirectory() as folder:
    trainer = trainer_lib.Trainer(tiny.config(
        run_dir=folder, policy_workers=15, policy_threads=15))
    trainer.schedule = schedule_lib.Schedule(500, 8)
    threads.drive(trainer, lambda: None)  # Compiles.
    seconds = []
    for _ in tqdm.trange(count, unit=' starts'):
      trainer.schedule = schedule_lib.Schedule(10**9, 8)
      stopper = threading.Timer(rng.uniform(0, 0.2), trainer.schedule.stop)
      start = time.monotonic()
      stopper.start()
      threads.drive(trainer, lambda: None)
      stopper.join()
      seconds.append(time.monotonic() - start)
      left = [thread.name for thread in threading.enumerate()
              if thread.name.startswith(('policy', 'discrim', 'watchdog'))]
      if left:
        raise RuntimeError(f'These threads are left: {left}.')
  return (f'{count} starts and stops of 15 + 1 threads, '
          f'{max(seconds):.1f} seconds at most.')


def _resident(process: subprocess.Popen) -> float:
  """Returns the resident memory of a process in megabytes."""
  with open(f'/proc/{process.pid}/statm', encoding='utf-8') as file:
    return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6


def hold_memory_and_speed(minutes: float, run_dir: str,
                          arguments: Sequence[str]) -> str:
  """Trains and watches the memory and the steps a second.

  Args:
    minutes: For how long.
    run_dir: Where the run leaves what it leaves.
    arguments: Of agile_tf.launch.

  Returns:
    What was seen, with slopes from a line through all but the first fifth.

  Raises:
    RuntimeError: if the run ended, traced a program again, or changed its
      memory or speed by more than 5 % an hour.
  """
  times, megabytes = [], []
  endless = [*arguments, '--steps=1000000000']
  with _training(run_dir, endless, 'tests.traced_launch') as process:
    start = time.monotonic()
    for _ in tqdm.trange(int(12 * minutes), unit=' samples'):
      time.sleep(5)
      if process.poll() is not None:
        raise RuntimeError(f'The run has ended; see {run_dir}.log.')
      times.append((time.monotonic() - start) / 3600)
      megabytes.append(_resident(process))
    process.send_signal(signal.SIGINT)
    if process.wait():
      raise RuntimeError(f'Ctrl-C ended the run badly; see {run_dir}.log.')
  curve = curves.read(run_dir)
  first = len(times) // 5
  memory, _ = np.polyfit(times[first:], megabytes[first:], 1)
  speeds = curve['steps_per_second'][len(curve['steps']) // 5:]
  hours = curve['seconds'][len(curve['steps']) // 5:] / 3600
  if len(speeds) < 3:
    raise RuntimeError(f'{minutes:g} minutes are too short for a slope.')
  speed, _ = np.polyfit(hours, speeds, 1)
  traces = np.loadtxt(
      os.path.join(run_dir, 'traces.csv'), delimiter=',', skiprows=1, ndmin=2)
  late = traces[traces[:, 0] > 60 + _COMPILE_SECONDS, 1]
  text = (f'{minutes:g} minutes, {int(curve["steps"][-1]):,} steps: '
          f'{megabytes[first]:.0f} MB after a fifth and {megabytes[-1]:.0f} MB '
          f'at the end, {memory:+.0f} MB an hour; {np.mean(speeds):.0f} '
          f'steps/s, {speed:+.0f} steps/s an hour; {int(traces[-1, 1])} traces '
          f'in all, {int(np.ptp(late)) if len(late) else 0} of them after the '
          'first minute.')
  if len(late) and np.ptp(late):
    raise RuntimeError(f'Programs were traced again: {text}')
  if (abs(memory) > _DRIFT * megabytes[first] or
      abs(speed) > _DRIFT * np.mean(speeds)):
    raise RuntimeError(f'Memory or speed has not held: {text}')
  return text


def main(argv: Sequence[str]) -> None:
  """Carries out the proofs that are asked for."""
  values = flags.FLAGS
  rng = np.random.default_rng(values.seed)
  proofs = {
      'kills': lambda count: survive_kills(count, rng),
      'equal_kills': lambda count: end_equal_after_kills(count, rng),
      'hangs': end_where_a_worker_hangs,
      'removals': end_where_the_directory_goes,
      'errors': lambda count: start_among_errors(count, rng),
      'flips': lambda count: load_nothing_wrong(count, rng),
      'starts': lambda count: survive_starts(count, rng)}
  counts = {name: values[name].value for name in proofs if values[name].value}
  if not (counts or values.minutes) or (argv[1:] and not values.minutes):
    raise app.UsageError(
        f'Say --{"=N, --".join(proofs)}=N or --minutes=M; after the latter may '
        'come -- and the flags of agile_tf.launch.')
  for name, count in counts.items():
    print(proofs[name](count))
  if values.minutes:
    with tempfile.TemporaryDirectory() as folder:
      run_dir = os.path.join(folder, 'run')
      arguments = list(argv[1:]) or list(_WATCHED)
      for argument in argv[1:]:
        if argument.startswith('--run_dir='):
          run_dir = argument.removeprefix('--run_dir=')
      print(hold_memory_and_speed(values.minutes, run_dir, arguments))


if __name__ == '__main__':
  app.run(main)
