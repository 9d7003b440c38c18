r"""Shows boards on a terminal, for `gridlu.play` and `agile_tf.watch`.

A program implements `View`. Only `show` needs a terminal and curses.

The board can be read without colours: brackets show the shape, a letter shows
the colour, and a frame is the agent.

  (r) red circle   [g] green rect   /b\ blue triangle

  .-----.  free    *******  carrying
  | (r) |  agent   * (r) *  agent
  '-----'          *******

All text is ASCII, for any locale.
"""

from collections.abc import Sequence
import contextlib
import os
import signal
import sys
import textwrap
import time
from typing import Any, NamedTuple, Protocol

try:
  import curses
except ImportError:  # Windows.
  curses = None  # type: ignore[assignment]

import numpy as np

from gridlu import program
from gridlu import world

WIDTH = 76  # Most columns of a screen. A common terminal has 80 by 24.
PANEL_WIDTH = 36  # Columns to the right of the board.
_CELL_WIDTH, _CELL_HEIGHT = 7, 3
_BOARD_WIDTH = world.SIZE * _CELL_WIDTH + 2
_INSTRUCTION_LINES = 2


class Style(NamedTuple):
  """How a text looks: 'red' and so on; None for the terminal's default."""
  foreground: str | None = None
  background: str | None = None
  bold: bool = False


class Segment(NamedTuple):
  """A text in one style."""
  text: str
  style: Style = Style()


Line = tuple[Segment, ...]

_PLAIN = Style()
_BOLD = Style(bold=True)
_WALL = Style('dark', 'wall')
# How a cell looks by its agent ('' for none): its style, and what is above, to
# the left of, to the right of and below the block's three characters.
_FRAMES = {
    '': (Style('wall', 'black'), '       ', '  ', '  ', '       '),
    'free': (Style('white', 'dark'), '.-----.', '| ', ' |', "'-----'"),
    'carrying': (Style('black', 'white'), '*******', '* ', ' *', '*******'),
}
_BLOCKS = {'red': Style('white', 'red', True),
           'green': Style('black', 'green', True),
           'blue': Style('white', 'blue', True)}
_SIGNS = {
    'circle': ('(', ')'), 'rect': ('[', ']'), 'triangle': ('/', '\\')}


def line(text: str, bold: bool = False) -> Line:
  """Returns a line of one plain or bold text."""
  return (Segment(text, _BOLD if bold else _PLAIN),)


def plain(lines: Sequence[Line]) -> list[str]:
  """Returns the text of lines, without styles."""
  return [''.join(segment.text for segment in row) for row in lines]


def size(lines: Sequence[Line]) -> tuple[int, int]:
  """Returns the numbers of columns and rows of lines."""
  return max(map(len, plain(lines)), default=0), len(lines)


def _cell(code: int, agent: str) -> list[Line]:
  """Returns a cell's 3 lines of 7 characters."""
  style, top, left, right, bottom = _FRAMES[agent]
  sign = Segment('   ' if agent else ' . ', style)
  if code:
    shape, color = world.kind(code)
    sign = Segment(color[0].join(_SIGNS[shape]), _BLOCKS[color])
  return [(Segment(top, style),),
          (Segment(left, style), sign, Segment(right, style)),
          (Segment(bottom, style),)]


def board(state: world.State) -> list[Line]:
  """Returns 17 lines of 37 characters: the wall and 5x5 cells of 7x3."""
  wall = (Segment('#' * _BOARD_WIDTH, _WALL),)
  side = Segment('#', _WALL)
  lines: list[Line] = [wall]
  agents = np.full((world.SIZE, world.SIZE), '', object)
  agents[tuple(state.agent)] = 'carrying' if state.carrying else 'free'
  for codes, row in zip(state.blocks.tolist(), agents):
    cells = [_cell(code, agent) for code, agent in zip(codes, row)]
    for i in range(_CELL_HEIGHT):
      lines.append(
          (side, *(segment for cell in cells for segment in cell[i]), side))
  return lines + [wall]


def agent_text(state: world.State) -> str:
  """Describes the agent of a state: 'free' or 'carries a red circle'."""
  if not state.carrying:
    return 'free'
  shape, color = world.kind(int(state.blocks[tuple(state.agent)]))
  return f'carries a {color} {shape}'


def compose(instruction: str, state: world.State, panel: Sequence[Line],
            keys: Sequence[str]) -> list[Line]:
  """Lays a screen out.

  The panel, to the right of the board, has at most 17 lines of at most
  `PANEL_WIDTH` characters. With at most two lines of `keys`, at the bottom, all
  fit 80 columns and 24 rows.
  """
  lines = [line(text, bold=True) for text in textwrap.wrap(instruction, WIDTH)]
  lines += [line('')] * (_INSTRUCTION_LINES + 1 - len(lines))
  rows = board(state)
  notes = [*panel, *[line('')] * (len(rows) - len(panel))]
  for row, note in zip(rows, notes):
    # The width is constant: the size that the screen needs does not change.
    filling = ' ' * (PANEL_WIDTH - size([note])[0])
    lines.append(row + (Segment('   '), *note, Segment(filling)))
  return lines + [line('')] + [line(text) for text in keys]


def fit(lines: Sequence[Line], width: int, height: int
       ) -> tuple[list[Line], bool]:
  """Returns lines and whether they fit; if not, other lines that say so."""
  needed = size(lines)
  if needed[0] <= width and needed[1] <= height:
    return list(lines), True
  message = (f'This terminal is too small: it has {width} columns and {height} '
             f'rows, and {needed[0]} columns and {needed[1]} rows are needed. '
             'Make it larger, or press q to quit.')
  wrapped = textwrap.wrap(message, max(width, 1))
  return [line(text) for text in wrapped[:height]], False


def key_name(key: str) -> str:
  """Returns 'up' for curses' 'KEY_UP', 'space', or a character in lower case.

  'resize' says that the terminal's size has changed.
  """
  return 'space' if key == ' ' else key.removeprefix('KEY_').lower()


class View(Protocol):
  """What `show` can show."""

  @property
  def delay(self) -> float | None:
    """Seconds from one `tick` to the next; None for no ticks."""

  def lines(self) -> list[Line]:
    """Returns the screen."""

  def press(self, key: str) -> bool:
    """Acts on a key (see `key_name`); returns False to quit."""

  def tick(self) -> None:
    """Acts when `delay` seconds have passed."""


def check_terminal() -> None:
  """Raises a `UserError` if no terminal can show a screen."""
  if curses is None:
    raise program.UserError(
        'this Python has no curses module, which shows the screen. Run the '
        'program on Linux or macOS, or in the Windows Subsystem for Linux.')
  for number, name in enumerate(('input', 'output')):
    if not os.isatty(number):
      raise program.UserError(
          f'standard {name} is not a terminal. Run the program in a terminal, '
          'without a pipe or a redirection (in a container, with "docker run '
          '-it").')
  term = os.environ.get('TERM', '')
  try:
    curses.setupterm()
    can_move = curses.tigetstr('cup')
  except curses.error:
    can_move = None
  if not can_move:
    raise program.UserError(
        f'TERM={term!r} is no terminal whose cursor can be moved. Set it to '
        "your terminal's type, such as TERM=xterm-256color, or TERM=vt100 for "
        'one without colours.')


_LONGEST_WAIT = .25  # Seconds that curses waits for a key.

# The colours' numbers on terminals with at least this many colours. With 8
# there are no greys: the free agent's cell is black, with its frame.
_PALETTES = (
    (256, {'black': 16, 'red': 196, 'green': 46, 'blue': 21, 'dark': 238,
           'wall': 252, 'white': 231}),
    (8, {'black': 0, 'red': 1, 'green': 2, 'blue': 4, 'dark': 0, 'wall': 7,
         'white': 7}),
)


class _Painter:
  """Paints lines on a window of curses."""

  def __init__(self, window: Any):
    self._window = window
    self._attributes: dict[Style, int] = {}
    self._palette: dict[str, int] = {}
    with contextlib.suppress(curses.error):  # If it has no colours.
      curses.use_default_colors()
    # See https://no-color.org.
    if not os.environ.get('NO_COLOR') and curses.has_colors():
      self._palette = next(
          (palette for count, palette in _PALETTES if curses.COLORS >= count),
          {})

  def _attribute(self, style: Style) -> int:
    if style not in self._attributes:
      attribute = curses.A_BOLD if style.bold else curses.A_NORMAL
      if self._palette and style.foreground and style.background:
        pair = 1 + len(self._attributes)
        curses.init_pair(pair, self._palette[style.foreground],
                         self._palette[style.background])
        attribute |= curses.color_pair(pair)
      self._attributes[style] = attribute
    return self._attributes[style]

  def paint(self, lines: Sequence[Line]) -> bool:
    """Shows lines and returns whether the terminal is large enough for them."""
    height, width = self._window.getmaxyx()
    lines, fits = fit(lines, width, height)
    self._window.erase()
    for y, row in enumerate(lines):
      x = 0
      for text, style in row:
        text = text.encode('ascii', 'replace').decode()
        # An error means that the text was written, but after the last cell
        # there is no place for the cursor. Or the terminal has just become
        # smaller, and a resize follows.
        with contextlib.suppress(curses.error):
          self._window.addstr(y, x, text, self._attribute(style))
        x += len(text)
    self._window.refresh()
    return fits


def _read_key(window: Any, seconds: float | None) -> str | None:
  """Waits for a key and returns its name, or None if the time is over."""
  # Curses misses a signal of a new size that comes just before it waits, until
  # it waits again. So it waits many times.
  end = None if seconds is None else time.monotonic() + seconds
  while True:
    left = _LONGEST_WAIT if end is None else end - time.monotonic()
    window.timeout(max(0, round(1000 * min(left, _LONGEST_WAIT))))
    try:
      return key_name(window.getkey())
    except curses.error:  # No key.
      if not os.isatty(0):
        raise program.UserError('the terminal has been closed.') from None
    if end is not None and time.monotonic() >= end:
      return None


def _loop(window: Any, view: View) -> None:
  """Shows a view until a key quits it."""
  curses.set_escdelay(25)
  with contextlib.suppress(curses.error):  # If it cannot hide its cursor.
    curses.curs_set(0)
  painter = _Painter(window)
  delay: float | None = None
  due = 0.
  while True:
    fits = painter.paint(view.lines())
    if view.delay != delay:
      delay = view.delay
      due = time.monotonic() + (delay or 0)
    waits = delay is None or not fits  # No ticks while nothing is visible.
    key = _read_key(window, None if waits else due - time.monotonic())
    if key is None:
      view.tick()
      due = time.monotonic() + (delay or 0)
    elif key == 'resize':
      continue
    elif not fits:
      if key == 'q':
        return
    elif not view.press(key):
      return


def _stop(number: int, frame: Any) -> None:
  """Ends the program at a signal by an exception, which cleans up."""
  del frame
  sys.exit(128 + number)


def show(view: View) -> None:
  """Shows a view until a key or a signal quits it; see `check_terminal`."""
  signals = (signal.SIGTERM, signal.SIGHUP)
  handlers = [signal.signal(number, _stop) for number in signals]
  try:
    curses.wrapper(_loop, view)
  except KeyboardInterrupt:
    pass  # Ctrl-C quits like a key.
  finally:
    for number, handler in zip(signals, handlers):
      signal.signal(number, handler)
