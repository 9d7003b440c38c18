"""Tests for gridlu.recording."""

import io
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from PIL import Image
from PIL import ImageSequence

from gridlu import program
from gridlu import recording as recording_lib
from gridlu import rendering
from gridlu import world
from tests.gridlu import boards

_LONG = ("NorthFrom(Color('red', Shape('circle', SCENE)), "
         "Color('blue', Shape('rect', SCENE)))")


class SaveGifTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._images = rendering.render(
        boards.random_states(np.random.default_rng(0), 5))

  def _frames(self, *arguments, **options):
    """Writes a GIF; returns each frame and its milliseconds."""
    file = io.BytesIO()
    recording_lib.save_gif(file, *arguments, **options)
    with Image.open(file) as gif:
      self.assertEqual(gif.info['loop'], 0)
      return [(np.asarray(frame.convert('RGB')), frame.info['duration'])
              for frame in ImageSequence.Iterator(gif)]

  @parameterized.parameters(1, 3)
  def test_images_are_scaled_without_blur(self, scale):
    frames = self._frames(self._images, scale=scale)
    self.assertLen(frames, 5)
    for (frame, duration), image in zip(frames, self._images):
      large = np.repeat(np.repeat(image, scale, axis=0), scale, axis=1)
      np.testing.assert_array_equal(
          frame[8:8 + len(large), 8:8 + len(large)], large)
      self.assertEqual(duration, 500)

  def test_captions_of_any_length(self):
    captions = ['', 'short', _LONG, _LONG + _LONG, 'short']
    frames = self._frames(self._images, captions, scale=3)
    below = [(frame[8 + 168:] < 128).any(axis=(1, 2)).sum()
             for frame, _ in frames]
    self.assertEqual(below[0], 0)
    self.assertLess(below[0], below[1])
    self.assertLess(below[1], below[2])
    self.assertLess(below[2], below[3])
    self.assertEqual(below[4], below[1])

  def test_times(self):
    frames = self._frames(self._images, seconds=[.1, .2, .3, 1, 2.5], scale=1)
    self.assertEqual([duration for _, duration in frames],
                     [100, 200, 300, 1000, 2500])

  @parameterized.parameters(
      ([1., 2.], 'shape'), (0, 'seconds is 0: expected .01 to 600'))
  def test_bad_times_are_named(self, seconds, message):
    with self.assertRaisesRegex(ValueError, message):
      self._frames(self._images, seconds=seconds)


class RecordingTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'out.gif')
    self._states = boards.random_states(np.random.default_rng(0), 40)

  def _play(self, recording, lengths):
    number = 0
    for length in lengths:
      recording.begin()
      for _ in range(length):
        recording.add(
            world.State(*(x[number] for x in self._states)), str(number))
        number += 1

  def test_keeps_the_last_episodes_that_have_a_step(self):
    recording = recording_lib.Recording(episodes=2)
    self._play(recording, [3, 2, 1, 3, 1])
    # The last, without a step, has taken the place of the episode of 2.
    self.assertEqual(recording.save(self._path),
                     f'{self._path}: 3 states of 1 episode')
    self._play(recording, [2])
    self.assertEqual(recording.save(self._path),
                     f'{self._path}: 5 states of 2 episodes')
    with Image.open(self._path) as gif:
      durations = [frame.info['duration']
                   for frame in ImageSequence.Iterator(gif)]
    self.assertEqual(durations, [500, 500, 2000, 500, 2000])

  def test_a_failed_save_leaves_the_old_file_alone(self):
    recording = recording_lib.Recording()
    self._play(recording, [5])
    recording.save(self._path)
    with (mock.patch.object(Image.Image, 'save', side_effect=OSError('full')),
          self.assertRaisesRegex(program.UserError, 'out.gif cannot .*full')):
      recording.save(self._path)
    self.assertEqual(os.listdir(os.path.dirname(self._path)), ['out.gif'])

  def test_nothing_played_leaves_no_file(self):
    recording = recording_lib.Recording()
    self.assertIn('was not written', recording.save(self._path))
    self._play(recording, [1, 1])
    self.assertIn('was not written', recording.save(self._path))
    self.assertFalse(os.path.exists(self._path))
