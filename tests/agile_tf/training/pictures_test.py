"""Tests for the pictures of episodes."""

import io

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from PIL import Image

from agile_tf.training import pictures
from agile_tf.training import recorder

_GREEN = (0, 160, 0)
_TEXT = ("NorthFrom(Color('green', Shape('triangle', SCENE)), "
         "Color('blue', Shape('triangle', SCENE)))")


def _episode(steps, size=56):
  images = np.random.default_rng(0).integers(
      1, 255, size=[steps + 1, size, size, 3]).astype(np.uint8)
  decisions = np.arange(1, steps + 1) % 4 == 0
  return recorder.Recording(_TEXT, images, decisions), images


def _corners(sheet, size=60):
  """Returns the upper left corners of green frames, as rows and columns."""
  green = np.all(sheet == _GREEN, axis=-1)
  is_corner = green.copy()
  is_corner[1:] &= ~green[:-1]
  is_corner[:, 1:] &= ~green[:, :-1]
  return [(y, x) for y, x in zip(*np.nonzero(is_corner))
          if green[y, x:x + size].all() and green[y:y + size, x].all()]


class PicturesTest(parameterized.TestCase):

  def test_sheets_show_every_state_with_its_verdict(self):
    episode, images = _episode(30)
    sheets = pictures.sheets(episode, images, 'the reward model')
    # As large as TensorBoard shows them: 350 pixels wide, 215 high.
    self.assertEqual(len(sheets), 4)
    self.assertLessEqual(sheets.shape[2], 350)
    self.assertLessEqual(sheets.shape[1], 230)
    shown = [i for i in range(31) if any(
        np.array_equal(window, images[i])
        for sheet in sheets[i // 10:i // 10 + 1]
        for window in self._states(sheet))]
    self.assertEqual(shown, list(range(31)))
    self.assertEqual(
        [len(_corners(sheet)) for sheet in sheets], [2, 2, 3, 0])
    # Different verdicts are different texts, too.
    other = pictures.sheets(
        episode._replace(decisions=~episode.decisions), images, 'nobody')
    self.assertEqual([len(_corners(sheet)) for sheet in other], [7, 8, 7, 1])

  def _states(self, sheet):
    """Yields what may be a state: the parts of the grid below the title."""
    top = sheet.shape[0] - 2 * (60 + 16 + 8)
    for y in (top, top + 84):
      for x in range(8, 348, 68):
        yield sheet[y + 2:y + 58, x + 2:x + 58]

  @parameterized.parameters((1, 56, 1), (9, 40, 1), (10, 300, 2), (300, 8, 5))
  def test_other_lengths_and_sizes(self, steps, size, count):
    episode, images = _episode(steps, size)
    sheets = pictures.sheets(episode, images, 'the ground truth')
    self.assertLen(sheets, count)
    self.assertEqual(sheets.dtype, np.uint8)

  def test_animation_has_every_state(self):
    episode, images = _episode(7)
    gif, size = pictures.animation(episode, images)
    with Image.open(io.BytesIO(gif)) as picture:
      self.assertEqual(picture.n_frames, 8)
      self.assertEqual(picture.size, size)


if __name__ == '__main__':
  absltest.main()
