"""Checks and writes files, completely or not at all, and reads any JSON."""

from collections.abc import Iterator
import contextlib
import csv
import json
import os
import re
import stat
import tempfile
from typing import Any, IO

from gridlu import program

_NUMBER = re.compile(
    r'[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|nan|-?inf', re.I)
# The columns of metrics.csv that are shares of episodes, states or pairs.
_SHARES = (
    'success_rate', 'modelled_reward', 'true_reward', 'reward_model_accuracy',
    'false_positives', 'false_negatives', 'goals_accepted',
    'negatives_rejected')


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


def parse_json(text: str | bytes) -> Any:
  """Returns the values of a JSON text; ValueError if it is none."""
  try:
    return json.loads(text)
  except RecursionError:
    raise ValueError('it is nested too deeply') from None


def regular(path: str, flags: int) -> int:
  """Opens a file, for `open`: ValueError if it is a device, a pipe or so."""
  descriptor = os.open(path, flags | os.O_NONBLOCK)  # Waits for no pipe.
  if not stat.S_ISREG(os.fstat(descriptor).st_mode):
    os.close(descriptor)
    raise ValueError(f'{path} is no regular file')
  return descriptor


def read_rows(path: str) -> list[dict[str, str]]:
  """Returns the rows of a CSV file by column, without an incomplete last one.

  If it has a column `steps`, as the metrics.csv of a run, its steps increase,
  its other values are numbers or empty, and shares are from 0 to 1.

  Raises:
    OSError or ValueError: it cannot be read, or is something else.
  """
  with open(path, encoding='utf-8-sig', newline='', opener=regular) as file:
    lines = list(file)
  if lines and not lines[-1].endswith('\n'):
    del lines[-1]
  for i, line in enumerate(lines, 1):
    if not line.endswith('\n'):
      raise ValueError(f'line {i} ends with CR alone; expected LF or CR LF')
  reader = csv.reader(lines)
  rows: list[dict[str, str]] = []
  try:
    names = next(reader, [])
    if len({*names}) < len(names):
      raise ValueError('a column is there more than once')
    steps = -1
    for cells in filter(None, reader):
      if len(cells) != len(names):
        raise ValueError(f'it has {len(cells)} values for {len(names)} columns')
      rows.append(dict(zip(names, cells)))
      if 'steps' in names:
        steps = _check_row(rows[-1], steps)
  except (csv.Error, ValueError) as error:
    raise ValueError(f'line {reader.line_num}: {error}') from error
  return rows


def _check_row(row: dict[str, str], before: int) -> int:
  """Checks a row after the step `before`; returns its step."""
  for name, text in row.items():
    if name == 'steps':
      if not re.fullmatch('[0-9]{1,18}', text) or int(text) <= before:
        raise ValueError(
            f'steps is {text!r}; expected a whole number, more than in the row '
            'before')
    elif text and not _NUMBER.fullmatch(text):
      raise ValueError(f'{name} is {text!r}; expected a number or nothing')
    elif text and name in _SHARES and not 0 <= float(text) <= 1:
      raise ValueError(f'{name} is {text}; expected a share from 0 to 1')
  return int(row['steps'])
