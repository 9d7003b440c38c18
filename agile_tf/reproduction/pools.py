"""Where the runs of a sweep are carried out: on this machine, or by Ray.

Ray (https://docs.ray.io) is an optional extra, imported where it is used.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import glob
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from gridlu import program

# Starts a program on the cores of its first argument (empty: all), which ends
# with its parent, however that ends. Otherwise it would hold the lock of a run.
_STARTER = """
import ctypes, os, sys
if sys.platform == 'linux':
  ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
  if sys.argv[1]:
    os.sched_setaffinity(0, map(int, sys.argv[1].split(',')))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class PoolError(program.UserError):
  """Runs that cannot be carried out as the flags say."""


class Task(NamedTuple):
  """A program to carry out, and the file for all that it prints."""
  name: str
  arguments: list[str]  # Of the Python interpreter.
  log: str  # An absolute path.


def start(arguments: Sequence[str], cores: Sequence[int] = (),
          **options: Any) -> subprocess.Popen:
  """Starts a Python program that ends with this process, however that ends.

  Args:
    arguments: Of the Python interpreter.
    cores: The cores that the program may use; empty for all.
    **options: For `subprocess.Popen`.
  """
  return subprocess.Popen(
      [sys.executable, '-c', _STARTER, ','.join(map(str, cores)), *arguments],
      **options)


@contextlib.contextmanager
def handling(action: Callable[[], None]) -> Iterator[list[int]]:
  """Calls a function at SIGINT, SIGTERM and SIGHUP; yields those so far."""
  arrived: list[int] = []

  def handle(number: int, _: Any) -> None:
    arrived.append(number)
    action()

  numbers = [signal.SIGINT, signal.SIGTERM]
  if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it.
    numbers.append(signal.SIGHUP)
  handlers = {number: signal.signal(number, handle) for number in numbers}
  try:
    yield arrived
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)


def wait(process: subprocess.Popen) -> bool:
  """Waits for a program; returns whether signals came and were passed on."""
  with handling(process.terminate) as arrived:
    while process.poll() is None:  # Ray's signals do not interrupt a wait.
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
  return bool(arrived)


def _begin(task: Task, cores: Sequence[int] = (), **options: Any
          ) -> subprocess.Popen:
  """Starts a task in a session of its own, which no Ctrl-C reaches."""
  with open(task.log, 'ab') as log:
    log.write(f'{time.ctime()} on {socket.gethostname()}\n'.encode())
    log.flush()
    return start(
        task.arguments, cores, stdin=subprocess.DEVNULL, stdout=log,
        stderr=subprocess.STDOUT, start_new_session=True, **options)


def _problem(task: Task, code: int) -> str:
  """Returns what went wrong in a task that has ended; '' for exit code 0."""
  if not code:
    return ''
  with open(task.log, encoding='utf-8', errors='replace') as log:
    last = [line for line in log if line.strip()][-2:]
  return f'exit code {code}; {task.log} ends with:\n  {"  ".join(last)}'


def _share(items: Sequence[Any], i: int, count: int) -> Sequence[Any]:
  """Returns the i-th of equal shares; one item each if they are too few."""
  share = items[i * len(items) // count:(i + 1) * len(items) // count]
  return share or items[i % len(items):][:1]


def _gpus() -> list[str]:
  """Returns CUDA's names of the GPUs that programs here may use."""
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    return visible.split(',')
  return [str(i) for i in range(len(glob.glob('/dev/nvidia[0-9]*')))]


class Local:
  """Carries out tasks here, each on a share of the cores and GPUs."""

  def __init__(self, count: int):
    cores: Sequence[int] = range(os.cpu_count() or 1)
    if hasattr(os, 'sched_getaffinity'):
      cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
      raise PoolError(
          f'--jobs={count}: this program may use {len(cores)} CPU cores, and a '
          'run needs one. Make --jobs smaller.')
    gpus = _gpus()
    self._free = [
        (_share(cores, i, count),
         {'CUDA_VISIBLE_DEVICES': ','.join(_share(gpus, i, count))}
         if len(gpus) > 1 else {})
        for i in range(count)]
    self._running: list[tuple[Task, subprocess.Popen, Any]] = []

  def has_room(self) -> bool:
    """Returns whether another task can be started."""
    return bool(self._free)

  def start(self, task: Task) -> None:
    """Starts a task."""
    place = self._free.pop(0)
    process = _begin(task, place[0], env=os.environ | place[1])
    self._running.append((task, process, place))

  def ended(self) -> dict[str, str]:
    """Returns the tasks that have ended: the problem, or '', by name."""
    over = [each for each in self._running if each[1].poll() is not None]
    for each in over:
      self._running.remove(each)
      self._free.append(each[2])
    return {task.name: _problem(task, process.returncode)
            for task, process, _ in over}

  def stop(self) -> None:
    """Lets all tasks save and end; a second call ends them at once."""
    for _, process, _ in self._running:
      process.terminate()


class Cluster:
  """Carries out tasks by Ray, as it has room; has the methods of `Local`."""

  def __init__(self, ray: Any, carry_out: Any):
    """Takes the module of Ray and the remote function of a task."""
    self._ray, self._carry_out = ray, carry_out
    self._tasks: dict[Any, Task] = {}  # By the reference to their result.

  def has_room(self) -> bool:
    return True  # Tasks wait in Ray.

  def start(self, task: Task) -> None:
    self._tasks[self._carry_out.options(name=task.name).remote(task)] = task

  def ended(self) -> dict[str, str]:
    over, problems = [], {}
    if self._tasks:
      over, _ = self._ray.wait(
          list(self._tasks), num_returns=len(self._tasks), timeout=0)
    for result in over:
      name = self._tasks.pop(result).name
      try:
        problems[name] = self._ray.get(result)
      except self._ray.exceptions.RayError as error:
        problems[name] = f'{type(error).__name__}: {error}'
    return problems

  def stop(self) -> None:
    for result in self._tasks:
      self._ray.cancel(result)


@contextlib.contextmanager
def cluster(address: str, cpus: int, gpus: float, runs: str
           ) -> Iterator[Cluster]:
  """Connects to a Ray cluster, whose nodes must see this directory and `runs`.

  Args:
    address: "auto", or the address of the cluster.
    cpus: The CPUs of a task.
    gpus: Its GPUs, such as 0.5.
    runs: An existing directory.

  Raises:
    PoolError: if there is no Ray, no cluster, or none with such nodes.
  """
  try:
    import ray
  except ImportError as error:
    raise PoolError(f'--ray={address} needs Ray ({error}): pip install '
                    '"agile-tf[ray]".') from error
  try:
    ray.init(address=address, log_to_driver=False,
             logging_level=logging.WARNING)
  except (ConnectionError, RuntimeError, ValueError) as error:
    raise PoolError(f'--ray={address}: no cluster answers ({error}). "ray '
                    'start --head" starts one on this machine.') from error
  folder = os.getcwd()
  try:
    with tempfile.NamedTemporaryFile(
        dir=os.path.abspath(runs), prefix='.sweep_') as mark:

      def carry_out(task: Task) -> str:
        if not _sees(folder, mark_path):  # On a node that came later.
          return f'{socket.gethostname()} does not see {folder} and {runs}.'
        process = _begin(task, cwd=folder)
        wait(process)
        return _problem(task, process.returncode)

      mark_path = mark.name
      _check_nodes(ray, cpus, gpus, folder, mark.name)
      yield Cluster(ray, ray.remote(
          num_cpus=cpus, num_gpus=gpus, max_retries=3)(carry_out))
  finally:
    ray.shutdown()


def _sees(folder: str, mark: str) -> bool:
  return os.path.isdir(folder) and os.path.exists(mark)


def _check_nodes(ray: Any, cpus: int, gpus: float, folder: str, mark: str
                ) -> None:
  """Raises PoolError unless there are nodes for a task, and they see files."""
  from ray.util import scheduling_strategies
  nodes = [node for node in ray.nodes()
           if node['Alive'] and node['Resources'].get('CPU', 0) >= cpus and
           node['Resources'].get('GPU', 0) >= gpus]
  if not nodes:
    raise PoolError(
        f'--cpus={cpus} --gpus={gpus:g}: no node of the cluster has so many. '
        'Make these smaller, or add such a node.')
  answers = [
      ray.remote(_sees).options(
          num_cpus=0, max_retries=0, scheduling_strategy=scheduling_strategies
          .NodeAffinitySchedulingStrategy(node['NodeID'], soft=False)
      ).remote(folder, mark) for node in nodes]
  for node, answer in zip(nodes, answers, strict=True):
    problem = ''
    try:
      if ray.get(answer, timeout=300):
        continue
    except ray.exceptions.RayError as error:  # No agile_tf there, perhaps.
      problem = f' ({str(error).strip().splitlines()[-1]})'
    raise PoolError(
        f'--ray: {node["NodeManagerAddress"]} cannot use {folder} and '
        f'{os.path.dirname(mark)}{problem}. All nodes need agile_tf, and the '
        'current directory and --runs on a disk that they share.')
