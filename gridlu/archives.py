"""NumPy's archives (.npz), checked before anything in them is believed.

`zipfile` compares a member with its checksum only once it has read it to its
end, and NumPy stops earlier where a changed header says so. Here a member is
read whole first, and then has to be just what its header says.
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
# How an archive ends: the count of its members is at byte 10, and what follows
# these 22 bytes is a comment.
_END_SIZE = 22
_END_COUNT = 10


class ArchiveError(ValueError):
  """An archive of other bytes than NumPy writes for plain arrays."""


class Header(NamedTuple):
  """What an array's header says of it."""
  dtype: np.dtype
  shape: tuple[int, ...]
  is_fortran: bool  # Whether the first index varies fastest.

  @property
  def size(self) -> int:
    """How many bytes the numbers take."""
    return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
  """Raises ArchiveError for whatever the parsers raise on damage."""
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
  # A changed length in the directory hides the members after it.
  place = len(content) - len(archive.comment) - _END_SIZE + _END_COUNT
  count, = struct.unpack_from('<H', content, place)
  named = {info.filename.removesuffix(_SUFFIX): info for info in members}
  if not count == len(members) == len(named):
    raise ArchiveError(
        f'it has {len(named)} arrays of different names, and says that it has '
        f'{count}')
  for name, info in named.items():
    if info.filename != name + _SUFFIX:
      raise ArchiveError(f'{info.filename} is not an array')
  return named


def _read_header(file: IO[bytes]) -> Header:
  """Reads an array's header, and leaves the file at its first number."""
  version = np.lib.format.read_magic(file)
  read = {(1, 0): np.lib.format.read_array_header_1_0,
          (2, 0): np.lib.format.read_array_header_2_0}.get(version)
  if read is None:
    raise ArchiveError(f'it is of version {version} of the format')
  shape, is_fortran, dtype = read(file)
  if dtype.hasobject:
    raise ArchiveError('it holds objects, which can be programs')
  if any(length < 0 for length in shape):
    raise ArchiveError(f'its shape is {shape}')
  return Header(dtype, shape, is_fortran)


def headers(content: bytes) -> dict[str, Header]:
  """Returns what an archive says of its arrays, and expands none of them.

  Args:
    content: The whole archive.

  Raises:
    ArchiveError: if it is damaged, as far as that can be seen here.
  """
  found = {}
  with _parsing(), zipfile.ZipFile(io.BytesIO(content)) as archive:
    for name, info in _members(archive, content).items():
      with archive.open(info) as file:
        header = _read_header(file)
        if file.tell() + header.size != info.file_size:
          raise ArchiveError(
              f'{name} has {info.file_size - file.tell()} bytes, and its '
              f'header speaks of {header.size}')
      found[name] = header
  return found


def arrays(content: bytes) -> dict[str, np.ndarray]:
  """Returns the arrays of an archive by their names.

  Args:
    content: The whole archive.

  Raises:
    ArchiveError: if any of it is not as it was written.
  """
  found = {}
  with _parsing(), zipfile.ZipFile(io.BytesIO(content)) as archive:
    for name, info in _members(archive, content).items():
      whole = archive.read(info)  # Compares it with its checksum.
      file = io.BytesIO(whole)
      header = _read_header(file)
      if file.tell() + header.size != len(whole):
        raise ArchiveError(
            f'{name} has {len(whole) - file.tell()} bytes, and its header '
            f'speaks of {header.size}')
      numbers = bytearray(memoryview(whole)[file.tell():])
      found[name] = np.ndarray(
          header.shape, header.dtype, numbers,
          order='F' if header.is_fortran else 'C')
  return found


def expect(found: Mapping[str, np.ndarray], name: str, dtype: Any,
           shape: Sequence[int | None]) -> np.ndarray:
  """Returns one of several arrays, which has to be as it is needed.

  Args:
    found: By their names.
    name: Which one.
    dtype: That it must have.
    shape: That it must have; None for a length that may be any.

  Raises:
    ArchiveError: if it is missing, or of another kind or shape.
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
