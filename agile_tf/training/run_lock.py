"""One process for each run: the lock on a run's directory.

The operating system releases it when its process ends, however it ends. So a
lock file that is left behind blocks nobody.
"""

from collections.abc import Callable, Iterator
import contextlib
import fcntl
import os
import socket
import time

from absl import logging

from agile_tf import config as config_lib
from gridlu import program

_NAME = 'owner.txt'


@contextlib.contextmanager
def hold(run_dir: str) -> Iterator[Callable[[], None]]:
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
    # Opened without truncating it: the lock may be another process's.
    opened = open(path, 'a+', encoding='utf-8', errors='replace')
  except OSError as error:
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
    with contextlib.suppress(OSError):  # The lock works without this text.
      os.ftruncate(file.fileno(), 0)
      os.write(file.fileno(), (
          f'process {os.getpid()} on {socket.gethostname()}, since '
          f'{time.strftime("%Y-%m-%d %H:%M:%S")}').encode())
    folder = os.stat(run_dir)

    def check() -> None:
      try:
        held = (os.path.samestat(os.stat(run_dir), folder) and
                os.path.samestat(os.stat(path), os.fstat(file.fileno())))
      except OSError:
        held = False
      if not held:
        raise program.UserError(
            f'--run_dir={run_dir} was removed or moved while the run used it, '
            'or its lock was. Nothing more is written. If the directory was '
            'moved, move it back; the same command then resumes the run.')

    check()
    try:
      yield check
    finally:
      with contextlib.suppress(OSError):  # It was removed or moved.
        if is_new and os.listdir(run_dir) == [_NAME]:
          os.remove(path)
          os.rmdir(run_dir)
