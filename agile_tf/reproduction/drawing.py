"""Draws the lines of a figure: panels of curves, bars, or rows of dots.

Ours are blue and the paper's are orange in every figure. A sentence stands on
top; lines have their names at their ends, so there is no legend.
"""

from collections.abc import Mapping, Sequence
import contextlib
import textwrap
from typing import Any, NamedTuple

try:
  from matplotlib import axes
except ValueError as error:  # MPLBACKEND names a backend that there is not.
  raise SystemExit(
      f'Error: Matplotlib cannot be imported: {error}. Unset MPLBACKEND, or '
      'name one of these.') from error
from matplotlib import figure
from matplotlib import font_manager
from matplotlib import style
import numpy as np

from agile_tf.reproduction import results
from gridlu import fonts

_OURS, _LIGHT, _PAPER, _GREY = '#0072B2', '#8FC1E3', '#D55E00', '#CFCFCF'


class _Axes(NamedTuple):
  """How the curves of a column are drawn."""
  y_label: str
  x_label: str = ''  # Policy steps unless named.
  is_logarithmic: bool = False
  # If true, the y axis may begin just below most points instead of at 0.
  begins_high: bool = False


class _Name(NamedTuple):
  """What is written at the end of a line."""
  x: float | None  # None for a height to compare with.
  y: float
  text: str
  color: str


BEST = 'best_success_rate'
# These columns are drawn as curves, and others as bars or rows of dots.
CURVES = {
    'success_rate': _Axes('success rate'),
    'reward_model_accuracy': _Axes(
        "reward model's accuracy", begins_high=True),
    'false_positives': _Axes('false positives'),
    'false_negatives': _Axes('false negatives'),
    BEST: _Axes('best success rate', 'goal examples', True),
    'exchanged_accepted': _Axes('accepted by D'),
    'goals_accepted': _Axes(
        'accepted by D', 'other blocks on the board', begins_high=True),
}

_MOST_BARS = 4  # More are rows of dots.
_WIDTH = 7.0  # A figure with several panels has so many inches.
_FONT_SIZE = 8
# These settings differ from Matplotlib's own defaults, which hold otherwise,
# whatever the user's matplotlibrc says.
_LOOK: Any = {
    'text.parse_math': False,  # A name such as $x$ is drawn as it is.
    'font.size': _FONT_SIZE, 'axes.linewidth': 0.6,
    'axes.titlesize': _FONT_SIZE, 'axes.titlelocation': 'left',
    'axes.spines.top': False, 'axes.spines.right': False,
    'axes.grid': True, 'grid.alpha': 0.3, 'grid.linewidth': 0.4}


def own_style(font: str = '') -> contextlib.AbstractContextManager[None]:
  """Lets Matplotlib draw with its defaults and our look in a block.

  Letters that its font lacks are of the `font` that `fonts.choose` chose.
  """
  look = _LOOK
  if font:
    font_manager.fontManager.addfont(font)
    look = _LOOK | {'font.family': [
        'DejaVu Sans', font_manager.get_font(font).family_name]}
  return style.context(['default', look])


def draw(lines: Sequence[results.Line], title: str = '') -> figure.Figure:
  """Draws a figure.

  Curves have a panel for each agent and column, with the other agents of the
  column in grey. A paper's line of one point is a height to compare with.

  Args:
    lines: The lines; all of them have columns of `CURVES`, or none has.
    title: The sentence on top; it says what there is to see.
  """
  lines = [line for line in lines if len(line.points)]
  agents = list(dict.fromkeys(line.agent for line in lines))
  font, texts = fonts.choose([*agents, title])
  shown_as = dict(zip(agents, texts, strict=False))  # The title comes last.
  lines = [line._replace(agent=shown_as[line.agent]) for line in lines]
  with own_style(font):
    drawing = figure.Figure(layout='constrained', dpi=200)
    if lines[0].column in CURVES:
      width = _draw_curves(drawing, lines)
    else:
      width = _draw_rates(drawing, lines)
    if title:
      drawing.suptitle(
          textwrap.fill(
              texts[-1], int(13 * width), break_on_hyphens=False),
          x=0.01, ha='left', fontsize=_FONT_SIZE + 1, fontweight='bold')
  return drawing


def _draw_curves(drawing: figure.Figure, lines: Sequence[results.Line]
                ) -> float:
  """Draws a panel for each column and agent; returns the width in inches.

  A column is one of metrics.csv. The panels of a column are a group, with one
  for each agent, and a group begins a new row of the figure. If there is only
  one agent, the panels of all columns are one group.
  """
  columns = list(dict.fromkeys(line.column for line in lines))
  agents = list(dict.fromkeys(line.agent for line in lines))
  panels = [(agent, column) for column in columns for agent in agents]
  group_size = len(agents) if len(agents) > 1 else len(columns)
  per_row = {4: 2, 8: 4}.get(group_size, min(group_size, 3))
  group_rows = -(-group_size // per_row)
  rows = group_rows * (len(panels) // group_size)
  width, height = (_WIDTH, 1.75) if per_row > 1 else (4.6, 2.4)
  drawing.set_size_inches(width, 0.55 + height * rows)
  grid = drawing.subplots(rows, per_row, squeeze=False)
  for ax in grid.flat:
    ax.set_visible(False)
  for i, (agent, column) in enumerate(panels):
    of_column = [line for line in lines if line.column == column]
    own = [line for line in of_column if line.agent == agent]
    if own:
      group, place = divmod(i, group_size)
      ax = grid[group_rows * group + place // per_row, place % per_row]
      ax.set_visible(True)
      _draw_panel(ax, agent, own, of_column, width / per_row, height)
      if place % per_row and len(agents) > 1:
        ax.set_ylabel('')
  drawing.supxlabel(
      textwrap.fill(_note(lines), int(18 * width)), x=0.01, ha='left',
      fontsize=_FONT_SIZE - 1.5, color='#555555')
  return width


def _note(lines: Sequence[results.Line]) -> str:
  """Returns what the kinds of lines mean that are not named at their ends."""
  shown = {line.source for line in lines}
  parts = []
  if results.AVERAGED in shown:
    parts.append("strong line: averaged over as many steps as the paper's")
    parts.append('thin line: ours, averaged over a hundredth of our run')
  if len({line.seed for line in lines if line.source == results.OURS}) > 1:
    parts.append('thin lines: single seeds')
  if results.EVALUATED in shown:
    parts.append('dots: evaluated, with 95 % interval')
  if any(line.source == results.PAPER and len(line.points) > 1
         and np.isfinite(line.points[:, 2]).any() for line in lines):
    parts.append("shaded: the paper's band")
  if len({line.agent for line in lines}) > 1 and not _have_few_points(lines):
    parts.append('grey: the other panels')
  return ';  '.join(parts)


def _have_few_points(lines: Sequence[results.Line]) -> bool:
  """Returns whether our lines join few points, which get markers."""
  return all(len(line.points) < 12 for line in lines
             if line.source in (results.OURS, results.AVERAGED))


def _mean(lines: Sequence[results.Line]) -> np.ndarray:
  """Returns the mean of lines at the steps that all of them reach, [N, 2].

  Lines that join few points have a mean where all of them have a point.
  """
  if _have_few_points(lines):
    x, y = results.stack(lines)
    complete = np.isfinite(y).all(axis=0)
    return np.stack([x[complete], y[:, complete].mean(axis=0)], 1)
  x = np.unique(np.concatenate([line.points[:, 0] for line in lines]))
  x = x[(x >= max(line.points[0, 0] for line in lines)) &
        (x <= min(line.points[-1, 0] for line in lines))]
  return np.stack([x, np.mean([
      np.interp(x, *line.points.T[:2]) for line in lines], axis=0)], 1)


def _draw_panel(ax: axes.Axes, agent: str, own: Sequence[results.Line],
                of_column: Sequence[results.Line], width: float, height: float
               ) -> None:
  """Draws the lines of an agent over those of the others.

  Args:
    ax: An empty panel.
    agent: The agent's name.
    own: The agent's lines.
    of_column: The lines of all agents in this column.
    width: The panel's width, in inches.
    height: The panel's height, in inches.
  """
  how = CURVES[own[0].column]
  by_source = _by_source(own)
  ours, averaged = by_source[results.OURS], by_source[results.AVERAGED]
  others: dict[str, list[results.Line]] = {}
  for line in of_column:
    if line.agent != agent and line.source == results.OURS:
      others.setdefault(line.agent, []).append(line)
  if not _have_few_points(of_column):
    for group in others.values():
      ax.plot(*_mean(group).T, color=_GREY, linewidth=0.8, zorder=1)
  names: list[_Name] = []
  for line in by_source[results.PAPER]:
    x, y, low, high = line.points.T
    if len(x) == 1:
      ax.axhline(y[0], color=_PAPER, linewidth=0.8, linestyle='--', zorder=2)
      names.append(_Name(None, y[0], 'the paper at its end', _PAPER))
      continue
    ax.plot(x, y, color=_PAPER, linewidth=1.3, zorder=2)
    if np.isfinite(low).any():
      ax.fill_between(x, low, high, color=_PAPER, alpha=0.18, linewidth=0)
    names.append(_Name(x[-1], y[-1], 'the paper', _PAPER))
  if averaged or len(ours) > 1:
    for line in ours:
      ax.plot(*line.points.T[:2], color=_LIGHT, linewidth=0.7, zorder=3)
  if shown := averaged or ours:
    have_few_points = _have_few_points(ours)
    ax.plot(*_mean(shown).T, color=_OURS, linewidth=1.5,
            marker='o' if have_few_points else '', markersize=2.5, zorder=4)
    end = max(line.points[-1, 0] for line in shown)
    rate = np.mean([line.points[-1, 1] for line in shown
                    if line.points[-1, 0] == end])
    name = 'ours'
    if averaged:
      name = f'ours, {100 * rate:.1f} %'
    elif have_few_points and not by_source[results.PAPER]:
      name = f'{100 * rate:.0f} %'
    names.append(_Name(end, rate, name, _OURS))
  if by_source[results.EVALUATED]:
    _draw_intervals(ax, np.concatenate(
        [line.points for line in by_source[results.EVALUATED]]))
  seeds = len({line.seed for line in ours})
  ax.set_title(textwrap.fill(
      f'{agent} ({seeds} seeds)' if seeds > 1 else agent, int(15 * width)))
  _set_range(ax, of_column, how)
  _write_names(ax, names, height)


def _set_range(ax: axes.Axes, of_column: Sequence[results.Line], how: _Axes
              ) -> None:
  """Sets the limits and the labels of both axes."""
  # A paper's line of one point is only a height to compare with.
  not_heights = [line for line in of_column
                 if line.source != results.PAPER or len(line.points) > 1]
  x_first = min(line.points[0, 0] for line in not_heights)
  x_end = max(line.points[-1, 0] for line in not_heights)
  bounds = np.concatenate([line.points[:, 1:].ravel() for line in of_column])
  low = 0.0
  if how.begins_high:
    rates = np.concatenate([line.points[:, 1] for line in of_column])
    least = (np.nanmin(bounds) if _have_few_points(of_column) else
             np.quantile(rates, 0.15))
    low = np.floor(20 * (least - 0.02)) / 20 if least > 0.6 else 0.0
    if low - 0.05 <= np.nanmin(rates) < low:
      low -= 0.05  # So little room shows the lowest points, too.
  high = min(1.02, max(0.01, 1.12 * np.nanmax(bounds)))
  if len(not_heights) < len(of_column):  # A height's name needs room.
    high += 0.12
  ax.set_ylim(low, high)
  ax.set_yticks([y for y in ax.get_yticks() if low <= y <= min(1, high)])
  ax.set_ylabel(how.y_label)
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  if how.is_logarithmic:
    ax.set_xscale('log', base=2)
    ax.set_xlim(x_first / 1.2, x_end * 6)
    ticks = 2. ** np.arange(np.ceil(np.log2(x_first)), np.log2(x_end) + .1, 4)
    ax.set_xticks(ticks, [f'{tick:,.0f}' for tick in ticks])
    ax.minorticks_off()
  else:
    left = 0.0  # Curves of runs begin near it.
    if x_end / 2 < x_first < x_end:
      left = 1.25 * x_first - 0.25 * x_end
    ax.set_xlim(left, x_end + 0.22 * (x_end - left))
    ax.set_xticks([x for x in ax.get_xticks() if left <= x <= 1.01 * x_end])
  if how.x_label:
    ax.set_xlabel(how.x_label)
    return
  unit, name = (1e6, 'millions of ') if x_end >= 1e6 else (1e3, 'thousand ')
  ax.xaxis.set_major_formatter(lambda x, _: f'{x / unit:g}')
  ax.set_xlabel(f'{name}policy steps')


def _write_names(ax: axes.Axes, names: Sequence[_Name], height: float) -> None:
  """Writes names beside the ends of lines, pushed apart where they meet."""
  low, high = ax.get_ylim()
  left, right = ax.get_xlim()
  # The height of a line of text in units of y. A point is 1/72 inch, and the
  # axes take about 0.72 of a panel's height.
  gap = (high - low) * 1.15 * _FONT_SIZE / 72 / (0.72 * height)
  heights = [name.y for name in names if name.x is None]
  placed: list[tuple[float, float]] = []
  for x, y, text, color in sorted(names, key=lambda name: name.y):
    if x is None:  # A height to compare with: its name stands on it.
      ax.text(left, y + gap / 2, text, color=color, va='center',
              fontsize=_FONT_SIZE - 1)
      continue
    for height_y in heights:
      if height_y - gap / 2 < y < height_y:
        y = height_y - gap / 2
    y = max(y, low + gap / 2)
    for other_x, other_y in placed:
      if abs(other_x - x) < 0.25 * (right - left):
        y = max(y, other_y + gap)
    placed.append((x, y))
    ax.annotate(text, (x, y), (3, 0), textcoords='offset points', color=color,
                va='center', fontsize=_FONT_SIZE - 0.5, annotation_clip=False)


def _by_source(lines: Sequence[results.Line]) -> dict[str, list[results.Line]]:
  """Returns the lines of each source, in their order."""
  found: dict[str, list[results.Line]] = {
      source: [] for source in (results.OURS, results.AVERAGED,
                                results.EVALUATED, results.PAPER)}
  for line in lines:
    found[line.source].append(line)
  return found


def _draw_intervals(ax: axes.Axes, points: np.ndarray, *, horizontal=False,
                    color: str = _OURS) -> None:
  """Draws a dot with its interval for each point, float64 [N, 4].

  With `horizontal`, the first number of a point says how far up it is, and its
  rate goes to the right.
  """
  x, y, low, high = points.T
  # A bound can differ from a rate of 0 or 1 by a rounding error.
  errors = np.maximum(0, [y - low, high - y])
  look: Any = {
      'color': color, 'marker': 'o', 'markersize': 3.5, 'linestyle': '',
      'markeredgecolor': 'white', 'markeredgewidth': 0.4, 'capsize': 1.5,
      'elinewidth': 0.8, 'clip_on': False, 'zorder': 5}
  if horizontal:
    ax.errorbar(y, x, xerr=errors, **look)
  else:
    ax.errorbar(x, y, errors, **look)


def _draw_rates(drawing: figure.Figure, lines: Sequence[results.Line]
               ) -> float:
  """Draws rates beside the paper's; returns the width in inches."""
  agents = list(dict.fromkeys(line.agent for line in lines))
  rates: dict[str, dict[str, np.ndarray]] = {}  # By agent and source.
  for agent in agents:
    by_source = _by_source([line for line in lines if line.agent == agent])
    rates[agent] = {
        source: np.concatenate([line.points for line in found])
        for source, found in by_source.items() if found}
  column = lines[0].column
  if len(agents) <= _MOST_BARS:
    drawing.set_size_inches(4.6, 2.7)
    _draw_bars(drawing.subplots(), rates, column)
    return 4.6
  drawing.set_size_inches(_WIDTH, 0.9 + 0.205 * len(agents))
  _draw_dots(drawing.subplots(), rates, column)
  return _WIDTH


def _draw_bars(ax: axes.Axes, rates: Mapping[str, Mapping[str, np.ndarray]],
               column: str) -> None:
  """Draws the mean of seeds with each seed's interval, beside the paper's."""
  named = set()
  for i, by_source in enumerate(rates.values()):
    for source, side, color, name in (
        (results.EVALUATED, -0.2, _OURS, 'ours'),
        (results.PAPER, 0.2, _PAPER, 'the paper')):
      if source not in by_source or np.isnan(by_source[source][:, 1]).all():
        continue
      points = by_source[source].copy()
      mean = points[:, 1].mean()
      ax.bar(i + side, mean, 0.36, color=color, alpha=0.75)
      if source == results.EVALUATED:
        points[:, 0] = i + side + np.linspace(
            -.1, .1, len(points) + 2)[1:-1]
        _draw_intervals(ax, points, color='black')
      top = np.nanmax(points[:, 1:])
      ax.text(i + side, top + 0.015, f'{100 * mean:.1f} %', ha='center',
              va='bottom', color=color, fontsize=_FONT_SIZE - 1)
      if name not in named:
        named.add(name)
        ax.text(i + side, 0.02, name, ha='center', va='bottom', rotation=90,
                color='white', fontweight='bold')
  ax.set_xticks(range(len(rates)), [textwrap.fill(each, 18) for each in rates])
  ax.grid(axis='x', visible=False)
  ax.set_ylim(0, 1.1)
  ax.set_yticks(np.linspace(0, 1, 6))
  ax.set_ylabel(column)
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')


def _draw_dots(ax: axes.Axes, rates: Mapping[str, Mapping[str, np.ndarray]],
               column: str) -> None:
  """Draws a row for each agent: each seed's interval, and the paper's rate.

  Without a rate of the paper's a line marks the first row's, to compare with.
  """
  has_paper = any(results.PAPER in by_source for by_source in rates.values())
  for i, by_source in enumerate(rates.values()):
    if results.PAPER in by_source:
      published = by_source[results.PAPER][:, 1]
      ax.plot(published, [i] * len(published), 'D', color=_PAPER,
              markersize=4.5, markerfacecolor='white', zorder=4)
    if results.EVALUATED in by_source:
      points = by_source[results.EVALUATED].copy()
      points[:, 0] = i + np.linspace(-.3, .3, len(points) + 2)[1:-1]
      _draw_intervals(ax, points, horizontal=True)
  if not has_paper:
    first = next(iter(rates.values()))[results.EVALUATED][:, 1].mean()
    ax.axvline(first, color=_OURS, linewidth=0.7, linestyle='--', zorder=1)
  else:
    ax.text(1, 1.01, 'filled blue: ours, a dot for each seed', color=_OURS,
            ha='right', va='bottom', transform=ax.transAxes)
    ax.text(0, 1.01, 'orange diamond: the paper', color=_PAPER, ha='left',
            va='bottom', transform=ax.transAxes)
  ax.set_yticks(range(len(rates)), list(rates))
  ax.set_ylim(len(rates) - 0.4, -0.6)
  highest = max(np.nanmax(points[:, 1:]) for by_source in rates.values()
                for points in by_source.values())
  ax.set_xlim(0, min(1.0, 1.1 * highest) if highest < 0.95 else 1.01)
  ax.set_xlabel(column)
  ax.xaxis.set_major_formatter(lambda x, _: f'{100 * x:g} %')
