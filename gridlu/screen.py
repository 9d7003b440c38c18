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
except ImportError:  # Windows has none.
  curses = None  # type: ignore[assignment]

import numpy as np

from gridlu import program
from gridlu import world

WIDTH = 76  # The most columns of a screen. A common terminal has 80 by 24.
PANEL_WIDTH = 36  # How many columns are to the right of the board.
_CELL_WIDTH, _CELL_HEIGHT = 7, 3
BOARD_WIDTH = world.SIZE * _CELL_WIDTH + 2
BOARD_HEIGHT = world.SIZE * _CELL_HEIGHT + 2
_INSTRUCTION_LINES = 2


class Style(NamedTuple):
  """The look of a text; None is the terminal's own colour.

  Others are names of `_COLORS`, or hexadecimal amounts of red, green and blue,
  such as '#ff8000'.
  """
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
_WALL = Style('black', 'white')
# A cell looks like this by its agent, which is '' for none. The parts are its
# style, its upper line, the characters left and right of the block's three, and
# its lower line.
_FRAMES = {
    '': (Style('white', 'black'), '       ', '  ', '  ', '       '),
    'free': (Style('white', 'black'), '.-----.', '| ', ' |', "'-----'"),
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
    shape, color = world.shape_and_color(code)
    before, after = _SIGNS[shape]
    sign = Segment(f'{before}{color[0]}{after}', _BLOCKS[color])
  return [(Segment(top, style),),
          (Segment(left, style), sign, Segment(right, style)),
          (Segment(bottom, style),)]


def board(state: world.State) -> list[Line]:
  """Returns 17 lines of 37 characters: the wall and 5x5 cells of 7x3."""
  wall = (Segment('#' * BOARD_WIDTH, _WALL),)
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


_RAMP = ' .:-=+*#%@'  # From dark to bright, where there are no colours.


def picture(image: np.ndarray, width: int) -> list[Line]:
  """Returns a picture, uint8 [H, W, 3], of about `width` characters.

  A character stands for a rectangle that is twice as high as wide. It has one
  colour, the average.
  """
  across = -(-image.shape[1] // width)  # Pixels from one character to the next.
  lines = []
  for y in range(0, len(image), 2 * across):
    row = []
    for x in range(0, image.shape[1], across):
      color = image[y:y + 2 * across, x:x + across].mean(axis=(0, 1))
      red, green, blue = color.round().astype(int).tolist()
      name = f'#{red:02x}{green:02x}{blue:02x}'
      brightness = int(color.mean() * len(_RAMP) / 256)
      row.append(Segment(_RAMP[brightness], Style(name, name)))
    lines.append(tuple(row))
  return lines


def agent_text(state: world.State) -> str:
  """Describes the agent of a state: 'free' or 'carries a red circle'."""
  if not state.carrying:
    return 'free'
  shape, color = world.shape_and_color(int(state.blocks[tuple(state.agent)]))
  return f'carries a {color} {shape}'


def compose(instruction: str, shown: Sequence[Line], panel: Sequence[Line],
            keys: Sequence[str]) -> list[Line]:
  """Lays a screen out: what is shown, such as a `board`, beside a panel.

  The panel has at most 17 lines of at most `PANEL_WIDTH` characters, and `keys`
  are lines at the bottom. With a board and at most two lines of keys, the
  screen fits into 80 columns and 24 rows.
  """
  lines = [line(text, bold=True) for text in textwrap.wrap(instruction, WIDTH)]
  # One more line stays empty, below the instruction.
  lines += [line('')] * (_INSTRUCTION_LINES + 1 - len(lines))
  width, height = size(shown)
  # The shorter side gets empty lines.
  rows = [*shown, *[line(' ' * width)] * (len(panel) - height)]
  notes = [*panel, *[line('')] * (height - len(panel))]
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
  """Anything that `show` can show."""

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


_LONGEST_WAIT = .25  # How many seconds curses waits for a key.

# The colours' numbers on every terminal that has colours.
_COLORS = {'black': 0, 'red': 1, 'green': 2, 'blue': 4, 'white': 7}


def _number(color: str) -> int:
  """Returns a colour's number on this terminal."""
  if not color.startswith('#'):
    return _COLORS[color]
  rgb = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
  if curses.COLORS >= 256:  # With a cube of 6 x 6 x 6 colours.
    red, green, blue = (round(value / 51) for value in rgb)
    return 16 + 36 * red + 6 * green + blue
  # In the number of a colour (see `_COLORS`) each bit is one of the three.
  return sum(2**i for i, value in enumerate(rgb) if value > 127)


class _Painter:
  """Paints lines on a window of curses."""

  def __init__(self, window: Any):
    self._window = window
    self._attributes: dict[Style, int] = {}
    self._pairs: dict[tuple[int, int], int] = {}
    with contextlib.suppress(curses.error):  # It may have no colours.
      curses.use_default_colors()

  def _attribute(self, style: Style) -> int:
    if style not in self._attributes:
      attribute = curses.A_BOLD if style.bold else curses.A_NORMAL
      if style.foreground and style.background and curses.has_colors():
        # A terminal can have few pairs of colours, and a picture many styles.
        pair = _number(style.foreground), _number(style.background)
        if pair not in self._pairs:
          self._pairs[pair] = 1 + len(self._pairs)
          curses.init_pair(self._pairs[pair], *pair)
        attribute |= curses.color_pair(self._pairs[pair])
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
  # If the terminal's size changes just before curses waits for a key, curses
  # notices it only when it waits the next time. So each wait is short.
  end = None if seconds is None else time.monotonic() + seconds
  while True:
    left = _LONGEST_WAIT if end is None else end - time.monotonic()
    window.timeout(max(0, round(1000 * min(left, _LONGEST_WAIT))))
    try:
      return key_name(window.getkey())
    except curses.error:  # Nobody has pressed a key.
      if not os.isatty(0):
        raise program.UserError('the terminal has been closed.') from None
    if end is not None and time.monotonic() >= end:
      return None


def _loop(window: Any, view: View) -> None:
  """Shows a view until a key quits it."""
  curses.set_escdelay(25)
  with contextlib.suppress(curses.error):  # Some cannot hide their cursor.
    curses.curs_set(0)
  painter = _Painter(window)
  delay: float | None = None
  due = 0.
  while True:
    fits = painter.paint(view.lines())
    if view.delay != delay:
      delay = view.delay
      due = time.monotonic() + (delay or 0)
    # While the terminal is too small to show the view, it does not tick.
    ticks = fits and delay is not None
    key = _read_key(window, due - time.monotonic() if ticks else None)
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
  signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
             signal.SIGUSR2)
  handlers = [signal.signal(number, _stop) for number in signals]
  try:
    curses.wrapper(_loop, view)
  except KeyboardInterrupt:
    pass  # Ctrl-C quits like a key.
  finally:
    for number, handler in zip(signals, handlers):
      signal.signal(number, handler)
