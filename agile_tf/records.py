"""Reads what runs have written: the rows of CSV files, and JSON."""

from collections.abc import Callable
import csv
import io
import json
import os
from typing import Any

from gridlu import files
from gridlu import schema

# Text that is read can take about this many times its own size in memory.
_EXPANSION = 32


def most_text() -> int:
  """Returns how many bytes of text the free memory has room to read."""
  return files.free_memory() // _EXPANSION


def json_value(content: bytes) -> Any:
  """Returns the value of JSON in UTF-8, or raises a ValueError."""
  try:
    return json.loads(content.decode(), object_pairs_hook=_without_doubles)
  except RecursionError:
    raise ValueError('it is nested too deeply') from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns the dict of an object's pairs, whose keys must differ."""
  found = dict(pairs)
  if len(found) < len(pairs):
    keys = [key for key, _ in pairs]
    key = next(key for key in found if keys.count(key) > 1)
    raise ValueError(f'it has the key {key!r:.100} more than once')
  return found


def json_file(path: str | os.PathLike, check: schema.Check, most: int = 2**24
             ) -> Any:
  """Returns the value of a JSON file of at most so many bytes.

  Raises:
    ValueError: It is no regular file of that size, or has another content.
    OSError: It cannot be read.
  """
  value = json_value(files.read(path, most))
  check(value, '')
  return value


def rows(path: str, size: int | None = None,
         check: Callable[[dict[str, str]], None] = lambda row: None
        ) -> list[dict[str, str]]:
  """Returns the rows of a CSV file by column.

  A last line without a line's end is left out: it is not written yet. With a
  `size` these are only the rows in the last `size` bytes, and the file must be
  ASCII. `check` raises a ValueError for a row that is not right.

  Raises:
    OSError or ValueError: The file cannot be read, or a row is not right or has
      other columns. For a row, the message names the line; with a `size`, lines
      are counted from the first one that is read.
  """
  with files.open_regular(path, most_text()) as binary:
    length = os.fstat(binary.fileno()).st_size
    with io.TextIOWrapper(binary, 'utf-8-sig', newline='') as file:
      lines = [file.readline()]
      if size is not None and length > file.tell() + size:
        file.seek(length - size)
        file.readline()  # It may begin within a row.
      lines += file
  if lines and not lines[-1].endswith(('\n', '\r')):
    del lines[-1]
  reader = csv.reader(lines)
  found: list[dict[str, str]] = []
  try:
    names = next(reader, [])
    if double := [name for name in names if names.count(name) > 1]:
      raise ValueError(f'the column {double[0]!r:.100} is there twice')
    for cells in filter(None, reader):
      if len(cells) != len(names):
        raise ValueError(f'it has {len(cells)} values for {len(names)} columns')
      found.append(dict(zip(names, cells)))
      check(found[-1])
  except (csv.Error, ValueError) as error:
    raise ValueError(f'line {reader.line_num}: {error}') from error
  return found


def number(text: str, column: str) -> float:
  """Returns the number in a cell of a CSV file, NaN if it is empty.

  Raises:
    ValueError: It is anything else.
  """
  try:
    return float(text or 'nan')
  except ValueError:
    raise ValueError(f'{column} is {text!r:.100}; expected a number') from None
