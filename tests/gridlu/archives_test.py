"""Tests for archives: what was changed is not taken for what was written."""

import io
import pickle
import zipfile

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


def _load(content):
  return archives.load(io.BytesIO(content))


class ArchivesTest(parameterized.TestCase):

  @parameterized.parameters(np.savez, np.savez_compressed)
  def test_round_trip(self, save):
    found = _load(_content(save=save))
    self.assertEqual(list(found), list(_arrays()))
    for name, expected in _arrays().items():
      self.assertEqual(found[name].dtype, expected.dtype, name)
      np.testing.assert_array_equal(found[name], expected, name)
      self.assertTrue(found[name].flags.writeable, name)

  @parameterized.parameters(np.savez, np.savez_compressed)
  def test_no_flipped_bit_of_a_header_loads_other_numbers(self, save):
    """Of an array's own header, and of all that zip says of its members."""
    content = bytearray(_content(save=save))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      starts = [info.header_offset for info in archive.infolist()]
      places = [place for start in starts[:2]
                for place in range(start, start + 180)]
      places += range(archive.start_dir, len(content))
    wrong = 0
    for place in places:
      for bit in 0, 3, 6:
        content[place] ^= 1 << bit
        try:
          found = _load(bytes(content))
        except ValueError as error:
          self.assertNotEmpty(str(error))
          wrong += 1
        else:  # A damaged list can hide an array, or rename it.
          for name in found.keys() & _arrays().keys():
            np.testing.assert_array_equal(found[name], _arrays()[name])
        content[place] ^= 1 << bit
    self.assertGreater(wrong, 500)

  def test_what_is_not_plain_is_refused(self):
    single = io.BytesIO()
    np.save(single, np.zeros([2]))
    none = 'it is no NumPy archive'
    for content, problem in (
        (_content({'weights': np.array([{}], object)}), 'Object arrays'),
        (single.getvalue(), none), (pickle.dumps({}), none), (b'text', none),
        (_content()[:-200], 'not a zip file')):
      with self.assertRaisesRegex(ValueError, problem):
        _load(content)

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
      with self.assertRaisesRegex(ValueError, problem):
        archives.expect(found, name, dtype, shape)

  def test_a_damaged_header_does_not_hide_the_rest(self):
    content = _content({'zeros': np.zeros([10**7], np.uint8)},
                       np.savez_compressed)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      size, = (info.file_size for info in archive.infolist())
    lie = content.replace(size.to_bytes(4, 'little'),
                          (100).to_bytes(4, 'little'))
    self.assertNotEqual(lie, content)
    with self.assertRaisesRegex(ValueError, 'does not match its checksum'):
      _load(lie)
