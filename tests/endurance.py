"""The long proofs: kills at any moment, starts and stops, memory and speed.

  python -m tests.endurance --kills=100
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
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from absl import app
from absl import flags
import numpy as np
import tqdm

from agile_tf.reproduction import curves
from agile_tf.training import checkpoints
from agile_tf.training import schedule as schedule_lib
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny

flags.DEFINE_integer('kills', 0, 'How many kill -9 to survive.', lower_bound=0)
flags.DEFINE_integer(
    'starts', 0, 'How many starts and stops to survive.', lower_bound=0)
flags.DEFINE_float(
    'minutes', 0, 'For how long to watch memory and speed.', lower_bound=0)
flags.DEFINE_integer('seed', 0, 'Decides when to kill.', lower_bound=0)

# Saves follow each other so closely that many kills fall into one.
_KILLED = (
    '--flagfile=launch/relations.flags', '--policy_workers=3',
    '--policy_threads=3', '--dataset_size=1000', '--instructions=AGENT',
    '--rollout_length=5', '--log_steps=50', '--steps=1000000000',
    '--checkpoint_minutes=0.005', '--steps_per_discriminator_update=100',
    '--batch_size=16', '--reward_prediction')
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
  if not (values.kills or values.starts or values.minutes) or (
      argv[1:] and not values.minutes):
    raise app.UsageError(
        'Say --kills=N, --starts=N or --minutes=M; after the latter may come '
        '-- and the flags of agile_tf.launch.')
  rng = np.random.default_rng(values.seed)
  if values.kills:
    print(survive_kills(values.kills, rng))
  if values.starts:
    print(survive_starts(values.starts, rng))
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
