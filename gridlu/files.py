"""Checks and writes files, completely or not at all, and reads CSV files."""

from collections.abc import Iterator
import contextlib
import csv
import os
import tempfile
from typing import IO

from gridlu import program


def check_output(flag: str, path: str, *suffixes: str) -> None:
  """Raises a `UserError` if the file that a flag names cannot be written.

  Its name must have one of the suffixes, such as '.gif', and its folder must
  exist.
  """
  folder = os.path.dirname(path) or '.'
  ending = os.path.splitext(path)[1].lower()  # Of '.png' itself, none.
  if not path or (suffixes and ending not in suffixes) or (
      os.path.exists(path) and not os.path.isfile(path)):
    problem = f'expected the name of a {" or ".join(suffixes) or "new"} file'
  elif not os.path.isdir(folder):
    problem = f'there is no folder {folder}; make it first'
  elif os.path.exists(path) and not os.access(path, os.W_OK):
    problem = 'it may not be written; name another file'
  else:
    try:
      with tempfile.TemporaryFile(dir=folder):
        return
    except OSError as error:
      problem = f'it cannot be written ({error}); name another folder'
  raise program.UserError(f'--{flag}={path}: {problem}.')


@contextlib.contextmanager
def replacing(path: str, mode: str = 'w') -> Iterator[IO]:
  """Opens a file that replaces `path` when it is complete and on disk.

  An error leaves `path` unchanged. Text is in UTF-8.
  """
  temporary = f'{path}.part'
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


def read_rows(path: str, size: int | None = None) -> list[dict[str, str]]:
  """Returns the rows of a CSV file by column, without an incomplete last one.

  With a `size` these are only the rows in the last so many bytes, in ASCII.

  Raises:
    OSError or ValueError: it cannot be read, or its rows have other columns.
  """
  with open(path, encoding='utf-8-sig', newline='') as file:
    lines = [file.readline()]
    if size is not None and os.path.getsize(path) > file.tell() + size:
      file.seek(os.path.getsize(path) - size)
      file.readline()  # It may begin within a row.
    lines += file
  if lines and not lines[-1].endswith('\n'):
    del lines[-1]
  reader = csv.reader(lines)
  rows = []
  try:
    names = next(reader, [])
    for cells in filter(None, reader):
      if len(cells) != len(names):
        raise ValueError(f'it has {len(cells)} values for {len(names)} columns')
      rows.append(dict(zip(names, cells)))
  except (csv.Error, ValueError) as error:
    raise ValueError(f'line {reader.line_num}: {error}') from error
  return rows
