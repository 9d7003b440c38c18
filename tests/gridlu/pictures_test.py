"""Tests for gridlu.pictures."""

import os

from absl.testing import parameterized
import numpy as np
from PIL import Image

import gridlu
from gridlu import language
from gridlu import pictures
from tests.gridlu import boards
from tests.gridlu import programs


class FiguresTest(parameterized.TestCase):

  def test_figure_1_shows_four_ls(self):
    states = pictures.FIGURE_1_STATES
    self.assertLen(states, 4)
    for state in states:
      self.assertTrue(
          gridlu.satisfied(pictures.FIGURE_1_INSTRUCTION, state))
      np.testing.assert_array_equal(  # Four red rects, four blue.
          np.bincount(state.blocks.ravel(), minlength=10)[[4, 6]], [4, 4])
      self.assertEqual(np.count_nonzero(state.blocks), 8)

  def test_figure_3_shows_episodes(self):
    episodes = pictures.figure_3_episodes()
    self.assertEqual([instruction.task for instruction, _, _ in episodes],
                     ['relations', 'arrangements', 'arrangements'])
    for instruction, initial, goal in episodes:
      self.assertFalse(gridlu.satisfied(instruction, initial))
      self.assertTrue(gridlu.satisfied(instruction, goal))
      self.assertFalse(initial.carrying or goal.carrying)
      np.testing.assert_array_equal(
          np.sort(initial.blocks, axis=None), np.sort(goal.blocks, axis=None))

  def test_figure_3_shows_the_vocabulary(self):
    vocabulary = pictures.figure_3_vocabulary()
    self.assertEqual(tuple(dict.fromkeys(word for word, _ in vocabulary)),
                     language.Arrangement.words)
    for word, state in vocabulary:
      self.assertTrue(gridlu.satisfied(f'{word}(AGENT, SCENE)', state), word)

  def test_figure_6_follows_the_rules(self):
    states = pictures.figure_6_states()
    expected = ['gt .@', 'gt@', 'gt!', 'gt!', 'gt@', 'gt .@']
    self.assertLen(states, 6)
    for i, (state, text) in enumerate(zip(states, expected)):
      row = '. . ' + text
      drawn = boards.draw('////' + row if i < 3 else '///' + row)
      boards.assert_equal(state, drawn)

  @parameterized.parameters('1', '3', '6')
  def test_the_program_writes_each_figure(self, number):
    path = os.path.join(self.create_tempdir().full_path, 'figure.png')
    run = programs.call(pictures, f'--figure={number}', f'--output={path}')
    self.assertEqual(run.returncode, 0, run.stderr)
    with Image.open(path) as image:
      np.testing.assert_array_equal(
          np.asarray(image), pictures.FIGURES[number]())
      self.assertIn(f'{image.width}x{image.height} pixels', run.stdout)

  def test_bad_input_is_named(self):
    folder = self.create_tempdir('folder.png').full_path
    for arguments, message in (
        (['--figure=2', '--output=a.png'], '2'),
        (['--figure=1'], '--output'),
        (['--figure=1', '--output=a.gif'], 'expected the name of a .png file'),
        (['--figure=1', f'--output={folder}'], 'expected the name'),
        (['--figure=1', '--output=/no/such/a.png'], 'no folder /no/such')):
      run = programs.call(pictures, *arguments)
      self.assertEqual(run.returncode, 1, arguments)
      self.assertIn(message, run.stderr)
