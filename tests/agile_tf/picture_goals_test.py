"""Tests for agile_tf.picture_goals."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized
import numpy as np
from PIL import Image

from agile_tf import picture_goals
from gridlu import files
from gridlu import goal_dataset
from gridlu import program
from tests.gridlu import programs

_HEADER = 'picture,instruction\n'


def _colours(count, height=24, width=32):
  return np.random.default_rng(0).integers(
      256, size=[count, height, width, 3]).astype(np.uint8)


class PictureGoalsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    self._texts = self._folder / 'texts.csv'
    self._pictures = self._folder / 'pictures'
    self._pictures.mkdir()
    self._images = _colours(3)
    for name, image in zip('abc', self._images):
      Image.fromarray(image).save(self._pictures / f'{name}.png')

  def _read(self, text):
    self._texts.write_bytes(text.encode() if isinstance(text, str) else text)
    return picture_goals.read(str(self._pictures), str(self._texts))

  def _refuses(self, text, message):
    with self.assertRaisesRegex(program.UserError, message):
      self._read(text)

  def test_the_file_has_a_picture_and_a_text_for_each_row(self):
    """The columns may be in any order, and texts in quotes or with spaces."""
    self._texts.write_bytes(
        b'\xef\xbb\xbfnote, instruction ,picture\r\n'
        b'x,"open it, then wait",c.png\r\n'
        b'y, close it ,a.png\r\n\r\n,"open it, then wait",a.png')
    output = self._folder / 'goals.npz'
    with self.assertLogs('absl', 'WARNING') as logs:
      result = programs.call(
          picture_goals, f'--pictures={self._pictures}',
          f'--texts={self._texts}', f'--output={output}')
    self.assertEqual((result.returncode, result.stderr), (0, ''))
    self.assertRegex(
        result.stdout, r'3 goal examples of 2 instructions, 24 x 32 pixels')
    self.assertIn("Fewest examples: 1, of 'close it'", result.stdout)
    warning, = logs.output
    self.assertIn('such as b.png: 1 were left out', warning)
    dataset = goal_dataset.load(output)
    self.assertEqual(
        [dataset.instructions[i] for i in dataset.instruction],
        ['open it, then wait', 'close it', 'open it, then wait'])
    np.testing.assert_array_equal(dataset.images, self._images[[2, 0, 0]])

  def test_equal_letters_are_one_instruction(self):
    dataset = self._read(
        f'{_HEADER}a.png,u\u0308ber\nb.png,\u00fcber\nc.png,go\n')
    self.assertEqual(dataset.instructions, ('\u00fcber', 'go'))
    self.assertEqual(dataset.instruction.tolist(), [0, 0, 1])

  def test_greys_and_palettes_become_colours(self):
    grey = self._images[0, :, :, 0] // 64 * 64
    Image.fromarray(grey).save(self._pictures / 'a.png')
    Image.fromarray(grey).convert('P').save(self._pictures / 'b.png')
    dataset = self._read(f'{_HEADER}a.png,go\nb.png,go\n')
    for image in dataset.images:
      np.testing.assert_array_equal(image, grey[..., None].repeat(3, axis=-1))

  @parameterized.parameters(
      ('', r'texts.csv, line 1: expected a header .* found nothing'),
      ('a.png,go\n', "line 1: expected a header .* found 'a.png', 'go'. Write"),
      ('picture,text\na.png,go\n', "line 1: .* found 'picture', 'text'"),
      ('picture,picture,instruction\n', 'line 1: expected a header'),
      (_HEADER, 'no row after its header: .* "a.png,open the door"'),
      (f'{_HEADER}a.png,go\nb.png\n', 'line 3: it has 1 values for 2 columns'),
      (f'{_HEADER}a.png,go, now\n', 'line 2: it has 3 .* comma in quotes'),
      (f'{_HEADER}a.png,"go\n', 'line 2: unexpected end .* quotes in pairs'),
      (f'{_HEADER}a.png, \n', r"line 2: its instruction is '': expected a str"),
      (f'{_HEADER}a.png,go\x07\n', r'line 2: .*x07.*no control characters'),
      (f'{_HEADER}a.png,"go\non"\n', 'line 3: .*no control characters'),
      (f'{_HEADER}a.png,{1001 * "x"}\n', 'line 2: .* of 1 to 1,000 char'),
      (f'{_HEADER},go\n', "line 2: its picture is '': expected the name"),
      (f'{_HEADER}a\0.png,go\n', 'line 2: '),
      (f'{_HEADER}a.png,go\nd.png,go\n',
       r'texts.csv, line 3: \S+/d.png: there is no such file. Expected'),
      (f'{_HEADER}a.png,go\n'.encode() + b'b.png,\xff\n',
       'line 3: it is not in UTF-8'),
      (f'{_HEADER}a.png,go\n'.encode('utf-16'), 'not in UTF-8'))
  def test_wrong_texts_are_named_by_line(self, text, message):
    self._refuses(text, message)

  def test_a_picture_that_a_decoder_gives_up_on_is_named(self):
    with mock.patch.object(Image.Image, 'convert', side_effect=RuntimeError(
        'Failed to decode image')):  # As of an AVIF file that is damaged.
      self._refuses(f'{_HEADER}a.png,go\n', 'line 2: .*a.png: it is not a '
                    r'whole picture \(Failed to decode image\)')

  def test_wrong_pictures_are_named_by_line_and_file(self):
    def save(image, **options):
      image.save(self._pictures / 'b.png', format='PNG', **options)

    path = self._pictures / 'b.png'
    whole = path.read_bytes()
    colours = Image.fromarray(self._images[0])
    for make, message in (
        (lambda: save(Image.fromarray(_colours(1, 32, 24)[0])),
         'it has 32 x 24 pixels, and a.png of line 2 has 24 x 32'),
        (lambda: save(Image.fromarray(_colours(1, 23, 32)[0])),
         'it has 23 x 32 pixels: expected at least 24 x 24'),
        (lambda: save(Image.fromarray(
            np.full([24, 32, 4], 254, np.uint8))), 'pixels are transparent'),
        (lambda: save(Image.fromarray(np.full([24, 32], 256, np.uint16))),
         'numbers of the kind I;16: expected .* with 8 bits'),
        (lambda: save(colours, save_all=True, append_images=[
            Image.fromarray(self._images[1])]), 'it has several frames'),
        (lambda: path.write_bytes(b'nothing'), 'is not a whole picture'),
        (lambda: path.write_bytes(whole[:300]), 'truncated'),
        (lambda: (path.unlink(), path.mkdir()), 'directory')):
      make()
      self._refuses(f'{_HEADER}a.png,go\n\nc.png,go\nb.png,go\n',
                    rf'(?s)texts.csv, line 5: \S+b.png: .*{message}')

  def test_a_picture_without_an_end_is_not_waited_for(self):
    os.mkfifo(self._pictures / 'd.png')
    self._refuses(f'{_HEADER}d.png,go\n', 'd.png: it is a named pipe')

  def test_folders_and_files_that_are_not_there_are_named(self):
    empty = self._folder / 'empty'
    empty.mkdir()
    (empty / 'notes.txt').write_text('none')
    self._texts.write_text(f'{_HEADER}a.png,go\n')
    for pictures, texts, message in (
        (empty, self._texts, 'empty: the folder has no picture. Expected'),
        (self._folder / 'none', self._texts, '--pictures=.*No such file'),
        (self._texts, self._texts, '--pictures=.*Not a directory'),
        (self._pictures, self._folder / 'none.csv', 'none.csv: it cannot be'),
        (self._pictures, self._folder, 'it cannot be read')):
      with self.assertRaisesRegex(program.UserError, message):
        picture_goals.read(str(pictures), str(texts))

  def test_more_than_the_memory_is_refused(self):
    with mock.patch.object(files, 'free_memory', return_value=4608):
      self._refuses(f'{_HEADER}a.png,go\nb.png,go\n', 'GB of memory, and 0.0')

  def test_a_jpeg_and_an_odd_size_are_said(self):
    Image.fromarray(_colours(1, 24, 36)[0]).save(self._pictures / 'd.jpg')
    with self.assertLogs('absl', 'WARNING') as logs:
      self._read(f'{_HEADER}d.jpg,go\n')
    unused, lossy, size = logs.output
    self.assertIn('a.png: 3 were left out', unused)
    self.assertIn('such as d.jpg are JPEGs: 1 of them', lossy)
    self.assertRegex(size, '24 x 36 pixels.*--model=agile_tf.overlapping:make')

  def test_an_existing_output_stays(self):
    self._texts.write_text(f'{_HEADER}a.png,go\n')
    result = programs.call(
        picture_goals, f'--pictures={self._pictures}', f'--texts={self._texts}',
        f'--output={self._texts}')
    self.assertEqual(result.returncode, 1)
    self.assertIn('exists already', result.stderr)
    self.assertEqual(self._texts.read_text(), f'{_HEADER}a.png,go\n')

  def test_needs_no_tensorflow(self):
    subprocess.run(
        [sys.executable, '-c', 'import sys, agile_tf.picture_goals; '
         "assert 'tensorflow' not in sys.modules"], check=True)
