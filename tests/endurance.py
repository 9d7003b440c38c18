"""Long tests of a run: kills, memory and speed.

  python -m tests.endurance --kills=100
  python -m tests.endurance --minutes=60

They take from minutes to hours, so neither pytest nor CI runs them. Each prints
its measurements, and ends with an error at the first failure. --minutes watches
a run of relations.flags with 3 threads.
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

from agile_tf.reproduction import curves
from agile_tf.training import checkpoints
from tests.agile_tf import tiny

flags.DEFINE_integer(
    'kills', 0, 'How often to kill a repeatable run with SIGKILL. At its end '
    'it is compared with a run without kills.', lower_bound=0)
flags.DEFINE_float(
    'minutes', 0, 'How many minutes to watch memory and speed.', lower_bound=0)
flags.DEFINE_integer(
    'seed', 0, 'The seed of the random times of kills.', lower_bound=0)

# This run saves so often that many kills happen during a save.
_KILLED = (
    '--flagfile=launch/relations.flags', '--policy_workers=3',
    '--policy_threads=1', '--dataset_size=1000', '--instructions=AGENT',
    '--rollout_length=5', '--log_steps=50', '--checkpoint_minutes=0.005',
    '--steps_per_discriminator_update=100', '--batch_size=16',
    '--reward_prediction')
_WATCHED = ('--flagfile=launch/relations.flags', '--policy_threads=3')
_DRIFT = 0.05  # The share by which memory or speed may change in an hour.


@contextlib.contextmanager
def _training(run_dir: str, arguments: Sequence[str], steps: int = 10**9
             ) -> Iterator[subprocess.Popen]:
  """Starts a training run, and kills it at the end of the block."""
  os.makedirs(os.path.dirname(run_dir) or '.', exist_ok=True)
  with open(f'{run_dir}.log', 'a', encoding='utf-8') as log:
    # These come last, to override those of a flagfile.
    process = subprocess.Popen(
        [sys.executable, '-m', 'agile_tf.launch', *arguments,
         f'--steps={steps}', f'--run_dir={run_dir}'], stderr=log, stdout=log)
  try:
    yield process
  finally:
    process.kill()
    process.wait()


def _newest(run_dir: str) -> int:
  return (checkpoints.steps(run_dir) or [0])[-1]


def _log(run_dir: str) -> str:
  with open(f'{run_dir}.log', encoding='utf-8') as file:
    return file.read()[-3000:]


def _wait(process: subprocess.Popen, run_dir: str, before: int) -> None:
  """Waits until a run has a newer checkpoint."""
  deadline = time.monotonic() + 300
  while _newest(run_dir) <= before:
    if process.poll() is not None or time.monotonic() > deadline:
      raise RuntimeError(f'The run did not resume:\n{_log(run_dir)}')
    time.sleep(0.05)


def _is_saving(run_dir: str) -> bool:
  names = os.listdir(os.path.join(run_dir, 'checkpoints'))
  return any(name.endswith('.part') for name in names)


def survive_kills(count: int, rng: np.random.Generator) -> str:
  """Kills a run repeatedly; it must end like a run without kills.

  Every second kill waits until a save has begun.
  """
  in_a_save = 0
  with tempfile.TemporaryDirectory() as folder:
    killed, undisturbed = (
        os.path.join(folder, name) for name in ('killed', 'undisturbed'))
    for i in tqdm.trange(count, unit=' kills'):
      with _training(killed, _KILLED) as process:
        _wait(process, killed, _newest(killed))
        time.sleep(rng.uniform(0, 1))
        deadline = time.monotonic() + 30
        while i % 2 and not _is_saving(killed):
          if time.monotonic() > deadline:
            raise RuntimeError('It has not saved for 30 seconds.')
          time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
      in_a_save += _is_saving(killed)
      checkpoints.load(killed)  # Raises if it is damaged.
      steps = curves.read(killed)['steps']
      if (np.diff(steps) <= 0).any():
        raise RuntimeError(
            f'The steps of the rows of metrics.csv do not increase: {steps}.')
    if count > 1 and not in_a_save:
      raise RuntimeError('No kill happened during a save.')
    total = _newest(killed) + 500
    for run_dir in killed, undisturbed:
      with _training(run_dir, _KILLED, total) as process:
        if process.wait():
          raise RuntimeError(f'{run_dir} has failed:\n{_log(run_dir)}')
    ends = [checkpoints.load(run_dir) for run_dir in (killed, undisturbed)]
  for end in ends:
    end.values['config']['run_dir'] = ''
  if ends[0].values != ends[1].values:
    raise RuntimeError('The states are not equal.')
  tiny.assert_equal_arrays(*ends)
  return (f'{count} kills, {in_a_save} of them during a save; at step '
          f'{ends[0].values["steps"]} all {len(ends[0].arrays)} arrays and the '
          'state are equal to those of a run without kills.')


def _resident(process: subprocess.Popen) -> float:
  """Returns the resident memory of a process in megabytes."""
  with open(f'/proc/{process.pid}/statm', encoding='utf-8') as file:
    return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6


def hold_memory_and_speed(minutes: float, run_dir: str) -> str:
  """Trains, and measures memory and steps a second.

  Neither may change by more than 5 % in an hour, by a line that is fitted to
  all but the first fifth. No program may be traced again.
  """
  times, megabytes = [], []
  with _training(run_dir, _WATCHED) as process:
    start = time.monotonic()
    for _ in tqdm.trange(int(12 * minutes), unit=' samples'):
      time.sleep(5)
      if process.poll() is not None:
        raise RuntimeError(f'The run has ended:\n{_log(run_dir)}')
      times.append((time.monotonic() - start) / 3600)
      megabytes.append(_resident(process))
    process.send_signal(signal.SIGINT)
    if process.wait():
      raise RuntimeError(
          f'Ctrl-C ended the run with an error:\n{_log(run_dir)}')
  curve = curves.read(run_dir)
  first = len(times) // 5
  memory, _ = np.polyfit(times[first:], megabytes[first:], 1)
  speeds = curve['steps_per_second'][len(curve['steps']) // 5:]
  hours = curve['seconds'][len(curve['steps']) // 5:] / 3600
  if len(speeds) < 3:
    raise RuntimeError(f'{minutes:g} minutes are too short for a slope.')
  speed, _ = np.polyfit(hours, speeds, 1)
  text = (f'{minutes:g} minutes, {int(curve["steps"][-1]):,} steps: '
          f'{megabytes[first]:.0f} MB after a fifth and {megabytes[-1]:.0f} MB '
          f'at the end, {memory:+.0f} MB an hour; {np.mean(speeds):.0f} '
          f'steps/s, {speed:+.0f} steps/s an hour.')
  with open(f'{run_dir}.log', encoding='utf-8') as file:
    if 'retracing' in file.read():  # TensorFlow warns of it.
      raise RuntimeError(f'Programs were traced again and again: {text}')
  if (abs(memory) > _DRIFT * megabytes[first] or
      abs(speed) > _DRIFT * np.mean(speeds)):
    raise RuntimeError(f'Memory or speed has changed too much: {text}')
  return text


def main(argv: Sequence[str]) -> None:
  """Runs the tests that the flags ask for."""
  values = flags.FLAGS
  rng = np.random.default_rng(values.seed)
  if argv[1:] or not (values.kills or values.minutes):
    raise app.UsageError('Use --kills=N or --minutes=M.')
  if values.kills:
    print(survive_kills(values.kills, rng))
  if values.minutes:
    with tempfile.TemporaryDirectory() as folder:
      print(hold_memory_and_speed(
          values.minutes, os.path.join(folder, 'run')))


if __name__ == '__main__':
  app.run(main)
