"""The long proofs: kills at any moment, and memory and speed over an hour.

  python -m tests.endurance --kills=100
  python -m tests.endurance --minutes=60

They take from minutes to hours, so that neither pytest nor CI runs them. Each
prints its figures, and ends with an error at the first thing that is not as
promised. What is watched for --minutes is relations.flags with 3 threads, or
what follows `--`, which is for agile_tf.launch and may keep the run:

  python -m tests.endurance --minutes=60 -- \
      --flagfile=launch/quickstart.flags --policy_threads=3 --run_dir=runs/hour
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
import numpy as np
import tqdm

from agile_tf import checkpoints
from agile_tf import curves

flags.DEFINE_integer('kills', 0, 'How many kill -9 to survive.', lower_bound=0)
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
_SAVE_SECONDS = 5.0  # What a save may take beside what it waits for.


@contextlib.contextmanager
def _training(run_dir: str,
              arguments: Sequence[str]) -> Iterator[subprocess.Popen]:
  """A training run, which does not outlive the block."""
  with open(f'{run_dir}.log', 'a', encoding='utf-8') as log:
    # The directory comes last: flagfiles name one, too.
    process = subprocess.Popen(
        [sys.executable, '-m', 'agile_tf.launch', *arguments,
         f'--run_dir={run_dir}'], stderr=log, stdout=log)
  try:
    yield process
  finally:
    process.kill()
    process.wait()


def _newest(run_dir: str) -> int:
  return (checkpoints.steps(run_dir) or [0])[-1]


def survive_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a run again and again; each time it must go on.

  Returns:
    What was seen.

  Raises:
    RuntimeError: if something was lost.
  """
  in_a_save = 0
  waits = []
  with tempfile.TemporaryDirectory() as folder:
    run_dir = os.path.join(folder, 'run')
    for _ in tqdm.trange(count, unit=' kills'):
      before = _newest(run_dir)
      with _training(run_dir, _KILLED) as process:
        deadline = time.monotonic() + 300
        # It has gone on once there is a newer checkpoint.
        while _newest(run_dir) <= before:
          if process.poll() is not None or time.monotonic() > deadline:
            with open(f'{run_dir}.log', encoding='utf-8') as file:
              raise RuntimeError(
                  f'The run did not go on:\n{file.read()[-3000:]}')
          time.sleep(0.05)
        time.sleep(rng.uniform(0, 2))
        process.send_signal(signal.SIGKILL)
        process.wait()
      now = time.time()
      files = os.listdir(os.path.join(run_dir, 'checkpoints'))
      in_a_save += any(name.endswith('.part') for name in files)
      checkpoint = checkpoints.load(run_dir)  # Raises if it is not whole.
      step = checkpoint.values['steps']
      waits.append(now - os.path.getmtime(os.path.join(
          run_dir, 'checkpoints', f'step_{step:012d}')))
      if waits[-1] > 60 * 0.005 + _SAVE_SECONDS:
        raise RuntimeError(
            f'The newest checkpoint was {waits[-1]:.1f} seconds old.')
      steps = curves.read(run_dir)['steps']
      if (np.diff(steps) <= 0).any():
        raise RuntimeError(f'metrics.csv has rows twice: {steps}.')
  return (f'{count} kills survived, {in_a_save} of them in a save; the newest '
          f'checkpoint was {max(waits):.1f} seconds old at most.')


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
    RuntimeError: if the run ended.
  """
  times, megabytes = [], []
  with _training(run_dir, arguments) as process:
    start = time.monotonic()
    for _ in tqdm.trange(int(12 * minutes), unit=' samples'):
      time.sleep(5)
      if process.poll() is not None:
        raise RuntimeError(f'The run has ended; see {run_dir}.log.')
      times.append((time.monotonic() - start) / 3600)
      megabytes.append(_resident(process))
    process.send_signal(signal.SIGINT)
    process.wait()
  curve = curves.read(run_dir)
  first = len(times) // 5
  memory, _ = np.polyfit(times[first:], megabytes[first:], 1)
  speeds = curve['steps_per_second'][len(curve['steps']) // 5:]
  hours = curve['seconds'][len(curve['steps']) // 5:] / 3600
  speed, _ = np.polyfit(hours, speeds, 1) if len(speeds) > 2 else (np.nan, 0)
  return (f'{minutes:g} minutes, {int(curve["steps"][-1]):,} steps: '
          f'{megabytes[first]:.0f} MB after a fifth and {megabytes[-1]:.0f} MB '
          f'at the end, {memory:+.0f} MB an hour; {np.mean(speeds):.0f} '
          f'steps/s, {speed:+.0f} steps/s an hour.')


def main(argv: Sequence[str]) -> None:
  """Carries out the proofs that are asked for."""
  values = flags.FLAGS
  if not (values.kills or values.minutes) or (
      argv[1:] and not values.minutes):
    raise app.UsageError(
        'Say --kills=N or --minutes=M; after the latter may come -- and the '
        'flags of agile_tf.launch.')
  if values.kills:
    print(survive_kills(values.kills, np.random.default_rng(values.seed)))
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
