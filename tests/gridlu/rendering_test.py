"""Tests for gridlu.rendering."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import rendering
from tests.gridlu import boards

_RGB = {'.': (0, 0, 0), '#': (220, 220, 220), 'a': (64, 64, 64),
        'A': (255, 255, 255), 'r': (255, 0, 0), 'g': (0, 255, 0),
        'b': (0, 0, 255)}

_CIRCLE = """
  ..rrrr..
  .rrrrrr.
  rrrrrrrr
  rrrrrrrr
  rrrrrrrr
  rrrrrrrr
  .rrrrrr.
  ..rrrr.."""
_RECT_AND_AGENT = """
  aaaaaaaa
  aaaaaaaa
  aaggggaa
  aaggggaa
  aaggggaa
  aaggggaa
  aaaaaaaa
  aaaaaaaa"""
_TRIANGLE_CARRIED = """
  AAAbbAAA
  AAAbbAAA
  AAbbbbAA
  AAbbbbAA
  AbbbbbbA
  AbbbbbbA
  bbbbbbbb
  bbbbbbbb"""


def _pixels(text: str) -> np.ndarray:
  return np.array([[_RGB[c] for c in row] for row in text.split()], np.uint8)


def _cell(image: np.ndarray, row: int, column: int) -> np.ndarray:
  """A board's cell; the wall is at -1 and 5."""
  y, x = 8 * (row + 1), 8 * (column + 1)
  return image[y:y + 8, x:x + 8]


class RenderTest(parameterized.TestCase):

  @parameterized.parameters(
      ('/. . rc///.@', _CIRCLE), ('/. . gr@', _RECT_AND_AGENT),
      ('/. . bt!', _TRIANGLE_CARRIED))
  def test_each_content_of_a_cell_has_its_sprite(self, board, expected):
    image = rendering.render(boards.draw(board))
    np.testing.assert_array_equal(_cell(image, 1, 2), _pixels(expected))

  def test_wall_is_all_around(self):
    image = rendering.render(boards.draw('////. . . . rr@'))
    self.assertEqual(image.shape, (56, 56, 3))
    self.assertEqual(image.dtype, np.uint8)
    inside = np.zeros((56, 56), bool)
    inside[8:48, 8:48] = True
    self.assertTrue(np.all(image[~inside] == 220))
    self.assertFalse(np.any(image[inside] == 220))

  def test_images_equal_tile_by_tile_rendering(self):
    state = boards.random_states(np.random.default_rng(0), 20)
    images = rendering.render(state)
    for i in range(20):
      for row in range(5):
        for column in range(5):
          tile = state.blocks[i, row, column]
          if tuple(state.agent[i]) == (row, column):
            tile += 20 if state.carrying[i] else 10
          np.testing.assert_array_equal(_cell(images[i], row, column),
                                        rendering.TILES[tile])

  def test_image_shows_the_whole_state(self):
    tiles = rendering.TILES.reshape(31, -1)
    self.assertLen(np.unique(tiles, axis=0), 31)


class ContactSheetTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._images = rendering.render(
        boards.random_states(np.random.default_rng(0), 3))

  def test_shows_each_image(self):
    sheet = rendering.contact_sheet(self._images, columns=2, scale=2)
    self.assertEqual(sheet.shape, (8 + 2 * 120, 8 + 2 * 120, 3))
    self.assertEqual(sheet.dtype, np.uint8)
    for i, (y, x) in enumerate([(8, 8), (8, 128), (128, 8)]):
      np.testing.assert_array_equal(
          sheet[y:y + 112:2, x:x + 112:2], self._images[i])

  def test_captions_stand_in_black_below(self):
    text = ("NorthFrom(Color('red', Shape('circle', SCENE)), "
            "Color('blue', Shape('rect', SCENE)))")
    plain = rendering.contact_sheet(self._images, columns=3)
    sheet = rendering.contact_sheet(self._images, [text, '', 'short'],
                                    columns=3)
    self.assertGreater(sheet.shape[0], plain.shape[0] + 3 * 14)
    below = sheet[8 + 168:] < 128
    self.assertTrue(np.any(below[:, 8:176]))
    self.assertFalse(np.any(below[:, 184:352]))  # The empty caption.
    self.assertTrue(np.any(below[:, 360:]))

  def test_title_stands_above(self):
    plain = rendering.contact_sheet(self._images, columns=3)
    for title, lines in ('go', 1), (20 * 'go to the red block ', 4):
      sheet = rendering.contact_sheet(self._images, columns=3, title=title)
      np.testing.assert_array_equal(sheet[-len(plain) + 8:], plain[8:])
      above = sheet[:-len(plain) + 8]
      self.assertTrue(np.any(above < 128))
      self.assertEqual(len(above), 8 + 14 * lines + 2)

  def test_bad_arguments_are_named(self):
    for images in self._images[0], self._images[:0], self._images / 255:
      with self.assertRaisesRegex(ValueError, 'expected uint8'):
        rendering.contact_sheet(images)
