"""NumPy archives (.npz), verified before their contents are used.

`zipfile` compares a member with its checksum only after reading all of it, and
NumPy stops earlier if a damaged header says so. This module first reads the
whole member, and then requires that its size is what its header says.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import io
import math
import struct
from typing import Any, IO, NamedTuple
import zipfile

import numpy as np

_SUFFIX = '.npy'
# An archive ends with a record of 22 bytes, with the number of members at byte
# 10, and a comment.
_END_SIZE = 22
_END_COUNT = 10


class ArchiveError(ValueError):
  """An archive that is damaged, or that has other contents than arrays."""


class Header(NamedTuple):
  """The header of an array."""
  dtype: np.dtype
  shape: tuple[int, ...]
  is_fortran: bool  # Whether the first index varies fastest.

  @property
  def size(self) -> int:
    """The size of the array's numbers, in bytes."""
    return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
  """Turns any error that the parsers raise for bad data into ArchiveError."""
  try:
    yield
  except (ArchiveError, MemoryError):
    raise
  except Exception as error:
    raise ArchiveError(str(error) or type(error).__name__) from error


def _members(archive: zipfile.ZipFile, content: bytes
            ) -> dict[str, zipfile.ZipInfo]:
  """Returns the members by the names of their arrays."""
  members = archive.infolist()
  # A damaged length in the archive's directory can hide the members after it.
  place = len(content) - len(archive.comment) - _END_SIZE + _END_COUNT
  count, = struct.unpack_from('<H', content, place)
  named = {info.filename.removesuffix(_SUFFIX): info for info in members}
  if not count == len(members) == len(named):
    raise ArchiveError(
        f'it has {len(named)} arrays with different names, but says that it '
        f'has {count}')
  for name, info in named.items():
    if info.filename != name + _SUFFIX:
      raise ArchiveError(f'{info.filename} is not an array')
  return named


def _read_header(file: IO[bytes]) -> Header:
  """Reads an array's header, up to the array's first number."""
  version = np.lib.format.read_magic(file)
  read = {(1, 0): np.lib.format.read_array_header_1_0,
          (2, 0): np.lib.format.read_array_header_2_0}.get(version)
  if read is None:
    raise ArchiveError(
        f'it has version {version} of the format; expected (1, 0) or (2, 0)')
  shape, is_fortran, dtype = read(file)
  if dtype.hasobject:
    raise ArchiveError('it contains Python objects, which can run code')
  if any(length < 0 for length in shape):
    raise ArchiveError(f'its shape is {shape}')
  return Header(dtype, shape, is_fortran)


def headers(content: bytes) -> dict[str, Header]:
  """Returns the headers of an archive's arrays, without decompressing these.

  Args:
    content: The whole archive.

  Raises:
    ArchiveError: if the headers or the list of members are damaged.
  """
  found = {}
  with _parsing(), zipfile.ZipFile(io.BytesIO(content)) as archive:
    for name, info in _members(archive, content).items():
      with archive.open(info) as file:
        header = _read_header(file)
        if file.tell() + header.size != info.file_size:
          raise ArchiveError(
              f'{name} has {info.file_size - file.tell()} bytes, but its '
              f'header says {header.size}')
      found[name] = header
  return found


def arrays(content: bytes) -> dict[str, np.ndarray]:
  """Returns the arrays of an archive by their names.

  Args:
    content: The whole archive.

  Raises:
    ArchiveError: if any part of it is damaged.
  """
  found = {}
  with _parsing(), zipfile.ZipFile(io.BytesIO(content)) as archive:
    for name, info in _members(archive, content).items():
      whole = archive.read(info)  # Compares it with its checksum.
      file = io.BytesIO(whole)
      header = _read_header(file)
      if file.tell() + header.size != len(whole):
        raise ArchiveError(
            f'{name} has {len(whole) - file.tell()} bytes, but its header says '
            f'{header.size}')
      numbers = bytearray(memoryview(whole)[file.tell():])
      found[name] = np.ndarray(
          header.shape, header.dtype, numbers,
          order='F' if header.is_fortran else 'C')
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
    ArchiveError: if the array is missing, or has another type or shape.
  """
  if name not in found:
    raise ArchiveError(f'it lacks {name}')
  array = found[name]
  if array.dtype != dtype or len(array.shape) != len(shape) or any(
      wanted not in (None, length)
      for wanted, length in zip(shape, array.shape)):
    raise ArchiveError(
        f'{name} is {array.dtype} {list(array.shape)}; expected '
        f'{np.dtype(dtype)} {list(shape)}')
  return array
