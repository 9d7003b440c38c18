"""Tests for gridlu.screen; `tests/gridlu/play_test.py` has its terminal."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import program
from gridlu import screen
from gridlu import world
from tests.gridlu import boards

_BOARD = r"""
#####################################
#                                   #
#  (r)    [g]    /b\     .      .   #
#                                   #
#                                   #
#   .      .      .      .      .   #
#                                   #
#                     .-----.       #
#   .      .      .   | [b] |   .   #
#                     '-----'       #
#                                   #
#   .      .      .      .      .   #
#                                   #
#                                   #
#   .      .      .      .      .   #
#                                   #
#####################################"""


class BoardTest(parameterized.TestCase):

  def test_a_board_is_drawn_as_text(self):
    lines = screen.board(boards.draw('rc gr bt//. . . br@'))
    self.assertEqual(screen.plain(lines), _BOARD.split('\n')[1:])
    self.assertEqual(screen.size(lines), (37, 17))

  def test_text_alone_shows_the_whole_state(self):
    # Blocks, and where they stand with a free and with a carrying agent.
    seen = set()
    for code in range(world.NUM_BLOCK_CODES):
      for agent, carrying in (((4, 4), False), ((0, 0), False), ((0, 0), True)):
        blocks = np.zeros((5, 5), np.int32)
        blocks[0, 0] = code
        if not (carrying and code == 0):
          lines = screen.board(world.State(
              blocks, np.array(agent), np.array(carrying)))
          seen.add(tuple(row[1:8] for row in screen.plain(lines)[1:4]))
    self.assertLen(seen, 29)

  def test_contents_have_their_colours(self):
    lines = screen.board(boards.draw('rc gr! bt'))
    backgrounds = {segment.text: segment.style.background
                   for row in lines[1:4] for segment in row}
    expected = {'(r)': 'red', '[g]': 'green', '/b\\': 'blue', '#': 'white',
                '*******': 'white'}
    self.assertEqual(backgrounds, backgrounds | expected)

  def test_a_picture_has_the_average_color_of_each_rectangle(self):
    image = np.zeros([8, 6, 3], np.uint8)
    image[:4, 2:4] = (255, 0, 0)
    image[4:, 4:] = 255
    image[4:6, :2] = (0, 0, 100)
    for width in 3, 4, 5:
      lines = screen.picture(image, width)
      self.assertEqual(
          [[segment.style.background for segment in row] for row in lines],
          [['#000000', '#ff0000', '#000000'],
           ['#000032', '#000000', '#ffffff']])
    self.assertEqual(screen.plain(lines), [' - ', '  @'])
    self.assertEqual(screen.size(screen.picture(image, 6)), (6, 4))
    # What is left over at the edges has characters too.
    self.assertEqual(screen.size(screen.picture(image[:7, :5], 3)), (3, 2))

  def test_the_agents_state_is_said_in_words(self):
    self.assertEqual(screen.agent_text(boards.draw('bt@')), 'free')
    self.assertEqual(screen.agent_text(boards.draw('/. bt!')),
                     'carries a blue triangle')


class ComposeTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._state = boards.draw('.@')

  def test_the_instruction_board_and_lines_have_their_places(self):
    lines = screen.plain(screen.compose(
        'Snake(AGENT, SCENE)', screen.board(self._state),
        [screen.line('one'), screen.line('two', bold=True)], ['q quits']))
    self.assertEqual(lines[:3], ['Snake(AGENT, SCENE)', '', ''])
    self.assertEqual(lines[3].rstrip(), '#' * 37 + '   one')
    self.assertEqual(lines[4].rstrip(), '#.-----.'.ljust(36) + '#   two')
    self.assertEqual(lines[-2:], ['', 'q quits'])

  def test_fits_a_common_terminal_whatever_the_instruction(self):
    longest = ("SouthFrom(Color('green', Shape('triangle', SCENE)), "
               "Color('green', Shape('triangle', SCENE)))")
    for text in ('Snake(AGENT, SCENE)', longest):
      lines = screen.compose(
          text, screen.board(self._state),
          [screen.line('x' * screen.PANEL_WIDTH)] * 17,
          ['k' * screen.WIDTH] * 2)
      self.assertEqual(screen.size(lines), (76, 23))
      joined = ' '.join(screen.plain(lines)[:2]).strip()
      self.assertEqual(joined, text)

  def test_fit(self):
    lines = [screen.line('abc'), screen.line('de')]
    self.assertEqual(screen.fit(lines, 3, 2), (lines, True))
    for width, height in ((2, 2), (3, 1), (1, 1), (20, 30)):
      large = [screen.line('x' * 30)]
      shown, fits = screen.fit(large, width, height)
      self.assertFalse(fits)
      self.assertLessEqual(screen.size(shown)[0], width)
      self.assertLessEqual(screen.size(shown)[1], height)
    shown, _ = screen.fit(large, 20, 30)
    self.assertIn('has 20 columns and 30 rows, and 30 columns and 1 rows are '
                  'needed', ' '.join(screen.plain(shown)))


class TerminalTest(absltest.TestCase):

  def test_without_a_terminal_an_error_says_so(self):
    for missing, message in enumerate((
        'standard input is not a terminal',
        'standard output is not a terminal')):
      with mock.patch.object(os, 'isatty', lambda i, m=missing: i != m):
        with self.assertRaisesRegex(program.UserError, message):
          screen.check_terminal()

  def test_without_curses_an_error_says_so(self):
    with mock.patch.object(screen, 'curses', None):
      with self.assertRaisesRegex(program.UserError, 'no curses module'):
        screen.check_terminal()
