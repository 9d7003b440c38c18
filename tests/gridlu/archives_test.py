"""Tests for archives: what was changed is not taken for what was written."""

import io
import pickle
import struct
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import archives


def _arrays():
  """Also ones that NumPy reads in several parts."""
  rng = np.random.default_rng(0)
  return {
      'weights': rng.normal(size=[30, 100]).astype(np.float32),
      'pairs': rng.integers(0, 9, size=[700, 27]).astype(np.uint8),
      'columns': np.asfortranarray(rng.normal(size=[3, 4])),
      'text': np.array(['north', 'é']),
      'count': np.array(2**40),
      'nothing': np.zeros([0, 27], np.uint8),
  }


def _content(arrays=None, save=np.savez):
  file = io.BytesIO()
  save(file, **(_arrays() if arrays is None else arrays))
  return file.getvalue()


class ArchivesTest(parameterized.TestCase):

  def _assert_equal(self, found):
    self.assertEqual(list(found), list(_arrays()))
    for name, expected in _arrays().items():
      self.assertEqual(found[name].dtype, expected.dtype, name)
      np.testing.assert_array_equal(found[name], expected, name)
      self.assertTrue(found[name].flags.writeable, name)

  @parameterized.parameters(np.savez, np.savez_compressed)
  def test_round_trip(self, save):
    content = _content(save=save)
    self._assert_equal(archives.arrays(content))
    for name, header in archives.headers(content).items():
      self.assertEqual(header.dtype, _arrays()[name].dtype)
      self.assertEqual(header.shape, _arrays()[name].shape)
      self.assertEqual(header.size, _arrays()[name].nbytes)
    self.assertEqual(archives.arrays(_content({})), {})

  def _assert_nothing_else(self, content):
    try:
      found = archives.arrays(content)
    except archives.ArchiveError as error:
      self.assertNotEmpty(str(error))
      return False
    self._assert_equal(found)
    return True

  @parameterized.parameters(np.savez, np.savez_compressed)
  def test_no_flipped_bit_of_a_header_loads_anything_else(self, save):
    """Of an array's own header, and of all that zip says of its members."""
    content = bytearray(_content(save=save))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      starts = [info.header_offset for info in archive.infolist()]
      directory = archive.start_dir
    # A member's own header is in the file as it is where nothing compresses it.
    places = [
        place for start in starts[:2] for place in range(start, start + 180)
        ] + list(range(directory, len(content)))
    wrong = 0
    for place in places:
      for bit in 0, 3, 6:
        content[place] ^= 1 << bit
        wrong += not self._assert_nothing_else(bytes(content))
        content[place] ^= 1 << bit
    self.assertGreater(wrong, 500)

  def test_numpy_stops_early_where_a_header_says_so(self):
    """What makes this module necessary: a flip that np.load does not see."""
    content = _content()
    changed = content.replace(b'(30, 100)', b'(20, 100)', 1)
    with np.load(io.BytesIO(changed)) as archive:
      self.assertEqual(archive['weights'].shape, (20, 100))
    with self.assertRaisesRegex(archives.ArchiveError, 'Bad CRC-32'):
      archives.arrays(changed)
    with self.assertRaisesRegex(
        archives.ArchiveError, 'weights has 12000 bytes.* header says 8000'):
      archives.headers(changed)

  def test_a_hidden_member_is_missed(self):
    """The length of a comment that covers the next member's entry."""
    content = bytearray(_content())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      place, second = archive.start_dir, archive.infolist()[1].filename
    struct.pack_into('<H', content, place + 32, 46 + len(second))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      self.assertNotIn(second, archive.namelist())
    for read in archives.arrays, archives.headers:
      with self.assertRaisesRegex(archives.ArchiveError, 'says that it has 6'):
        read(bytes(content))

  @parameterized.parameters(0, 1, 100, -1)
  def test_cut_off(self, size):
    for read in archives.arrays, archives.headers:
      with self.assertRaises(archives.ArchiveError):
        read(_content()[:size])

  def test_what_is_not_plain_is_refused(self):
    objects = _content({'weights': np.array([{}], object)})
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
      archive.writestr('program.py', 'pass')
    later = io.BytesIO()
    np.lib.format.write_array(later, np.zeros([2]), version=(3, 0))
    third = io.BytesIO()
    with zipfile.ZipFile(third, 'w') as archive:
      archive.writestr('weights.npy', later.getvalue())
    for content, problem in (
        (objects, 'objects'), (file.getvalue(), 'program.py is not an array'),
        (third.getvalue(), r'version \(3, 0\)'),
        (pickle.dumps({}), 'not a zip file')):
      for read in archives.arrays, archives.headers:
        with self.assertRaisesRegex(archives.ArchiveError, problem):
          read(content)

  def test_headers_expand_nothing(self):
    """A member whose numbers are damaged is not read so far."""
    content = _content({'zeros': np.zeros([10**7], np.uint8)},
                       np.savez_compressed)
    self.assertLess(len(content), 20_000)
    changed = bytearray(content)
    changed[len(content) // 2] ^= 255
    self.assertEqual(archives.headers(bytes(changed))['zeros'].size, 10**7)
    with self.assertRaises(archives.ArchiveError):
      archives.arrays(bytes(changed))

  def test_expect(self):
    found = _arrays()
    self.assertIs(
        archives.expect(found, 'pairs', np.uint8, [None, 27]), found['pairs'])
    archives.expect(found, 'count', np.int64, [])
    for name, dtype, shape, problem in (
        ('pear', np.uint8, [], 'lacks pear'),
        ('pairs', np.int8, [None, 27], 'pairs is uint8'),
        ('pairs', np.uint8, [700, 26], r'\[700, 27\]; expected uint8'),
        ('pairs', np.uint8, [None], 'expected uint8'),
        ('count', np.int64, [1], r'count is int64 \[\]')):
      with self.assertRaisesRegex(archives.ArchiveError, problem):
        archives.expect(found, name, dtype, shape)


if __name__ == '__main__':
  absltest.main()
