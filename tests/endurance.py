"""Long tests of a run: faults, starts and stops, memory and speed.

  python -m tests.endurance --kills=100
  python -m tests.endurance --equal_kills=100
  python -m tests.endurance --hangs=10
  python -m tests.endurance --removals=10
  python -m tests.endurance --errors=200
  python -m tests.endurance --flips=51224
  python -m tests.endurance --starts=200
  python -m tests.endurance --minutes=60

They take from minutes to hours, so neither pytest nor CI runs them. Each prints
its measurements, and ends with an error at the first failure. --minutes watches
a run of relations.flags with 3 threads. Flags of agile_tf.launch after `--`
replace these; with --run_dir, the run's files are kept. The run ignores
--steps, and ends after this time:

  python -m tests.endurance --minutes=60 -- \\
      --flagfile=launch/laptop.flags --policy_threads=3 --run_dir=runs/hour
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

flags.DEFINE_integer(
    'kills', 0, 'How often to kill a run with SIGKILL.', lower_bound=0)
flags.DEFINE_integer(
    'equal_kills', 0, 'How often to kill a repeatable run with SIGKILL. At its '
    'end it is compared with a run without kills.', lower_bound=0)
flags.DEFINE_integer(
    'hangs', 0, 'How often to let a worker hang. Every second time the run '
    'also receives two signals.', lower_bound=0)
flags.DEFINE_integer(
    'removals', 0, "How often to move or remove a run's directory.",
    lower_bound=0)
flags.DEFINE_integer(
    'errors', 0, 'How often to start a run with a system error.', lower_bound=0)
flags.DEFINE_integer(
    'flips', 0, "How many bits to flip in a checkpoint's array headers.",
    lower_bound=0)
flags.DEFINE_integer(
    'starts', 0, "How often to start and stop a run's threads.", lower_bound=0)
flags.DEFINE_float(
    'minutes', 0, 'How many minutes to watch memory and speed.', lower_bound=0)
flags.DEFINE_integer(
    'seed', 0, 'The seed of the random times and places of faults.',
    lower_bound=0)

# This run saves so often that many kills happen during a save.
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
_DRIFT = 0.05  # The share by which memory or speed may change in an hour.
_COMPILE_SECONDS = 60  # The time for compilation, before the first minute.
_SAVE_SECONDS = 5.0  # The time that a save may take, after its interval.


@contextlib.contextmanager
def _training(run_dir: str, arguments: Sequence[str],
              program: str = 'agile_tf.launch') -> Iterator[subprocess.Popen]:
  """Starts a training run, and kills it at the end of the block."""
  os.makedirs(os.path.dirname(run_dir) or '.', exist_ok=True)
  with open(f'{run_dir}.log', 'a', encoding='utf-8') as log:
    # --run_dir comes last, to override that of a flagfile.
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


def _resume(run_dir: str, process: subprocess.Popen, before: int) -> None:
  """Waits until a run has a newer checkpoint."""
  deadline = time.monotonic() + 300
  while _newest(run_dir) <= before:
    if process.poll() is not None or time.monotonic() > deadline:
      with open(f'{run_dir}.log', encoding='utf-8') as file:
        raise RuntimeError(f'The run did not resume:\n{file.read()[-3000:]}')
    time.sleep(0.05)


def _is_saving(run_dir: str) -> bool:
  names = os.listdir(os.path.join(run_dir, 'checkpoints'))
  return any(name.endswith('.part') for name in names)


def survive_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a run repeatedly; each time it must resume.

  Every second kill waits until a save has begun.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if something was lost.
  """
  in_a_save = 0
  ages = []
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    for i in tqdm.trange(count, unit=' kills'):
      with _training(run_dir, _KILLED) as process:
        _resume(run_dir, process, _newest(run_dir))
        # A first save may have to wait until the programs are compiled.
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
      checkpoint = checkpoints.load(run_dir)  # Raises if it is damaged.
      step = checkpoint.values['steps']
      if not i % 2:
        ages.append(now - os.path.getmtime(os.path.join(
            run_dir, 'checkpoints', f'step_{step:012d}')))
        if ages[-1] > 60 * 0.005 + _SAVE_SECONDS:
          raise RuntimeError(
              f'The newest checkpoint was {ages[-1]:.1f} seconds old.')
      _check_rows(run_dir)
    if count > 1 and not in_a_save:
      raise RuntimeError('No kill happened during a save.')
    with _training(run_dir, _KILLED) as process:
      _resume(run_dir, process, _newest(run_dir))
    _check_rows(run_dir)
  return (f'{count} kills survived, {in_a_save} of them during a save; the '
          'age of the newest checkpoint at the other kills was '
          f'{np.median(ages):.1f} seconds in the median and {max(ages):.1f} at '
          'most.')


def _check_rows(run_dir: str) -> None:
  """Checks that no row of metrics appears twice."""
  steps = curves.read(run_dir)['steps']
  if (np.diff(steps) <= 0).any():
    raise RuntimeError(
        f'The steps of the rows of metrics.csv do not increase: {steps}.')


def end_equal_after_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a repeatable run repeatedly; it must end like a run without kills.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if the last checkpoints of the two runs differ.
  """
  with tempfile.TemporaryDirectory() as folder:
    killed, undisturbed = (
        os.path.join(folder, name) for name in ('killed', 'undisturbed'))
    for _ in tqdm.trange(count, unit=' kills'):
      with _training(killed, _REPEATABLE) as process:
        _resume(killed, process, _newest(killed))
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
          f'{len(ends[0].arrays)} arrays and the state are equal to those of a '
          'run without kills.')


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

  Every second time two signals must end it at once.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if the run does not end as it should, or does not resume.
  """
  seconds: dict[bool, list[float]] = {False: [], True: []}
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    for i in tqdm.trange(count, unit=' hangs'):
      by_signal = bool(i % 2)
      with _training(run_dir, _HUNG, 'tests.hung_launch') as process:
        _resume(run_dir, process, _newest(run_dir))
        with open(f'{run_dir}.hang', 'w', encoding='utf-8'):
          pass
        time.sleep(5)  # By then the other workers or a save wait for it.
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
      checkpoints.load(run_dir)  # Raises if it is damaged.
    with _training(run_dir, _HUNG) as process:
      _resume(run_dir, process, _newest(run_dir))
  return (f'{count} hangs: each run ended with an error that names the worker, '
          f'{max(seconds[False]):.0f} seconds later at most, or '
          f'{max(seconds[True] or [0]):.1f} seconds after the first of two '
          'signals; each time the next command resumed it.')


def end_where_the_directory_goes(count: int) -> str:
  """Moves or removes the directory of a run while it trains.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if the run does not end with an error, or creates the
      directory again.
  """
  seconds = []
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    moved = os.path.join(folder, 'moved')
    for i in tqdm.trange(count, unit=' removals'):
      with _training(run_dir, _HUNG) as process:
        _resume(run_dir, process, _newest(run_dir))
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
        raise RuntimeError(
            f'It created the directory again, with {os.listdir(run_dir)}.')
      if not i % 2:
        checkpoints.load(moved)  # Raises if it is damaged.
        os.rename(moved, run_dir)
  return (f'{count} directories moved or removed: each run ended with an error '
          f'that says so, {max(seconds):.1f} seconds later at most, and did '
          'not create it again.')


def start_among_errors(count: int, rng: np.random.Generator) -> str:
  """Starts a run while one of the files in its directory cannot be opened.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if a checkpoint is renamed or lost.
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
  return (f'{count} starts with a system error: {refused} were refused with a '
          'message that names it; no checkpoint was renamed.')


def load_nothing_wrong(count: int, rng: np.random.Generator) -> str:
  """Flips bits in the headers of a checkpoint's archive.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if other numbers are loaded than were saved.
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
          f'{len(bits) - refused} had no effect; no number changed.')


def survive_starts(count: int, rng: np.random.Generator) -> str:
  """Starts and stops a run's threads repeatedly.

  Returns:
    The measurements as text.

  Raises:
    RuntimeError: if a thread is still running after a stop.
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
        raise RuntimeError(f'These threads are still running: {left}.')
  return (f'{count} starts and stops of 15 + 1 threads, '
          f'{max(seconds):.1f} seconds at most.')


def _resident(process: subprocess.Popen) -> float:
  """Returns the resident memory of a process in megabytes."""
  with open(f'/proc/{process.pid}/statm', encoding='utf-8') as file:
    return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6


def hold_memory_and_speed(minutes: float, run_dir: str,
                          arguments: Sequence[str]) -> str:
  """Trains, and measures memory and steps a second.

  Args:
    minutes: How long to train.
    run_dir: The run's directory.
    arguments: Flags of agile_tf.launch.

  Returns:
    The measurements as text, with the slopes of a line that is fitted to all
    but the first fifth.

  Raises:
    RuntimeError: if the run ended, traced a program again, or changed its
      memory or speed by more than 5 % in an hour.
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
      raise RuntimeError(
          f'Ctrl-C ended the run with an error; see {run_dir}.log.')
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
    raise RuntimeError(f'Memory or speed has changed too much: {text}')
  return text


def main(argv: Sequence[str]) -> None:
  """Runs the tests that the flags ask for."""
  values = flags.FLAGS
  rng = np.random.default_rng(values.seed)
  tests = {
      'kills': lambda count: survive_kills(count, rng),
      'equal_kills': lambda count: end_equal_after_kills(count, rng),
      'hangs': end_where_a_worker_hangs,
      'removals': end_where_the_directory_goes,
      'errors': lambda count: start_among_errors(count, rng),
      'flips': lambda count: load_nothing_wrong(count, rng),
      'starts': lambda count: survive_starts(count, rng)}
  counts = {name: values[name].value for name in tests if values[name].value}
  if not (counts or values.minutes) or (argv[1:] and not values.minutes):
    raise app.UsageError(
        f'Use --{"=N, --".join(tests)}=N or --minutes=M. After the latter, '
        'flags of agile_tf.launch may follow `--`.')
  for name, count in counts.items():
    print(tests[name](count))
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
