"""Checks and writes files, completely or not at all, and reads any JSON."""

from collections.abc import Iterator
import contextlib
import csv
import glob
import json
import os
import socket
import tempfile
from typing import Any, IO

from gridlu import program


def check_output(flag: str, path: str, *suffixes: str) -> None:
  """Raises a `UserError` if the file that a flag names cannot be written.

  Its name must have one of the suffixes, such as '.gif', and its folder must
  exist.
  """
  folder = os.path.dirname(path) or '.'
  ending = os.path.splitext(path)[1].lower()  # Of '.png' itself, none.
  if not path or (suffixes and ending not in suffixes) or os.path.isdir(path):
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
  _remove_left_overs(path)
  # No other process uses this name.
  temporary = f'{path}.{socket.gethostname()}.{os.getpid()}.part'
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


def _remove_left_overs(path: str) -> None:
  """Removes temporary files of processes that were killed on this machine."""
  start = f'{path}.{socket.gethostname()}.'
  for left_over in glob.glob(f'{glob.escape(start)}*.part'):
    number = left_over.removeprefix(start).removesuffix('.part')
    if number.isdecimal() and not is_running(int(number)):
      with contextlib.suppress(OSError):  # Another process has removed it.
        os.remove(left_over)


def is_running(process: int) -> bool:
  """Returns whether this machine has a process with this number."""
  try:
    os.kill(process, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:  # Another user's process.
    return True
  return True


def parse_json(text: str | bytes) -> Any:
  """Returns the values of a JSON text; ValueError if it is none."""
  try:
    return json.loads(text)
  except RecursionError:
    raise ValueError('it is nested too deeply') from None


def read_rows(path: str) -> list[dict[str, str]]:
  """Returns the rows of a CSV file by column, without an incomplete last one.

  Raises:
    OSError or ValueError: it cannot be read, or is not CSV.
  """
  with open(path, encoding='utf-8', newline='') as file:
    try:
      return list(csv.DictReader(
          line for line in file if line.endswith('\n')))
    except csv.Error as error:
      raise ValueError(str(error)) from error
