"""Files that are whole or not there, and JSON that anybody may have written."""

from collections.abc import Iterator
import contextlib
import json
import os
from typing import Any, IO


@contextlib.contextmanager
def replacing(path: str, mode: str = 'w') -> Iterator[IO]:
  """Opens a file that takes the place of `path` once it is on the disk.

  At no time does half a file stand at `path`, and what stood there remains if
  the new one cannot be written.

  Args:
    path: What to write.
    mode: 'w' for text in UTF-8, 'wb' for bytes.

  Yields:
    The file.

  Raises:
    OSError: if it cannot be written.
  """
  temporary = f'{path}.{os.getpid()}.part'  # Nobody else writes to it.
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


def parse_json(text: str | bytes) -> Any:
  """Returns the values of a JSON text.

  Raises:
    ValueError: if it is not JSON, or nested too deeply to read.
  """
  try:
    return json.loads(text)
  except RecursionError:
    raise ValueError('it is nested too deeply') from None
