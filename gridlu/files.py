"""Writes files atomically: whole or not at all."""

from collections.abc import Iterator
import contextlib
import os
from typing import IO


@contextlib.contextmanager
def replacing(path: str, mode: str = 'w') -> Iterator[IO]:
  """Opens a file that replaces `path` when it is complete and on the disk.

  `path` never holds half a file. If an error occurs, it stays as it was.

  Args:
    path: The file to write or replace.
    mode: 'w' for text in UTF-8, 'wb' for bytes.

  Yields:
    The file.

  Raises:
    OSError: The file cannot be written.
  """
  temporary = f'{path}.{os.getpid()}.part'  # No other process writes to it.
  text = {} if 'b' in mode else {'encoding': 'utf-8', 'newline': ''}
  try:
    with open(temporary, mode, **text) as file:  # type: ignore[call-overload]
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)
    raise
