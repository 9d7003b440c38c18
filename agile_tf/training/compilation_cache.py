"""Keeps compiled programs for later processes: XLA's cache, made safe.

XLA can save the programs that it compiles, and load them in another process.
On its own it fails on a file that is cut off or cannot be written, and it runs
a program with flipped bits. So each process has a temporary directory of its
own for XLA. `start` puts links to the intact programs of the user's cache
there, and adds the programs that XLA compiles to the user's cache.

A name in the user's cache is XLA's name, a dot and the file's SHA-256. XLA's
name is made from the program and its inputs. The programs of each machine and
each version of TensorFlow are in a directory of their own.
"""

import atexit
from collections.abc import Callable, Iterator
import contextlib
import glob
import hashlib
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time

from gridlu import files

_VARIABLE = 'TF_XLA_FLAGS'
_BYTES_KEPT = 2**29
_BYTES_FREE = 2**28  # Less space on a disk is left to others.
# Of a process's directory; its number follows. Machines may share the folder.
_PREFIX = f'agile_tf_xla_{socket.gethostname()}_'
_SECONDS = 5.0  # From one look for new programs to the next.
_PART_SECONDS = 3600.0  # A file that is still being written is younger.


def user_folder() -> str:
  """Returns the cache directory of this project and user."""
  base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser(
      '~/Library/Caches' if sys.platform == 'darwin' else '~/.cache')
  return os.path.join(base, 'agile_tf', 'xla')


def _processor() -> str:
  """Returns the processor's name and what it can do."""
  wanted = ('vendor_id', 'model name', 'flags', 'Features', 'CPU part')
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as file:
      return '\n'.join(sorted({
          line for line in file if line.split('\t')[0].strip() in wanted}))
  except OSError:
    return platform.processor()


def key(threads: int) -> str:
  """Returns a name for what compiled programs depend on, except themselves.

  Args:
    threads: The threads that TensorFlow uses within a program.

  Returns:
    A hash of the build of TensorFlow, the processor, the number of threads and
    XLA's options.
  """
  build = importlib.metadata.distribution('tensorflow')
  parts = (build.version, build.read_text('RECORD') or '',
           sys.platform, platform.machine(), _processor(), str(threads),
           os.environ.get('XLA_FLAGS', ''), os.environ.get(_VARIABLE, ''))
  return hashlib.sha256('\0'.join(parts).encode()).hexdigest()[:16]


def _digest(path: str) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _programs(folder: str) -> Iterator[tuple[str, str]]:
  """Yields path and XLA's name of each intact program; removes the others."""
  for path in sorted(glob.glob(os.path.join(glob.escape(folder), '*'))):
    name, _, digest = os.path.basename(path).rpartition('.')
    with contextlib.suppress(OSError):  # Another process has removed it.
      if _digest(path) == digest:
        yield path, name
      elif not path.endswith('.part'):  # Another process is writing that.
        os.remove(path)


def _remove_left_overs() -> None:
  """Removes the directories of processes that were killed."""
  start = os.path.join(tempfile.gettempdir(), _PREFIX)
  for folder in glob.glob(f'{glob.escape(start)}*'):
    number = folder.removeprefix(start).partition('_')[0]
    if number.isdecimal() and not files.is_running(int(number)):
      shutil.rmtree(folder, ignore_errors=True)


def _trim(root: str) -> None:
  """Removes the oldest programs of all machines if there are too many.

  It also removes what processes that were killed have left half written.
  """
  known = []
  for path in glob.glob(os.path.join(glob.escape(root), '*', '*')):
    with contextlib.suppress(OSError):
      status = os.stat(path)
      age = time.time() - status.st_mtime
      if path.endswith('.part') and age > _PART_SECONDS:
        os.remove(path)
        continue
      known.append((status.st_mtime, status.st_size, path))
  total = 0
  for _, size, path in sorted(known, reverse=True):
    total += size
    if total > _BYTES_KEPT:
      with contextlib.suppress(OSError):
        os.remove(path)


class Cache:
  """The programs of one process, and the user's cache beside them.

  Attributes:
    folder: The directory that XLA reads and writes.
  """

  def __init__(self, root: str, name: str):
    """Links the intact programs of the user's cache.

    Args:
      root: The user's cache.
      name: The directory in it; see `key`.

    Raises:
      OSError: if there is no space, or a directory cannot be written.
    """
    self._root = root
    self._shared = os.path.join(root, name)
    if not os.path.isabs(root):  # Such as '~', where there is no home.
      raise FileNotFoundError(f'{root} is not an absolute path.')
    for folder in (root, self._shared):
      os.makedirs(folder, mode=0o700, exist_ok=True)
      status = os.lstat(folder)
      if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(
            f'Others can write to {folder}, whose programs would be executed.')
    self._known: set[str] = set()
    _remove_left_overs()
    self.folder = tempfile.mkdtemp(prefix=f'{_PREFIX}{os.getpid()}_')
    try:
      for folder in (self._shared, self.folder):
        if shutil.disk_usage(folder).free < _BYTES_FREE:
          raise OSError(f'{folder} is on a full disk.')
        with tempfile.TemporaryFile(dir=folder) as file:
          file.write(bytes(2**20))
      for path, program in _programs(self._shared):
        if program not in self._known:
          os.symlink(path, os.path.join(self.folder, program))
          self._known.add(program)
    except BaseException:
      self.close()
      raise

  def publish(self) -> None:
    """Adds what XLA has compiled since the last call to the user's cache."""
    with contextlib.suppress(OSError):  # A cache that is full stays as it is.
      for name in sorted({*os.listdir(self.folder)} - self._known):
        path = os.path.join(self.folder, name)
        if not name.endswith('.pb') or os.path.islink(path):
          continue  # XLA is still writing it, under another name.
        new = os.path.join(self._shared, f'{name}.{_digest(path)}')
        part = f'{new}.{os.getpid()}.part'
        try:
          shutil.copyfile(path, part)
          os.replace(part, new)
          # At once: XLA may look for the program at any moment.
          os.symlink(new, f'{path}.link')
          os.replace(f'{path}.link', path)
        finally:
          with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        self._known.add(name)

  def close(self) -> None:
    """Publishes the last programs and removes this process's directory."""
    self.publish()
    _trim(self._root)
    shutil.rmtree(self.folder, ignore_errors=True)


def start(threads: int, root: str | None = None) -> Cache | None:
  """Lets XLA use the cache in this process and in its children.

  It has an effect only before TensorFlow computes anything. It does nothing
  where `TF_XLA_FLAGS` names a cache already, and where a cache cannot be
  written: programs are then compiled as they would be without a cache.

  Args:
    threads: See `key`.
    root: The cache; None for the user's own.

  Returns:
    The cache, which is published every few seconds and at the end of the
    process; None if there is none.
  """
  options = os.environ.get(_VARIABLE, '')
  if '--tf_xla_persistent_cache_directory' in options:
    return None
  try:
    cache = Cache(root or user_folder(), key(threads))
  except OSError:
    return None
  # On a GPU XLA also chooses algorithms by measuring them; only programs for
  # the CPU are kept.
  os.environ[_VARIABLE] = (
      f"{options} --tf_xla_persistent_cache_directory='{cache.folder}' "
      '--tf_xla_persistent_cache_device_types=CPU').strip()
  ended = threading.Event()

  def keep_publishing() -> None:
    while not ended.wait(_SECONDS):
      cache.publish()

  # A process that is killed later leaves what it has compiled.
  thread = threading.Thread(
      target=keep_publishing, name='compilation cache', daemon=True)
  thread.start()

  def end_this() -> None:
    ended.set()
    thread.join()
    cache.close()
    os.environ[_VARIABLE] = options

  _ends.append(end_this)
  return cache


_ends: list[Callable[[], None]] = []


@atexit.register
def end() -> None:
  """Ends the caches of this process, and its children will not use them."""
  while _ends:
    _ends.pop()()
