"""Tests for arrangements, against the paper's counts and a plain checker."""

import itertools

from absl.testing import parameterized
import numpy as np

from gridlu import arrangements
from gridlu import language
from gridlu import world

_RECTS = {color: world.block('rect', color) for color in world.COLORS}


def _components(cells):
  """Returns the number of groups of cells that touch at their sides."""
  left, groups = set(cells), 0
  while left:
    groups += 1
    todo = [left.pop()]
    while todo:
      r, c = todo.pop()
      near = {(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)} & left
      left -= near
      todo += near
  return groups


def _is(word, cells):
  """Says in words of its own whether four cells are a form."""
  rows = sorted(r for r, _ in cells)
  columns = sorted(c for _, c in cells)
  height, width = rows[-1] - rows[0], columns[-1] - columns[0]
  degrees = sorted(
      sum(abs(r - s) + abs(c - d) == 1 for s, d in cells) for r, c in cells)
  if word == 'Square':
    return (height, width) == (1, 1)
  if word == 'Line':
    return {height, width} == {0, 3}
  if word == 'Dline':
    return height == width == 3 and 1 in (
        len({r - c for r, c in cells}), len({r + c for r, c in cells}))
  if word == 'Circle':
    r, c = rows[1], columns[1]
    return set(cells) == {(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)}
  if word == 'Triangle':
    return degrees == [1, 1, 1, 3]
  # Paths of four cells in a 2x3 box: the ends of an L are on different sides
  # of the long middle, or not.
  if word in ('Eel', 'Snake'):
    if {height, width} != {1, 2} or degrees != [1, 1, 2, 2]:
      return False
    long = rows if height == 2 else columns
    return (long.count(long[0]) == 1 and long.count(long[-1]) == 1) == (
        word == 'Snake')
  if word == 'Connected':
    return _components(cells) == 1
  return _is('Dline', cells) or _is('Circle', cells)


class ArrangementsTest(parameterized.TestCase):

  def test_each_arrangement_has_its_count_of_placements(self):
    self.assertEqual(
        {word: len(cells) for word, cells in arrangements.PLACEMENTS.items()},
        {'Square': 16, 'Line': 20, 'Dline': 8, 'Triangle': 48, 'Circle': 9,
         'Eel': 96, 'Snake': 48, 'Connected': 228, 'Disconnected': 17})

  @parameterized.parameters(*language.Arrangement.words)
  def test_every_set_of_four_cells_is_judged_right(self, word):
    cells = np.array(list(itertools.combinations(range(25), 4)))
    blocks = np.zeros([len(cells), 25], np.int32)
    np.put_along_axis(blocks, cells, _RECTS['green'], axis=1)
    states = world.State(
        blocks.reshape(-1, 5, 5), np.zeros([len(cells), 2], np.int32),
        np.zeros(len(cells), bool))
    expected = [_is(word, [divmod(c, 5) for c in row]) for row in cells]
    for target, known in (('SCENE', expected),
                          ("Color('green', SCENE)", expected),
                          ("Color('red', SCENE)", np.zeros(len(cells), bool))):
      codes = arrangements.encode(
          [language.parse(f'{word}(AGENT, {target})')])[0]
      np.testing.assert_array_equal(
          arrangements.satisfied(codes, states), known)

  def test_all_blocks_that_fit_count(self):
    board = np.zeros([5, 5], np.int32)
    board[0, :4] = _RECTS['red']
    board[3, 1:5] = _RECTS['blue']
    state = world.State(board, np.array([4, 4], np.int32), np.array(False))

    def holds(text, state=state):
      return bool(arrangements.satisfied(
          arrangements.encode([language.parse(text)])[0], state))

    self.assertTrue(holds("Line(AGENT, Color('red', SCENE))"))
    self.assertTrue(holds("Connected(AGENT, Color('blue', SCENE))"))
    self.assertFalse(holds("Line(AGENT, Color('green', SCENE))"))
    self.assertFalse(holds('Line(AGENT, SCENE)'))  # These are eight.
    board[4, 4] = _RECTS['red']
    self.assertFalse(holds("Line(AGENT, Color('red', SCENE))"))
    board[4, 4] = world.block('circle', 'green')  # Does not matter.
    self.assertTrue(holds("Line(AGENT, Color('red', SCENE))"))

  def test_instances_have_the_papers_blocks(self):
    drawn = arrangements.instances(np.random.default_rng(0), 4000)
    instructions = language.arrangements_instructions()
    codes = arrangements.encode(instructions)[drawn.instruction]
    blocks = drawn.state.blocks.reshape(-1, 25)
    counts = np.stack(
        [(blocks == _RECTS[color]).sum(1) for color in world.COLORS], 1)
    np.testing.assert_array_equal(counts.sum(1), (blocks > 0).sum(1))
    plain = codes[:, 1] < 0
    self.assertAlmostEqual(plain.mean(), .5, delta=.03)
    np.testing.assert_array_equal(
        np.sort(counts, 1), np.where(plain[:, None], [0, 0, 4], [0, 4, 4]))
    named = counts[np.arange(len(codes)), codes[:, 1]][~plain]
    np.testing.assert_array_equal(named, 4)
    # Each colour as often, alone and beside each that an instruction names.
    for color in range(3):
      for named in {-1, 0, 1, 2} - {color}:
        beside = counts[codes[:, 1] == named, color]
        self.assertAlmostEqual(
            (beside > 0).mean(), 1 / 3 if named < 0 else 1 / 2, delta=.08)
    agent = world.cell_index(drawn.state.agent)
    np.testing.assert_array_equal(blocks[np.arange(len(agent)), agent], 0)
    self.assertFalse(drawn.state.carrying.any())
    # Uniform: 36 instructions; 27 have a colour; every cell.
    for values, size, kind in ((drawn.instruction[plain], 36, 9),
                               (drawn.instruction[~plain], 36, 27),
                               (agent, 25, 25)):
      share = np.bincount(values, minlength=size) / len(values)
      self.assertLen(np.flatnonzero(share), kind)
      np.testing.assert_allclose(share[share > 0], 1 / kind, atol=.03)
    for occupied in (blocks > 0)[plain].mean(0), (blocks > 0)[~plain].mean(0):
      np.testing.assert_allclose(occupied, occupied.mean(), atol=.06)

  def test_goal_states_satisfy_and_have_the_papers_shares(self):
    instructions = language.arrangements_instructions()
    drawn = arrangements.goal_states(np.random.default_rng(0), 20_000)
    codes = arrangements.encode(instructions)[drawn.instruction]
    self.assertTrue(arrangements.satisfied(codes, drawn.state).all())
    blocks = drawn.state.blocks.reshape(-1, 25)
    self.assertAlmostEqual(
        ((blocks > 0).sum(1) == 4).mean(), .5, delta=.02)
    agent = world.cell_index(drawn.state.agent)
    np.testing.assert_allclose(
        np.bincount(agent) / len(agent), 1 / 25, atol=.01)
    # Connected: each of five forms as often, whatever its placements.
    connected = codes[:, 0] == language.Arrangement.words.index('Connected')
    for word in ('Line', 'Square', 'Eel', 'Snake', 'Triangle'):
      other = codes[connected].copy()
      other[:, 0] = language.Arrangement.words.index(word)
      states = world.State(*(x[connected] for x in drawn.state))
      self.assertAlmostEqual(
          arrangements.satisfied(other, states).mean(), .2, delta=.04)
    # Every placement of a form is as likely.
    lines = codes[:, 0] == language.Arrangement.words.index('Line')
    color = np.where(codes[:, 1] < 0, blocks.max(1), 4 + codes[:, 1])
    _, count = np.unique(
        (blocks == color[:, None])[lines], axis=0, return_counts=True)
    np.testing.assert_allclose(count / lines.sum(), [1 / 20] * 20, atol=.02)
    # The cell that Circle leaves empty may hold a distractor or the agent.
    circles = (codes[:, 0] == language.Arrangement.words.index('Circle')) & (
        codes[:, 1] >= 0)
    mine = (blocks == color[:, None])[circles]
    centre = (mine * np.arange(25)).sum(1) // 4
    held = blocks[circles][np.arange(len(centre)), centre]
    self.assertAlmostEqual((held > 0).mean(), 4 / 21, delta=.07)

  def test_only_chosen_instructions_are_drawn(self):
    chosen = [language.parse("Eel(AGENT, Color('blue', SCENE))")]
    for draw in arrangements.instances, arrangements.goal_states:
      drawn = draw(np.random.default_rng(0), 50, chosen)
      self.assertFalse(drawn.instruction.any())
      self.assertTrue(
          ((drawn.state.blocks == _RECTS['blue']).sum((1, 2)) == 4).all())
      self.assertTrue(((drawn.state.blocks > 0).sum((1, 2)) == 8).all())
      self.assertEmpty(draw(np.random.default_rng(0), 0).instruction)
      with self.assertRaisesRegex(ValueError, 'instructions is empty'):
        draw(np.random.default_rng(0), 1, [])
      with self.assertRaisesRegex(
          ValueError, 'expected an instruction of arrangements'):
        draw(np.random.default_rng(0), 1, language.relations_instructions())
