"""Draws how AGILE works, as docs/method.png.

python docs/draw_method.py
"""

import pathlib

from matplotlib import axes
from matplotlib import figure
from matplotlib import patches
from matplotlib import style

_BLUE, _ORANGE, _GREY = '#0072B2', '#D55E00', '#555555'
_FOLDER = pathlib.Path(__file__).parent

# By name: the centre, the width, the colour, and the lines of text.
_BOXES = {
    'goals': (1.35, 3.55, 2.5, _ORANGE, 'goal examples', (
        'an expert gives pairs of', 'an instruction c and a',
        'state s that satisfies it')),
    'model': (5.2, 3.55, 2.5, _BLUE, 'reward model D', (
        'D(c, s): the probability', 'that s satisfies c')),
    'policy': (9.2, 3.55, 2.5, _BLUE, 'policy', (
        'acts on the image and c,', 'learns by A3C to be', 'rewarded')),
    'world': (9.2, 0.8, 2.5, _GREY, 'world', (
        'answers an action', 'with the next state')),
    'buffer': (5.2, 0.8, 2.5, _GREY, 'replay buffer B', (
        'the last 100,000', 'pairs (c, s) of the', 'policy')),
}
_HEIGHT = 1.35


def _arrow(ax: axes.Axes, start: tuple[float, float],
           end: tuple[float, float], text: str,
           at: tuple[float, float], align: str = 'center') -> None:
  ax.annotate('', end, start, arrowprops={
      'arrowstyle': '-|>', 'color': '#222222', 'linewidth': 1.3,
      'shrinkA': 0, 'shrinkB': 0})
  ax.text(*at, text, ha=align, va='center', fontsize=8, color='#222222')


def draw() -> figure.Figure:
  """Returns the drawing."""
  with style.context('default'):
    drawing = figure.Figure((8.4, 3.7), dpi=150)
    ax = drawing.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, 10.6)
    ax.set_ylim(0, 4.67)
    ax.axis('off')
    for x, y, width, color, name, texts in _BOXES.values():
      ax.add_patch(patches.FancyBboxPatch(
          (x - width / 2, y - _HEIGHT / 2), width, _HEIGHT,
          boxstyle='round,pad=0,rounding_size=0.12', linewidth=1.4,
          edgecolor=color, facecolor='white'))
      ax.text(x, y + 0.42, name, ha='center', va='center', fontsize=10,
              fontweight='bold', color=color)
      ax.text(x, y - 0.17, '\n'.join(texts), ha='center', va='center',
              fontsize=8)
    _arrow(ax, (2.6, 3.55), (3.95, 3.55), 'positives\ntrain D', (3.27, 3.83))
    _arrow(ax, (6.45, 3.55), (7.95, 3.55), 'reward: 1 if\nD(c, s) > ½,\nelse 0',
           (7.2, 3.98))
    _arrow(ax, (9.6, 2.87), (9.6, 1.48), 'action', (9.72, 2.18), 'left')
    _arrow(ax, (8.8, 1.48), (8.8, 2.87), 'state s,\ninstruction c',
           (8.68, 2.18), 'right')
    _arrow(ax, (7.95, 0.8), (6.45, 0.8), 'each (c, s)', (7.2, 0.97))
    _arrow(ax, (5.2, 1.48), (5.2, 2.87),
           'negatives train D: the share\nrho that D rates lowest, '
           'since\nsome states are goals', (5.06, 2.18), 'right')
  return drawing


def main() -> None:
  """Writes the picture."""
  draw().savefig(_FOLDER / 'method.png')


if __name__ == '__main__':
  main()
