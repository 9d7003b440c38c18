"""One process for each run: the lock on a run's directory.

The operating system releases the lock when its process ends, however it ends.
A lock file that is left behind therefore does not block a new process.
"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import fcntl
import json
import os
import socket
import time

from absl import logging

from gridlu import files
from gridlu import program

_NAME = 'owner.json'


class RunLockError(program.UserError):
  """A run's directory that another process uses, or that was moved."""


def _describe(path: str) -> str:
  """Returns which process holds a lock, as far as its file says."""
  try:
    with open(path, encoding='utf-8') as file:
      owner = files.parse_json(file.read())
    return (f'process {owner["pid"]} on {owner["host"]}, since '
            f'{owner["since"]}')
  except (OSError, ValueError, KeyError, TypeError):
    return 'another process'


def remove_if_unused(run_dir: str) -> None:
  """Removes a run's directory if nothing but its lock is there.

  Args:
    run_dir: The directory, whose lock this process holds.
  """
  with contextlib.suppress(OSError):  # It was removed or moved.
    if os.listdir(run_dir) == [_NAME]:
      os.remove(os.path.join(run_dir, _NAME))
      os.rmdir(run_dir)


@contextlib.contextmanager
def hold(run_dir: str) -> Iterator[Callable[[], None]]:
  """Locks a run's directory, so that no other process writes there.

  Args:
    run_dir: An existing directory.

  Yields:
    A function that raises RunLockError if the directory or its lock file was
    removed, moved or replaced.

  Raises:
    RunLockError: if another process holds the lock; the message says which.
  """
  path = os.path.join(run_dir, _NAME)
  # Opened without truncating it: the lock may be another process's.
  try:
    opened = open(path, 'a+', encoding='utf-8')
  except OSError as error:
    raise RunLockError(
        f'--run_dir={run_dir} cannot be locked: {error}. Make {_NAME} in it '
        'writable, or choose another --run_dir.') from error
  with opened as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
        logging.warning(
            '%s cannot be locked (%s). Make sure that only one process uses '
            'it.', run_dir, error)
      else:
        raise RunLockError(
            f'--run_dir={run_dir} is in use by {_describe(path)}. Wait for it, '
            'stop it, or choose another --run_dir.') from error
    text = json.dumps({
        'pid': os.getpid(), 'host': socket.gethostname(),
        'since': time.strftime('%Y-%m-%d %H:%M:%S')})
    try:
      os.ftruncate(file.fileno(), 0)
      os.pwrite(file.fileno(), text.encode(), 0)
    except OSError as error:  # The lock works without this text.
      logging.warning('%s cannot be written: %s.', path, error)
    folder = os.stat(run_dir)

    def check() -> None:
      problem = ''
      try:
        if not (os.path.samestat(os.stat(run_dir), folder) and
                os.path.samestat(os.stat(path), os.fstat(file.fileno()))):
          problem = 'its path now leads to another directory or lock file'
      except OSError as error:
        problem = str(error)
      if problem:
        raise RunLockError(
            f'--run_dir={run_dir} was removed or moved while the run used it '
            f'({problem}). Nothing more is written. If the directory was '
            'moved, move it back; the same command then resumes the run.')

    check()
    yield check
