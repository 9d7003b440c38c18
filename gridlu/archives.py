"""NumPy archives (.npz): read without running code, and checked.

An archive of a few kilobytes can hold arrays of many gigabytes. So the headers
of all arrays are read and checked before the first array is.
"""

from collections.abc import Callable, Mapping, Sequence
import errno
import math
import os
import sys
from typing import Any, IO, NamedTuple
import zipfile

import numpy as np

from gridlu import files

_PART = 2**20  # Bytes that are read at a time.


class Header(NamedTuple):
  """The header of an array in an archive."""
  dtype: np.dtype
  shape: tuple[int, ...]
  fortran_order: bool
  offset: int  # Where the array's numbers begin in its member.

  @property
  def nbytes(self) -> int:
    """The bytes that the array takes in memory."""
    return math.prod(self.shape) * self.dtype.itemsize


Headers = Mapping[str, Header]


def load(file: IO[bytes],
         check: Callable[[Headers], None] = lambda headers: None
        ) -> dict[str, np.ndarray]:
  """Returns the arrays of an archive by their names.

  Args:
    file: A file that can be read at any place.
    check: Raises a ValueError if the headers are not those that are expected.
      It is called before an array is read.

  Raises:
    ValueError: It is damaged or has other contents.
    MemoryError: Its arrays do not fit into the free memory.
    OSError: The disk cannot be read.
    ImportError: Python lacks the module that decompresses it.
  """
  magic = file.read(2)
  length = file.seek(0, os.SEEK_END)
  file.seek(0)
  if magic != b'PK':
    raise ValueError('it is no NumPy archive (.npz)')
  try:
    with zipfile.ZipFile(file) as archive:
      members = _members(archive, length)
      headers = {name: _header(archive, member)
                 for name, member in members.items()}
      check(headers)
      size = sum(header.nbytes for header in headers.values())
      if size > files.free_memory():
        raise MemoryError(
            f'its arrays take {size:,} bytes, more than the free memory')
      return {name: _array(archive, members[name], header)
              for name, header in headers.items()}
  except (MemoryError, ImportError, ValueError):
    raise
  except OSError as error:
    # A damaged archive makes zipfile seek to a negative place, which is EINVAL,
    # or raise an OSError without a number. Other errors are the disk's.
    if error.errno not in (None, errno.EINVAL):
      raise
    raise ValueError(str(error)) from error
  except Exception as error:  # The parsers raise many kinds for bad data.
    raise ValueError(str(error) or type(error).__name__) from error


def _members(archive: zipfile.ZipFile, length: int
            ) -> dict[str, zipfile.ZipInfo]:
  """Returns the members of an archive, by the names of their arrays."""
  members: dict[str, zipfile.ZipInfo] = {}
  known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
  for member in archive.infolist():
    name = member.filename.removesuffix('.npy')
    if name == member.filename or name in members:
      raise ValueError(f'it has the member {member.filename!r:.100}: expected '
                       'arrays (.npy) of different names')
    if member.compress_type not in known:
      raise ValueError(f'{member.filename!r:.100} is compressed in a way that '
                       'is not expected here')
    members[name] = member
  if sum(member.compress_size for member in members.values()) > length:
    raise ValueError(f'its members overlap: together they are longer than its '
                     f'{length:,} bytes')
  return members


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
  """Reads an array's header.

  It raises ValueError unless the array's numbers fill the rest of the member.
  """
  with archive.open(member) as file:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
      raise ValueError(f'{member.filename!r:.100} has version {version}; '
                       'expected (1, 0) or (2, 0)')
    shape, fortran_order, dtype = read(file)
    header = Header(dtype, shape, fortran_order, file.tell())
  if dtype.hasobject:
    raise ValueError(f'{member.filename!r:.100} has Object arrays, which could '
                     'run code')
  if min(shape, default=0) < 0 or (
      header.offset + header.nbytes != member.file_size):
    raise ValueError(
        f'{member.filename!r:.100} has {member.file_size:,} bytes; expected '
        f'{header.offset + header.nbytes:,} for {dtype} {list(shape)}')
  return header


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, header: Header
          ) -> np.ndarray:
  """Reads an array whose header has been checked."""
  with archive.open(member) as file:
    file.read(header.offset)
    array = np.empty(header.shape, header.dtype,
                     'F' if header.fortran_order else 'C')
    done = 0
    while done < header.nbytes:
      part = file.read(min(_PART, header.nbytes - done))
      if not part:
        raise ValueError(f'{member.filename!r:.100} ends too early')
      flat = array.reshape(-1, order='A').view(np.uint8)
      flat[done:done + len(part)] = np.frombuffer(part, np.uint8)
      done += len(part)
    if file.read(1):  # The checksum is compared at the end of the member.
      raise ValueError(f'{member.filename!r:.100} is too long')
  if header.dtype.kind == 'U' and header.nbytes:
    # NumPy keeps a character as its number, and makes no text of larger ones.
    numbers = array.reshape(-1, order='A').view(
        np.dtype(np.uint32).newbyteorder(header.dtype.byteorder))
    if numbers.max() > sys.maxunicode:
      raise ValueError(
          f'{member.filename!r:.100} has a character of number '
          f'{numbers.max():,}; expected at most {sys.maxunicode:,}, the last '
          'one of Unicode')
  return array


def check_finite(arrays: Mapping[str, np.ndarray]) -> None:
  """Raises a ValueError if an array has a number that is not finite."""
  for name, array in arrays.items():
    if array.dtype.kind in 'fc' and not (finite := np.isfinite(array)).all():
      place = tuple(np.argwhere(~finite)[0].tolist())
      raise ValueError(f'{name}{list(place)} is {array[place]}; expected '
                       'finite numbers')


def expect(found: Mapping[str, Header | np.ndarray], name: str, dtype: Any,
           shape: Sequence[int | None]) -> Any:
  """Returns an array if it has this type and shape, else raises a ValueError.

  None in a shape stands for any length. Headers are checked in the same way.
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
