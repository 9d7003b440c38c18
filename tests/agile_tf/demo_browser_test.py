"""Tests of the page with the trained agents, in a browser."""

import pathlib

from absl.testing import parameterized
import pytest

from tests.agile_tf import browser

_PAGE = pathlib.Path(__file__).parent.parent.parent / 'docs/demo/index.html'
# A red circle in the top left, a blue square in the bottom right, and the agent
# in the middle. The circle belongs into cell 19.
_START = '1000000000000000000000006'
_GOAL = '0000000000000000000100006'
_LINK = ('#agent=trained&say=NorthFrom(Color(red,Shape(circle,SCENE)),'
         f'Color(blue,SCENE))&board={_START}&at=12')


def _cell(number):
  """Returns the selector of a cell of the board, from 0 to 24."""
  row, column = divmod(number, 5)
  return f'#board > :nth-child({row + 1}) > :nth-child({column + 1})'


@pytest.mark.skipif(not browser.PATH, reason='There is no Chromium.')
class DemoBrowserTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.browser = browser.Browser()
    cls.addClassCleanup(cls.browser.close)

  def setUp(self):
    super().setUp()
    self.browser.problems.clear()

  def tearDown(self):
    self.assertEqual(self.browser.problems, [])
    super().tearDown()

  def _open(self, link=_LINK, width=1400, height=1250, **how):
    self.browser.open(f'{_PAGE.as_uri()}{link}', width, height, **how)
    self.browser.wait('answer')

  def _text(self, selector):
    return self.browser.evaluate(
        f'document.querySelector("{selector}").textContent')

  def _state(self):
    """Waits; returns blocks, the agent's cell and whether it carries."""
    self.browser.wait('answer')
    return tuple(self.browser.evaluate(
        '[now().state.blocks.join(""), now().state.agent, '
        'now().state.carrying]'))

  def _expect(self, blocks, agent=12, carrying=False):
    """Waits until the page is in a state and has its answer."""
    self.browser.wait(
        f'now().state.blocks.join("") === "{blocks}" && '
        f'now().state.agent === {agent} && '
        f'now().state.carrying === {str(carrying).lower()} && answer')

  @parameterized.product(width=(360, 800, 1400), dark=(False, True))
  def test_shows_the_board_of_a_link(self, width, dark):
    self._open(width=width, touch=width < 400, dark=dark)
    self.assertEqual(self._state(), (_START, 12, False))
    self.assertEqual(self._text('#truth'), 'not reached')
    self.assertEqual(self._text('#decision'), 'rejects')
    self.assertEqual(
        self._text('#grammar code'),
        "NorthFrom(Color('red', Shape('circle', SCENE)), Color('blue', SCENE))")
    # Nothing is wider than the window.
    self.assertLessEqual(self.browser.evaluate(
        'document.documentElement.scrollWidth'), width)

  @parameterized.parameters(False, True)
  def test_blocks_are_dragged(self, touch):
    self._open(width=360 if touch else 1400, height=1250, touch=touch)
    self.browser.evaluate(
        'document.getElementById("board").scrollIntoView({block: "center"})')
    self.browser.drag(*map(self.browser.center, (_cell(0), _cell(19))), touch)
    self._expect(_GOAL)
    self.assertEqual(self._text('#truth'), 'reached')
    self.assertEqual(self._text('#decision'), 'accepts')
    self.assertEqual(self._text('#comparison'), 'D is right.')
    # The agent, too, and what is dragged off the board is gone.
    self.browser.drag(*map(self.browser.center, (_cell(12), _cell(3))), touch)
    self._expect(_GOAL, 3)
    self.browser.drag(self.browser.center(_cell(24)), (5, 300), touch)
    self._expect(_GOAL[:-1] + '0', 3)

  def test_clicks_do_what_the_tool_says(self):
    self._open()
    self.browser.click(_cell(0))
    self.browser.click(_cell(19))
    self._expect(_GOAL)
    self.browser.click('#tools label:has([value="8"])')
    self.browser.click(_cell(1))
    self._expect('08' + _GOAL[2:])
    self.browser.click('#tools label:has([value="0"])')
    self.browser.click(_cell(1))
    self._expect(_GOAL)
    self.browser.click('#tools label:has([value="agent"])')
    self.browser.click(_cell(19))
    self._expect(_GOAL, 19)
    self.browser.click(_cell(19))
    self._expect(_GOAL, 19, True)
    for _ in range(6):
      self.browser.click('#undo')
    self._expect(_START)

  def test_everything_can_be_done_with_keys(self):
    self._open()
    self.browser.press('d', 'd', 's', 's', 'e', 'w')
    self._expect(_START[:19] + '600000', 19, True)
    self.browser.press('u')
    self._expect(_START, 24, True)
    self.browser.press('Escape', 'e')
    self.browser.evaluate(f'document.querySelector("{_cell(12)}").focus()')
    self.browser.press(
        *['ArrowUp'] * 2, *['ArrowLeft'] * 3, 'Enter', *['ArrowDown'] * 3,
        *['ArrowRight'] * 4, 'Enter')
    self._expect(_GOAL, 24)
    self.browser.press('ArrowUp', '0', '7', 'Delete')
    self._expect('0' * 19 + '100006', 14)

  def test_menus_and_typing_change_the_instruction(self):
    self._open()
    self.browser.evaluate(
        '(() => { const menu = document.querySelector("[aria-label=Where]"); '
        'menu.value = 1; menu.dispatchEvent(new Event("change")); })()')
    self.assertStartsWith(self._text('#grammar code'), 'SouthFrom(Color')
    self.assertEqual(self._state(), (_START, 12, False))
    for text, expected in (
        ('go to the blue square',
         "SameLocation(AGENT, Color('blue', Shape('rect', SCENE)))"),
        ('Line(AGENT, Color(red, SCENE))', "Line(AGENT, Color('red', SCENE))"),
        ('go to a red block', "SameLocation(AGENT, Color('red', SCENE))")):
      self.browser.evaluate('typed.focus()')
      self.browser.write(text)
      self.browser.press('Enter')
      self.assertEqual(self._text('#grammar code'), expected)
      self.assertEqual(self._text('#problem'), '')
    self.browser.write('fly to the moon')
    self.browser.press('Enter')
    self.assertIn('“fly”', self._text('#problem'))

  def test_the_agent_acts_step_by_step_or_on_its_own(self):
    self._open()
    self.browser.click('#step')
    self.browser.wait('past.length === 2 && answer')
    self.browser.click('#run')
    self.browser.wait('past.length > 5')
    self.browser.click('#run')
    length = self.browser.evaluate('past.length')
    self.browser.wait('answer')
    self.assertEqual(self.browser.evaluate('[past.length, running]'),
                     [length, 0])
    # The bars are the probabilities of the answer.
    total = self.browser.evaluate('answer.actions.reduce((a, b) => a + b)')
    self.assertAlmostEqual(total, 1)

  def test_d_accepts_what_exceeds_the_runs_threshold(self):
    self._open()
    for threshold, decision in (('answer.probability + .001', 'rejects'),
                                ('answer.probability - .001', 'accepts'),
                                ('.9', None)):
      self.browser.evaluate(
          f'AGENTS[agent].threshold = {threshold}; showAgent(); showAnswer()')
      if decision:
        self.assertEqual(self._text('#decision'), decision)
    self.assertEqual(self._text('#gauge .limit'), '90 %')
    line = self.browser.evaluate(
        'document.querySelector("#history .limit").getAttribute("d")')
    self.assertEqual(line, 'M0 10 H300')

  def test_finds_a_board_that_d_gets_wrong(self):
    self._open(_LINK.replace('blue', 'red'))
    self.browser.click('#mistake')
    self.browser.wait('!searching && answer')
    # There may be none among those that it tries.
    if self._text('#search').startswith('Found'):
      self.assertEqual(self.browser.evaluate(
          'document.getElementById("comparison").className'), 'wrong')
    else:
      self.assertStartsWith(self._text('#search'), 'None in 2000 boards')

  @parameterized.parameters(
      ('#agent=nobody&say=x&board=1&at=1', 'not here'),
      ('#agent=trained&say=Fly(AGENT,SCENE)&board=' + _START + '&at=1',
       '“Fly” came where'),
      ('#agent=trained&say=go+to+red&board=1&at=1', 'no whole board'))
  def test_links_that_hold_no_board_are_named(self, link, message):
    self._open(link)
    self.assertIn(message, self._text('#problem'))
