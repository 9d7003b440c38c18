"""NumPy archives (.npz): read without running code, and checked."""

from collections.abc import Mapping, Sequence
import io
from typing import Any
import zipfile

import numpy as np


def load(content: bytes, most_bytes: int) -> dict[str, np.ndarray]:
  """Returns the arrays of an archive by their names.

  Args:
    content: The whole archive.
    most_bytes: What the arrays may take. A compressed archive can be a thousand
      times smaller than its arrays.

  Raises:
    ValueError: The archive is damaged or too large, or has other contents than
      plain arrays.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      size = sum(member.file_size for member in archive.infolist())
      if size > most_bytes:
        raise ValueError(
            f'its arrays take {size:,} bytes; expected at most {most_bytes:,}')
      # NumPy alone stops before the checksum where a damaged header says so.
      damaged = archive.testzip()
    if damaged is not None:
      raise ValueError(f'{damaged} does not match its checksum')
    with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
      found = dict(loaded)
  except (MemoryError, ValueError):
    raise
  except Exception as error:  # The parsers raise many kinds for bad data.
    raise ValueError(str(error) or type(error).__name__) from error
  for name, array in found.items():
    if not isinstance(array, np.ndarray):  # NumPy returns its bytes.
      raise ValueError(f'{name} is not an array')
  return found


def expect(found: Mapping[str, np.ndarray], name: str, dtype: Any,
           shape: Sequence[int | None]) -> np.ndarray:
  """Returns an array after checking its type and shape.

  Args:
    found: Arrays by name.
    name: The array's name.
    dtype: The expected type.
    shape: The expected shape; None for a dimension of any length.

  Raises:
    ValueError: The array is missing, or has another type or shape.
  """
  if name not in found:
    raise ValueError(f'it lacks {name}')
  array = found[name]
  if array.dtype != dtype or len(array.shape) != len(shape) or any(
      wanted not in (None, length)
      for wanted, length in zip(shape, array.shape)):
    raise ValueError(
        f'{name} is {array.dtype} {list(array.shape)}; expected '
        f'{np.dtype(dtype)} {list(shape)}')
  return array
