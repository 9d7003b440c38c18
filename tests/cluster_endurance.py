"""Long tests of a run on several machines: a chief and two servers here.

  python -m tests.cluster_endurance --faults=80

Each fault in turn: a server is killed (SIGKILL) and started again, every second
time at once and otherwise when the run has gone on without it; a server is
stopped (SIGSTOP) until it is missed, and goes on; the chief is killed and
started again; the chief is stopped until the servers miss it, and goes on. Each
time the run must go on and take every server back, and a chief that was killed
must resume from its newest checkpoint. At the end Ctrl-C must save, and end all
processes with 0. Neither pytest nor CI runs this.
"""

from collections.abc import Callable, Sequence
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
import numpy as np

from agile_tf.training import checkpoints
from tests.agile_tf import tiny

flags.DEFINE_integer('faults', 4, 'How many faults.', lower_bound=0)
flags.DEFINE_integer('seed', 0, 'The seed of their times.', lower_bound=0)
flags.DEFINE_float(
    'patience', 600.0, 'Seconds that the run may take to go on. Processes that '
    'must compile on a busy machine need minutes.', lower_bound=0)

_SETTINGS = tiny.flags(
    policy_workers=3, policy_threads=3, reward='environment',
    steps=1_000_000_000, log_steps=200, checkpoint_minutes=0.05,
    stall_minutes=10)
_MISSED = 'does not answer any more'
_HERE = 'is here with'
_SILENT = 'has given no sign'


class Cluster:
  """A chief (task 0) and two servers, as processes."""

  def __init__(self, folder: str):
    self.run_dir = os.path.join(folder, 'run')
    self._folder = folder
    self._addresses = ','.join(tiny.free_address() for _ in range(2))
    self.processes: dict[int, subprocess.Popen] = {}

  def start(self, task: int) -> None:
    """Starts the process of a task."""
    with open(self._log_path(task), 'a', encoding='utf-8') as log:
      self.processes[task] = subprocess.Popen(
          [sys.executable, '-m', 'agile_tf.launch', *_SETTINGS,
           f'--cluster={self._addresses}', f'--task={task}',
           f'--run_dir={self.run_dir}'], stderr=log, stdout=log)

  def _log_path(self, task: int) -> str:
    return os.path.join(self._folder, f'{task}.log')

  def log(self, task: int) -> str:
    """Returns what a task's processes have written so far."""
    with open(self._log_path(task), encoding='utf-8') as file:
      return file.read()

  def said(self, task: int, words: str) -> int:
    """Returns how often a task's processes have said this."""
    return self.log(task).count(words)

  def resumed(self) -> int:
    """Returns the step from which the chief resumed last; 0 at the start."""
    return int(([0] + re.findall(r'Resuming from step (\d+)', self.log(0)))[-1])

  def newest(self) -> int:
    """Returns the step of the newest checkpoint."""
    return (checkpoints.steps(self.run_dir) or [0])[-1]

  def wait(self, what: str, condition: Callable[[], bool],
           running: Sequence[int], seconds: float) -> float:
    """Waits for a condition and returns the seconds that it took.

    Raises:
      RuntimeError: if it takes too long, or one of these tasks ends.
    """
    start = time.monotonic()
    while not condition():
      for task in running:
        if self.processes[task].poll() is not None:
          raise RuntimeError(
              f'Task {task} has ended while this waited for {what}:\n'
              f'{self.log(task)[-3000:]}')
      if time.monotonic() - start > seconds:
        raise RuntimeError(
            f'Waited {seconds:.0f} seconds for {what}:\n' + '\n'.join(
                f'task {task}:\n{self.log(task)[-2000:]}' for task in range(3)))
      time.sleep(0.1)
    return time.monotonic() - start


def _fault(cluster: Cluster, kind: str, victim: int, at_once: bool,
           patience: float) -> float:
  """Causes one fault; returns the seconds until the run has gone on after it.

  That is until a checkpoint with later steps. If the victim is a server, it is
  still away then, or starting again if it was started `at_once`.

  Raises:
    RuntimeError: if the run does not go on as it should.
  """
  here = cluster.said(0, _HERE)
  missed = cluster.said(0, _MISSED)
  silent = [cluster.said(task, _SILENT) for task in (1, 2)]
  step, saved = cluster.newest(), 0
  start = time.monotonic()
  process = cluster.processes[victim]
  process.send_signal(
      signal.SIGKILL if kind == 'kill' else signal.SIGSTOP)
  others = [task for task in range(3) if task != victim]
  if at_once:
    process.wait()
    cluster.start(victim)
  if victim:
    cluster.wait('the chief to miss the server',
                 lambda: cluster.said(0, _MISSED) > missed, others, patience)
    step = cluster.newest()
    cluster.wait('a checkpoint without the server',
                 lambda: cluster.newest() > step, others, patience)
    seconds = time.monotonic() - start
    returning = 1
  elif kind == 'stop':
    cluster.wait(
        'both servers to miss the chief', lambda: all(
            cluster.said(task, _SILENT) > before
            for task, before in zip((1, 2), silent)), others, patience)
    returning = 2
  else:
    returning = 2
  if kind == 'stop':
    process.send_signal(signal.SIGCONT)
  elif not at_once:
    process.wait()
    saved = cluster.newest()
    cluster.start(victim)
  cluster.wait(
      'all servers', lambda: cluster.said(0, _HERE) >= here + returning,
      range(3), patience)
  if not victim:
    step = max(step, cluster.newest())
    cluster.wait('a new checkpoint', lambda: cluster.newest() > step,
                 range(3), patience)
    seconds = time.monotonic() - start
    if kind == 'kill':
      resumed = cluster.resumed()
      if resumed < saved:
        raise RuntimeError(
            f'The chief resumed from step {resumed}, and step {saved} had '
            f'been saved:\n{cluster.log(0)[-3000:]}')
  return seconds


def survive(count: int, rng: np.random.Generator, patience: float) -> str:
  """Causes faults, one after another; returns the measurements as text.

  Raises:
    RuntimeError: if the run does not go on, or does not end as it should.
  """
  seconds: dict[str, list[float]] = {}
  with tempfile.TemporaryDirectory() as folder:
    cluster = Cluster(folder)
    try:
      for task in range(3):
        cluster.start(task)
      cluster.wait('the first checkpoint', lambda: cluster.newest() > 0,
                   range(3), patience)
      for i in range(count):
        time.sleep(rng.uniform(0, 5))
        kind = ('kill', 'stop')[i % 2]
        victim = 0 if i // 2 % 2 else int(rng.integers(1, 3))
        at_once = bool(i % 4 == 0 and i // 4 % 2)
        name = (f'{kind} {"a server" if victim else "the chief"}'
                f'{", started at once" if at_once else ""}')
        seconds.setdefault(name, []).append(
            _fault(cluster, kind, victim, at_once, patience))
        print(f'{i + 1}: {name}, {seconds[name][-1]:.0f} s', flush=True)
      cluster.processes[0].send_signal(signal.SIGINT)
      took = cluster.wait(
          'all processes to end', lambda: all(
              process.poll() is not None
              for process in cluster.processes.values()), (), patience)
      codes = [process.returncode for process in cluster.processes.values()]
      if any(codes):
        raise RuntimeError(
            f'They ended with {codes}:\n{cluster.log(0)[-3000:]}')
      checkpoints.load(cluster.run_dir)  # Raises if it is damaged.
    finally:
      for process in cluster.processes.values():
        process.kill()
        process.wait()
  return '; '.join(
      f'{name}: {len(values)} times, {np.median(values):.0f} s in the median '
      f'and {max(values):.0f} s at most' for name, values in seconds.items()
      ) + f'; Ctrl-C ended all three with 0 after {took:.0f} s.'


def main(_: Sequence[str]) -> None:
  """Runs the test."""
  values = flags.FLAGS
  print(survive(values.faults, np.random.default_rng(values.seed),
                values.patience))


if __name__ == '__main__':
  app.run(main)
