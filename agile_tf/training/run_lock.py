"""One process for each run: the lock on a run's directory.

The operating system releases it when its process ends, however it ends. So a
lock file that is left behind blocks nobody. Processes that a world forks do not
keep the lock.
"""

from collections.abc import Callable, Iterator
import contextlib
import fcntl
import os
import socket
import stat
import time
from typing import IO

from absl import logging

from agile_tf import config as config_lib
from gridlu import program

_NAME = 'owner.txt'
# A lock file begins with it. A file that begins otherwise is not overwritten.
_FIRST_WORD = 'process '

# `hold` yields such a function. It raises UserError if the directory or its
# lock file was removed, moved or replaced.
Check = Callable[[], None]

_held: set[IO] = set()  # The lock files that this process holds.


def _let_go_in_fork() -> None:
  """Closes the locks in a forked process, which may outlive the run."""
  for file in _held:
    file.close()
  _held.clear()


os.register_at_fork(after_in_child=_let_go_in_fork)


def _open(path: str) -> IO[str]:
  """Opens or makes a lock file; OSError or ValueError if it is another file.

  A run may come from others, so no link is followed. The file is not emptied,
  because the lock may be another process's.
  """
  descriptor = os.open(
      path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
  if not stat.S_ISREG(os.fstat(descriptor).st_mode):
    os.close(descriptor)
    raise ValueError(f'{path} is no regular file')
  return open(descriptor, 'r+', encoding='utf-8', errors='replace')


def _check_that_it_is_a_lock(file: IO[str], run_dir: str) -> None:
  """Raises ConfigError if a file of this name has what no run writes."""
  text = file.read(len(_FIRST_WORD))
  # A new file is empty, and a killed process may have written only a part.
  if not _FIRST_WORD.startswith(text):
    raise config_lib.ConfigError(
        f'--run_dir={run_dir} has a file {_NAME} that no run has written: '
        f'it begins with {text!r}. Choose another --run_dir, or rename that '
        'file.')


def _directory() -> str:
  """Returns the current directory in words; it may have been removed."""
  try:
    return os.getcwd()
  except OSError:
    return 'no longer there'


@contextlib.contextmanager
def hold(run_dir: str) -> Iterator[Check]:
  """Makes and locks a run's directory, so that no other process writes there.

  A new directory is removed again if nothing else has been written to it.

  Yields:
    A function that raises UserError if the directory or its lock file was
    removed, moved or replaced.
  """
  if not run_dir:
    raise config_lib.ConfigError(
        "--run_dir is empty; name a directory for the run's files, for example "
        '--run_dir=runs/relations.')
  path = os.path.join(run_dir, _NAME)
  is_new = not os.path.exists(run_dir)
  try:
    os.makedirs(run_dir, exist_ok=True)
    opened = _open(path)
  except (OSError, ValueError, RecursionError) as error:
    raise config_lib.ConfigError(
        f'--run_dir={run_dir} cannot be written: {error}. Make it writable, or '
        'choose another directory.') from error
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
    _check_that_it_is_a_lock(file, run_dir)
    with contextlib.suppress(OSError):  # The lock works without this text.
      os.ftruncate(file.fileno(), 0)
      os.pwrite(file.fileno(), (
          f'{_FIRST_WORD}{os.getpid()} on {socket.gethostname()}, since '
          f'{time.strftime("%Y-%m-%d %H:%M:%S")}').encode(), 0)
    folder = os.stat(run_dir)

    def check() -> None:
      try:
        held = (os.path.samestat(os.stat(run_dir), folder) and
                os.path.samestat(os.stat(path), os.fstat(file.fileno())))
      except (OSError, ValueError):
        held = False  # A path is gone, or this is a fork with a closed file.
      if not held:
        raise program.UserError(
            f'--run_dir={run_dir} was removed or moved while the run used it, '
            'or its lock was. Nothing more is written. If the directory was '
            'moved, move it back; the same command then resumes the run. A '
            'world that changes the current directory can also be the cause, '
            f'if the path is relative. The current one is {_directory()}.')

    check()
    _held.add(file)
    try:
      yield check
    finally:
      _held.discard(file)
      with contextlib.suppress(OSError):  # It was removed or moved.
        if is_new and not file.closed and os.listdir(run_dir) == [_NAME]:
          os.remove(path)
          os.rmdir(run_dir)
