"""Files: written completely or not at all, and read if they are regular."""

from collections.abc import Iterator
import contextlib
import glob
import hashlib
import io
import os
import re
import secrets
import stat
import tempfile
import time
from typing import IO

from gridlu import program

# A killed process leaves the part of a file that it has written, which is
# removed after so many seconds. A process that lives has finished by then.
_LEFT_OVER_SECONDS = 24 * 3600.0
_KINDS = {'p': 'a named pipe', 'c': 'a device', 'b': 'a device',
          's': 'a socket'}


def check_output(flag: str, path: str, *suffixes: str) -> None:
  """Raises a `UserError` if the file that a flag names cannot be written.

  Its name must have one of the suffixes, such as '.gif', and its folder must
  exist. If the name is a link, the same holds for the file that it leads to.
  """
  try:
    target = os.path.realpath(path)
    endings = {os.path.splitext(name)[1].lower()  # The name '.png' has none.
               for name in (path, target)}
    folder = os.path.dirname(target)
    exists = bool(path) and _exists(target)
    if not path or (suffixes and not endings <= {*suffixes}) or (
        exists and not os.path.isfile(target)):
      problem = f'expected the name of a {" or ".join(suffixes) or "new"} file'
      if path and os.path.islink(path):
        problem = f'it is a link to {target}; {problem}'
    elif not os.path.isdir(folder):
      problem = f'there is no folder {folder}; make it first'
    elif exists and not os.access(target, os.W_OK):
      problem = 'it may not be written; name another file'
    else:
      with tempfile.TemporaryFile(dir=folder):
        return
  except (OSError, ValueError) as error:
    problem = f'it cannot be written ({error}); choose another name or folder'
  raise program.UserError(f'--{flag}={path}: {problem}.')


def check_new_output(flag: str, path: str) -> None:
  """Raises a `UserError` if a flag does not name a new file in a folder."""
  if os.path.lexists(path) and not os.path.isdir(path):
    raise program.UserError(
        f'--{flag}={path} exists already: name another file, or remove it '
        'first.')
  check_output(flag, path)


def check_directory(flag: str, path: str) -> None:
  """Raises a `UserError` if the directory that a flag names cannot be made.

  One that exists must be writable; nothing is made yet.
  """
  try:
    there = os.path.realpath(path)
    while not _exists(there):
      there = os.path.dirname(there)
    if os.path.isdir(there):
      with tempfile.TemporaryFile(dir=there):
        return
    problem = f'{there} is no directory'
  except (OSError, ValueError) as error:
    problem = f'it cannot be written ({error})'
  raise program.UserError(
      f'--{flag}={path}: {problem}. Name a directory that can be written.')


def _exists(path: str) -> bool:
  """Returns whether there is a file of this name.

  It raises an OSError if no file can have the name.
  """
  try:
    os.lstat(path)
  except FileNotFoundError:
    return False
  return True


@contextlib.contextmanager
def replacing(path: str, mode: str = 'w') -> Iterator[IO]:
  """Opens a file that replaces `path` when it is complete and on disk.

  An error leaves `path` unchanged. If it is a link, the file that it leads to
  is replaced. Text is in UTF-8. Several processes may do this at once: the last
  one to finish determines the content.

  Raises:
    OSError: It cannot be written, or is no regular file. A device that were
      replaced would be gone for every program of the machine.
  """
  target = os.path.realpath(path)
  if not path or _exists(target) and not os.path.isfile(target):
    raise OSError(
        f'{path!r} is no regular file: name a new file, or one to replace')
  folder, name = os.path.split(target)
  # The name is short, because that of the target may be as long as possible.
  own = f'.{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}'
  for left_over in glob.glob(
      os.path.join(glob.escape(folder), f'{own}.*.part')):
    with contextlib.suppress(OSError):  # Another process may remove it too.
      if time.time() - os.path.getmtime(left_over) > _LEFT_OVER_SECONDS:
        os.remove(left_over)
  temporary = os.path.join(folder, f'{own}.{secrets.token_hex(4)}.part')
  text = {} if 'b' in mode else {'encoding': 'utf-8', 'newline': ''}
  try:
    with open(temporary, mode.replace('w', 'x'),  # type: ignore[call-overload]
              **text) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, os.path.join(folder, name))
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)
    raise


def free_memory() -> int:
  """Returns about how many bytes of memory this process may still use.

  In a container with a limit of memory this can be too much: the memory that
  is in use there is not subtracted from the limit.
  """
  found = []
  for path, pattern in (
      ('/proc/meminfo', r'^MemAvailable: *(\d+) kB'),
      ('/sys/fs/cgroup/memory.max', r'^(\d+)$')):  # It limits a container.
    with contextlib.suppress(OSError), open(path, encoding='utf-8') as file:
      if match := re.search(pattern, file.read(), re.MULTILINE):
        found.append(int(match[1]) * (1024 if 'kB' in pattern else 1))
  return min(found, default=2**33)


def open_regular(path: str | os.PathLike, most: int | None = None
                ) -> io.BufferedReader:
  """Opens a regular file of at most so many bytes, to read it.

  A named pipe would block, and a device such as /dev/zero may never end.

  Raises:
    ValueError: It is another kind of file, or it is larger.
    OSError: It cannot be opened.
  """
  file = open(path, 'rb', opener=_open_at_once)
  try:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
      kind = _KINDS.get(stat.filemode(found.st_mode)[0], 'a special file')
      raise ValueError(f'it is {kind}; expected a regular file')
    if most is not None and found.st_size > most:
      raise ValueError(
          f'it has {found.st_size:,} bytes; expected at most {most:,}')
  except BaseException:
    file.close()
    raise
  return file


def _open_at_once(path: str, flags: int) -> int:
  """Opens a file without waiting for somebody who writes to it."""
  return os.open(path, flags | os.O_NONBLOCK)


def read(path: str | os.PathLike, most: int | None = None) -> bytes:
  """Returns the content of a regular file of at most so many bytes.

  Raises:
    ValueError or OSError: See `open_regular`.
    MemoryError: It does not fit into the free memory.
  """
  with open_regular(path, most) as file:
    size = os.fstat(file.fileno()).st_size
    if size > free_memory():
      raise MemoryError(f'it has {size:,} bytes, more than the free memory')
    return file.read(size)
