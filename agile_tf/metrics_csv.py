"""Reads `metrics.csv`, to which a run writes its rows of metrics."""

import csv


def read(path: str) -> list[dict[str, str]]:
  """Returns the rows of a metrics.csv, as text by column.

  A last row that is still being written is left out.

  Raises:
    OSError: if it cannot be read.
    ValueError: if it is another table.
  """
  with open(path, encoding='utf-8', newline='') as file:
    # A row without an end of line is not complete.
    lines = [line for line in file if line.endswith('\n')]
  reader = csv.DictReader(lines)
  try:
    rows = list(reader)
  except csv.Error as error:
    raise ValueError(str(error)) from error
  if lines and 'steps' not in (reader.fieldnames or ()):
    raise ValueError('its first line does not name a column "steps"')
  for row in rows:
    if None in row or None in row.values():
      raise ValueError(
          f'the row of step {row["steps"]} has more or fewer values than the '
          'first line names')
  return rows
