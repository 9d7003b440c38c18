"""Tests for gridlu.recording."""

import io
import os
import pathlib
from unittest import mock

from absl.testing import absltest
import numpy as np
from PIL import Image
from PIL import ImageSequence

from gridlu import program
from gridlu import recording as recording_lib
from gridlu import rendering
from gridlu import world
from tests.gridlu import boards


class SaveFramesTest(absltest.TestCase):

  def test_frames_of_any_height_loop(self):
    rng = np.random.default_rng(0)
    frames = [np.repeat(rng.choice([0, 255], [height, 9, 1]), 3, 2).astype(
        np.uint8) for height in (4, 6)]
    file = io.BytesIO()
    recording_lib.save_frames(file, frames, [.1, 2.5])
    with Image.open(file) as gif:
      self.assertEqual(gif.info['loop'], 0)
      for frame, expected, duration in zip(
          ImageSequence.Iterator(gif), frames, (100, 2500), strict=True):
        self.assertEqual(frame.info['duration'], duration)
        self.assertEqual(frame.size, (9, 6))
        pixels = np.asarray(frame.convert('RGB'))
        np.testing.assert_array_equal(pixels[:len(expected)], expected)
        self.assertTrue(np.all(pixels[len(expected):] == 255))


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
    self.assertEqual(recording.save(self._path),
                     f'{self._path}: 5 states of 2 episodes')
    self._play(recording, [2])
    self.assertEqual(recording.save(self._path),
                     f'{self._path}: 5 states of 2 episodes')
    with Image.open(self._path) as gif:
      frames = [(np.asarray(frame.convert('RGB')), frame.info['duration'])
                for frame in ImageSequence.Iterator(gif)]
    self.assertEqual([duration for _, duration in frames],
                     [500, 500, 2000, 500, 2000])
    for (pixels, _), i in zip(frames, (6, 7, 8, 0, 1)):
      np.testing.assert_array_equal(
          pixels[8:232:4, 8:232:4],
          rendering.render(world.State(*(x[i] for x in self._states))))

  def test_a_failed_save_leaves_the_old_file_alone(self):
    recording = recording_lib.Recording()
    self._play(recording, [5])
    recording.save(self._path)
    before = pathlib.Path(self._path).read_bytes()
    self._play(recording, [6])
    with (mock.patch.object(os, 'replace', side_effect=OSError('full')),
          self.assertRaisesRegex(program.UserError, 'out.gif cannot .*full')):
      recording.save(self._path)
    self.assertEqual(pathlib.Path(self._path).read_bytes(), before)
    self.assertEqual(os.listdir(os.path.dirname(self._path)), ['out.gif'])

  def test_nothing_played_leaves_no_file(self):
    recording = recording_lib.Recording()
    self.assertIn('was not written', recording.save(self._path))
    self._play(recording, [1, 1])
    self.assertIn('was not written', recording.save(self._path))
    self.assertFalse(os.path.exists(self._path))
