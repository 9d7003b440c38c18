"""NumPy archives (.npz): read without running code, and checked."""

from collections.abc import Mapping, Sequence
import errno
from typing import Any, IO

import numpy as np


def load(file: IO[bytes]) -> dict[str, np.ndarray]:
  """Returns the arrays of an archive by their names.

  A `ValueError` says that it is damaged or has other contents.
  """
  magic = file.read(2)
  file.seek(0)
  if magic != b'PK':
    raise ValueError('it is no NumPy archive (.npz)')
  try:
    with np.load(file, allow_pickle=False) as loaded:
      # NumPy alone stops before the checksum where a damaged header says so.
      if damaged := loaded.zip.testzip():
        raise ValueError(f'{damaged} does not match its checksum')
      return {name: np.asarray(array) for name, array in loaded.items()}
  except (MemoryError, ImportError, ValueError):
    raise
  except OSError as error:
    if error.errno not in (None, errno.EINVAL):  # Of the system.
      raise
    raise ValueError(str(error)) from error
  except Exception as error:  # The parsers raise many kinds for bad data.
    raise ValueError(str(error) or type(error).__name__) from error


def expect(found: Mapping[str, np.ndarray], name: str, dtype: Any,
           shape: Sequence[int | None]) -> np.ndarray:
  """Returns an array if it has this type and shape, else raises a ValueError.

  None in a shape stands for any length.
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
