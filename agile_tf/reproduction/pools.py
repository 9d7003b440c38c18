"""Where the runs of a sweep are carried out: on this machine, or by Ray.

Ray (https://docs.ray.io) is an optional extra, imported where it is used.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import fcntl
import glob
import itertools
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from typing import Any, IO, NamedTuple

from agile_tf import stopping
from gridlu import program

# This starts a program on the cores that the first argument lists. The second
# argument is the parent's process. When the parent ends, however it ends, Linux
# kills the program, which would otherwise hold the lock of a run. The parent
# may have ended before Linux was told.
_STARTER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[2]):
  sys.exit('What started this program has ended.')
os.sched_setaffinity(0, map(int, sys.argv[1].split(',')))
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def command(arguments: Sequence[str], cores: Collection[int]) -> list[str]:
  """Returns a command that runs Python on some cores, and ends with us.

  `arguments` follow `python` on the command line.
  """
  return [sys.executable, '-c', _STARTER, ','.join(map(str, cores)),
          str(os.getpid()), *arguments]


class Task(NamedTuple):
  """A program to carry out, and the file for all that it prints."""
  name: str
  arguments: list[str]  # What follows `python` on the command line.
  log: str  # An absolute path.


class Running(NamedTuple):
  """A task that was started."""
  # Returns its problem; '' if it ended without one; None while it runs.
  poll: Callable[[], str | None]
  stop: Callable[[], None]  # Lets it save and end; a second call ends it.


# A pool starts a task, or returns None where all places are taken.
Pool = Callable[[Task], Running | None]


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
  """Handles the signals that let a run save; yields those that have arrived."""
  arrived: list[int] = []
  handlers = {
      number: signal.signal(number, lambda number, _: arrived.append(number))
      for number in stopping.signals()}
  try:
    yield arrived
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)


class _Attempt(NamedTuple):
  """A process that carries out a task."""
  process: subprocess.Popen
  log: str  # The path of its file.
  start: int  # Where its lines begin in that file.

  def problem(self) -> str:
    """Returns what went wrong, when it has ended; '' for exit code 0."""
    code = self.process.returncode
    if not code:
      return ''
    with open(self.log, 'rb') as file:
      file.seek(self.start)
      lines = file.read().decode(errors='replace').splitlines()
    last = '\n  '.join([line for line in lines if line.strip()][-2:])
    return f'exit code {code}; {self.log} ends with:\n  {last}\n'


def _open_log(path: str) -> IO[bytes]:
  """Opens a file to append to.

  While a process writes to it, another one is opened: `run.2.log` for
  `run.log`. Processes that get the file as their output hold its lock too.

  Raises:
    UserError: It is a link, or no regular file.
  """
  name, extension = os.path.splitext(path)
  for number in itertools.count(1):
    path = f'{name}.{number}{extension}' if number > 1 else path
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
      raise program.UserError(
          f'{path} is no regular file, and what the run prints would be '
          'appended to it: remove it.')
    log = open(path, 'ab')
    try:
      fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      log.close()
      continue
    except OSError:
      pass  # This disk has no locks.
    return log
  raise AssertionError


def _begin(task: Task, cores: Sequence[int], **options: Any) -> _Attempt:
  """Starts a task in a session of its own, which no Ctrl-C reaches."""
  with _open_log(task.log) as log:
    start = log.seek(0, os.SEEK_END)
    log.write(f'{time.ctime()} on {socket.gethostname()}\n'.encode())
    log.flush()
    process = subprocess.Popen(
        command(task.arguments, cores),
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        start_new_session=True, **options)
    return _Attempt(process, log.name, start)


def _gpus() -> list[str]:
  """Returns CUDA's names of the GPUs that programs here may use."""
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    return visible.split(',')
  return [str(i) for i in range(len(glob.glob('/dev/nvidia[0-9]*')))]


def _share(items: Sequence[Any], i: int, count: int) -> Sequence[Any]:
  """Returns the i-th of equal shares; one item each if they are too few."""
  begin = i * len(items) // count
  return items[begin:max(begin + 1, (i + 1) * len(items) // count)]


def local(count: int) -> Pool:
  """Returns this machine as places for tasks, with equal cores and GPUs."""
  cores, gpus = sorted(os.sched_getaffinity(0)), _gpus()
  if count > len(cores):
    raise program.UserError(
        f'--jobs={count}: this program may use {len(cores)} CPU cores, and a '
        'run needs one. Make --jobs smaller.')
  free = [*range(count)]

  def begin(task: Task) -> Running | None:
    if not free:
      return None
    place = free[0]
    own = ({'CUDA_VISIBLE_DEVICES': ','.join(_share(gpus, place, count))}
           if len(gpus) > 1 else {})
    attempt = _begin(
        task, _share(cores, place, count), env=os.environ | own)
    free.remove(place)

    def poll() -> str | None:
      if attempt.process.poll() is None:
        return None
      free.append(place)
      return attempt.problem()

    return Running(poll, attempt.process.terminate)

  return begin


def _own_folder() -> str:
  """Makes a folder of this user for the locks of this machine's cores.

  Its place is known, because all processes of the user share it. Somebody else
  may have made it before, and is refused.
  """
  folder = os.path.join(tempfile.gettempdir(), f'agile_tf_cores_{os.getuid()}')
  with contextlib.suppress(FileExistsError):
    os.mkdir(folder, mode=0o700)
  found = os.lstat(folder)
  if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
    raise program.UserError(
        f'{folder} is not a folder of this user. Remove it, or set TMPDIR to a '
        'folder of your own on each machine of the cluster.')
  os.chmod(folder, 0o700)
  return folder


def _open_own(path: str, _: int) -> int:
  """Opens a file that may be new; no link is followed and nothing changed."""
  return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW |
                 os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _reserved(count: int) -> Iterator[list[int]]:
  """Yields cores that no other task of a sweep by Ray has on this machine.

  Ray counts CPUs, but does not say which ones a task may use. A lock on a file
  reserves a core until this process ends. If Ray was told of more cores than
  there are, tasks share some.
  """
  folder = _own_folder()
  free: list[int] = []
  taken: list[int] = []
  with contextlib.ExitStack() as locks:
    for core in sorted(os.sched_getaffinity(0)):
      lock = locks.enter_context(open(
          os.path.join(folder, str(core)), 'rb', opener=_open_own))
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free.append(core)
      except BlockingIOError:
        taken.append(core)
      if len(free) == count:
        break
    yield (free + taken)[:count]


@contextlib.contextmanager
def cluster(address: str, cpus: int, gpus: float, runs: str
           ) -> Iterator[Pool]:
  """Connects to a Ray cluster, whose nodes must see this directory and `runs`.

  A task gets so many CPUs and uses no others. It also gets so many GPUs, such
  as 0.5. Raises UserError if there is no Ray, no cluster, or none with such
  nodes.
  """
  try:
    import ray
  except ImportError as error:
    raise program.UserError(
        f'--ray={address} needs Ray ({error}). {program.installing("ray")}'
        ) from error
  try:
    ray.init(address=address, log_to_driver=False,
             logging_level=logging.WARNING)
  except (ConnectionError, RuntimeError, ValueError) as error:
    raise program.UserError(
        f'--ray={address}: no cluster answers ({error}). "ray start --head" '
        'starts one on this machine.') from error
  folder = os.getcwd()

  def carry_out(task: Task) -> str:
    told = 0  # How many of the signals that arrived the task was told of.
    with _reserved(cpus) as cores, signals() as arrived:
      attempt = _begin(task, cores, cwd=folder)
      while attempt.process.poll() is None:
        if len(arrived) > told:  # Ray interrupts a task to stop it.
          told = len(arrived)
          attempt.process.terminate()
        time.sleep(0.5)
    return attempt.problem()

  def begin(task: Task) -> Running:  # Ray itself has a queue.
    result = ray.remote(
        num_cpus=cpus, num_gpus=gpus, max_retries=3, name=task.name
        )(carry_out).remote(task)

    def poll() -> str | None:
      if not ray.wait([result], timeout=0)[0]:
        return None
      try:
        return ray.get(result)
      except ray.exceptions.RayError as error:
        return f'{type(error).__name__}: {error}'

    return Running(poll, lambda: ray.cancel(result))

  try:
    _check_nodes(ray, cpus, gpus, folder, os.path.abspath(runs))
    yield begin
  finally:
    ray.shutdown()


def _check_nodes(ray: Any, cpus: int, gpus: float, folder: str, runs: str
                ) -> None:
  """Raises UserError unless there are nodes for a task, and all see folders."""
  from ray.util import scheduling_strategies
  nodes = [node for node in ray.nodes()
           if node['Alive'] and node['Resources'].get('CPU', 0) >= cpus and
           node['Resources'].get('GPU', 0) >= gpus]
  if not nodes:
    raise program.UserError(
        f'--cpus={cpus} --gpus={gpus:g}: no node of the cluster has so many. '
        'Make these smaller, or add such a node.')
  on = scheduling_strategies.NodeAffinitySchedulingStrategy
  # A node sees this new file only if `runs` is on a disk that it shares.
  with tempfile.NamedTemporaryFile(dir=runs, prefix='.sweep_') as mark:
    answers = {
        node['NodeManagerAddress']: ray.remote(_all_exist).options(
            num_cpus=0, max_retries=0,
            scheduling_strategy=on(node['NodeID'], soft=False)
        ).remote(folder, runs, mark.name) for node in nodes}
    for address, answer in answers.items():
      # The node may lack agile_tf, not answer in time, or have died.
      with contextlib.suppress(ray.exceptions.RayError):
        if ray.get(answer, timeout=300):
          continue
      raise program.UserError(
          f'--ray: {address} cannot use {folder} and {runs}. All nodes '
          'need agile_tf, and the current directory and --runs on a disk that '
          'they share.')


def _all_exist(*paths: str) -> bool:
  return all(map(os.path.exists, paths))
