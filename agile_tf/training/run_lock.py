"""One process for each run: the lock on a run's directory.

The operating system releases the lock when its process ends, however it ends.
A lock file that is left behind therefore does not block a new process.
"""

from collections.abc import Callable, Iterator
import contextlib
import fcntl
import os
import socket
import time

from absl import logging

from gridlu import program

_NAME = 'owner.txt'


def remove_if_unused(run_dir: str) -> None:
  """Removes a run's directory, which is locked, if it has only the lock."""
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
    A function that raises UserError if the directory or its lock file was
    removed, moved or replaced.

  Raises:
    UserError: if another process holds the lock; the message says which.
  """
  path = os.path.join(run_dir, _NAME)
  # Opened without truncating it: the lock may be another process's.
  try:
    opened = open(path, 'a+', encoding='utf-8', errors='replace')
  except OSError as error:
    raise program.UserError(
        f'--run_dir={run_dir} cannot be locked: {error}. Make {_NAME} in it '
        'writable, or choose another --run_dir.') from error
  with opened as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
      file.seek(0)
      owner = file.read(200) or 'another process'
      raise program.UserError(
          f'--run_dir={run_dir} is in use by {owner}. Wait for it, stop it, or '
          'choose another --run_dir.') from error
    except OSError as error:
      logging.warning(
          '%s cannot be locked (%s). Make sure that only one process uses it.',
          run_dir, error)
    with contextlib.suppress(OSError):  # The lock works without this text.
      os.ftruncate(file.fileno(), 0)
      os.write(file.fileno(), (
          f'process {os.getpid()} on {socket.gethostname()}, since '
          f'{time.strftime("%Y-%m-%d %H:%M:%S")}').encode())
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
        raise program.UserError(
            f'--run_dir={run_dir} was removed or moved while the run used it '
            f'({problem}). Nothing more is written. If the directory was '
            'moved, move it back; the same command then resumes the run.')

    check()
    yield check
