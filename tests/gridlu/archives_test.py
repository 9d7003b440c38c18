"""Tests for archives: what was changed is not taken for what was written."""

import io
import pickle
from unittest import mock
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
  def test_loading_returns_what_was_saved(self, save):
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

  @parameterized.parameters('<U2', '>U2')
  def test_characters_that_unicode_lacks_are_refused(self, dtype):
    texts = np.array(['ab', 'c\U0010ffff'], dtype)
    self.assertEqual(_load(_content({'texts': texts}))['texts'].tolist(),
                     ['ab', 'c\U0010ffff'])
    texts.view(texts.dtype.str.replace('U2', 'u4'))[1] = 0x110000
    with self.assertRaisesRegex(
        ValueError, "'texts.npy' has a character of number 1,114,112; expected "
        'at most 1,114,111'):
      _load(_content({'texts': texts}))

  def test_arrays_of_another_form_are_named(self):
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
    with self.assertRaisesRegex(ValueError, 'CRC|100 bytes; expected'):
      _load(lie)

  def _zip(self, members, compression=zipfile.ZIP_DEFLATED):
    """Returns an archive of members by their names, in a list."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', compression) as archive:
      for name, content in members:
        archive.writestr(name, content)
    return file.getvalue()

  def _array(self, shape, numbers=b'', dtype='|u1'):
    """Returns an array's file, whose header announces a shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {
        'descr': dtype, 'fortran_order': False, 'shape': shape})
    return file.getvalue() + numbers

  @parameterized.parameters(
      ([('a.npy', (10**12,), bytes(10))], r'has 138 bytes; expected .*\[1000'),
      ([('a.npy', (9,), bytes(10))], 'expected 137'),
      ([('a.npy', (-1,), bytes(10))], 'bytes; expected'),
      ([('a.npy', (3,), b'12'), ('b.npy', (2,), b'12')], 'expected 131'),
      ([('a.npy', (2,), b'12'), ('a.npy', (2,), b'12')], 'different names'),
      ([('a.txt', (2,), b'12')], 'a.txt.*expected arrays'))
  def test_headers_that_do_not_fit_are_refused(self, members, problem):
    content = self._zip([(name, self._array(shape, numbers))
                         for name, shape, numbers in members])
    with self.assertRaisesRegex(ValueError, problem):
      _load(content)

  def test_a_bomb_is_refused_before_it_is_unpacked(self):
    """Each of these has 20 MB or more, in 20 kB."""
    content = _content({'x': np.zeros([20, 2**20], np.uint8)},
                       np.savez_compressed)
    self.assertLess(len(content), 30_000)
    opened = []

    def refuse(headers):
      opened.append({name: (header.dtype, header.shape)
                     for name, header in headers.items()})
      raise ValueError('not these')

    read = mock.patch.object(
        archives, '_array', side_effect=ValueError('it was read'))
    with read, self.assertRaisesRegex(ValueError, 'not these'):
      archives.load(io.BytesIO(content), refuse)
    self.assertEqual(opened, [{'x': (np.uint8, (20, 2**20))}])
    with (mock.patch.object(
        archives.files, 'free_memory', return_value=20 * 2**20),
          self.assertRaisesRegex(ValueError, 'it was read'), read):
      archives.load(io.BytesIO(content))
    with (mock.patch.object(
        archives.files, 'free_memory', return_value=2**20), read,
          self.assertRaisesRegex(MemoryError, '20,971,520 bytes')):
      archives.load(io.BytesIO(content))

  def test_members_that_share_their_bytes_are_refused(self):
    content = bytearray(self._zip(
        [(f'{name}.npy', self._array((10**4,), bytes(10**4)))
         for name in 'abc'], zipfile.ZIP_STORED))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      first, _, third = archive.infolist()
      directory = archive.start_dir
    # All entries of the directory lead to the first member.
    size = third.header_offset - first.header_offset
    shared = content[:size // 2] + content[directory:]
    for i in range(3):
      place = size // 2 + i * (len(content) - directory - 22) // 3
      shared[place + 42:place + 46] = bytes(4)
    shared[-6:-2] = (size // 2).to_bytes(4, 'little')
    with self.assertRaisesRegex(ValueError, 'its members overlap'):
      _load(bytes(shared))

  @parameterized.parameters(zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
  def test_other_compressions_are_refused(self, compression):
    content = self._zip([('a.npy', self._array((1,), b'1'))], compression)
    with self.assertRaisesRegex(ValueError, 'is compressed in a way'):
      _load(content)
