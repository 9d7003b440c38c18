"""Draws the paper's figures from runs, over the published curves.

  python -m agile_tf.figures runs/*_seed* --out=figures
  python -m agile_tf.figures figures/*.csv --out=figures

A run is a directory named NAME_seedN or NAME. If NAME is a variant of
`agile_tf.reproduction.experiments`, as agile_tf.sweep names its runs, the run
is in the figures of its experiments; otherwise it is in a figure "runs". Each
figure is written as PNG and SVG, and all that it shows as CSV, from which it
can be drawn again. table.md has the numbers of all figures.

The paper's curves are moving averages over 16 to 30 million steps. Our runs are
also averaged in this way where they are long enough. The paper's curves are
drawn up to twice our steps, and only if our runs have its instructions and get
to its first averages.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import os
import re
import textwrap
from typing import Any

from absl import flags
import matplotlib
from matplotlib import axes
from matplotlib import figure
import numpy as np

from agile_tf.recipe import settings  # noqa: F401  For `differences`.
from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from agile_tf.reproduction import paper
from agile_tf.reproduction import results
from gridlu import program

_Runs = Mapping[str, Sequence[results.Run]]  # By variant.

_SUCCESS, _ACCURACY = 'success_rate', 'reward_model_accuracy'
_BEST = 'best_success_rate'
# The axes of curves. Other columns are drawn as bars.
_LABELS = {
    _SUCCESS: 'success rate', _ACCURACY: "reward model's accuracy",
    'false_positives': 'false positives', 'false_negatives': 'false negatives',
    _BEST: 'best success rate over training'}

# Each figure of curves: its experiment and its columns.
_CURVES = {
    'figure4_left': ('figure4_left', (_SUCCESS,)),
    'figure4_middle': ('figure4_middle', (_SUCCESS,)),
    'figure4_right': ('figure4_right', (_ACCURACY,)),
    'figure8': ('figure4_right', ('false_positives', 'false_negatives')),
    'arrangements': ('arrangements', (_SUCCESS,)),
    'remarks': ('remarks', (_SUCCESS, _ACCURACY)),
    **{name: (name, (_SUCCESS, _ACCURACY))
       for name in ('evening', 'arrangements_evening', 'crowded')},
}

# Each bar chart: its variant, the label of its axis, and its bars, by label:
# the evaluation, the group of its episodes, and the paper's rate.
_BARS: dict[str, tuple[str, str, dict[str, tuple[str, str, float]]]] = {
    'figure5': ('immovable', 'success rate', {
        label: (name, 'all', paper.IMMOVABLE[name])
        for name, label in (('before', 'before'), ('changed', 'immovable'),
                            ('tuned', 'fine-tuned'))}),
    **{f'{name}_by_blocks': (
        name, 'success rate (paper: best of 10, by people)', {
            group: ('evaluation', group, rate)
            for group, rate in paper.ARRANGEMENTS.items()})
       for name in ('arrangements', 'arrangements_evening')},
    **{f'held_out_{way}': (f'held_out_{way}', 'success rate', {
        'trained on': ('seen', 'all', np.nan),
        'held out': ('held_out', 'all', np.nan)})
       for way in ('strings', 'meanings')},
}

# Okabe and Ito's colours, three of Tol's, a brown and a grey, which the
# colour-blind can tell apart, each with a marker, for printers.
_SKY, _VERMILION = '#56B4E9', '#D55E00'
_LOOKS = {
    '#CC79A7': 'p', '#8C510A': 'X', '#332288': 'h', '#999933': '<',
    '#882255': '>', '#999999': 'P', _SKY: 'v', _VERMILION: '^', '#0072B2': 'D',
    '#009E73': 'o', '#E69F00': 's', '#000000': '*'}
# Agents that have a colour in all figures.
_COLORS = {'A3C': '#000000', 'A3C-RP': '#E69F00', 'rho 25 %': '#0072B2',
           'rho 50 %': '#009E73', 'rho 75 %': _SKY, 'rho 100 %': _VERMILION}
# What the legend says of each source, and how it is drawn.
_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    results.OURS: ('ours', {'linestyle': '-'}),
    results.AVERAGED: ("ours, averaged as the paper's", {'linestyle': ':'}),
    results.PAPER: ("the paper's mean and band", {'linestyle': '--'}),
    results.EVALUATED: ('evaluated, 95 % interval', {
        'linestyle': '', 'marker': 'o', 'markersize': 3.5,
        'markeredgecolor': 'black', 'markeredgewidth': 0.4})}
_FONT: Any = {  # A name such as $x$ is drawn as it is.
    'text.parse_math': False, 'font.size': 7, 'axes.linewidth': 0.6,
    'legend.handlelength': 2.4,
    'legend.labelspacing': 0.25, 'legend.columnspacing': 1}
_WIDTH, _HEIGHT = 3.3, 2.1  # Inches: a paper's column, and a panel.


def lines_of(runs: _Runs) -> dict[str, list[results.Line]]:
  """Returns what each figure shows of the runs.

  A figure is only made if it shows a curve that the ones before it do not.
  """
  found: dict[str, list[results.Line]] = {}
  shown: set[tuple[str, str]] = set()
  own = [name for name in runs if name not in experiments.VARIANTS]
  for figure_name, (experiment, columns) in _CURVES.items():
    names = dict.fromkeys(
        name for other in (False, True)
        for name in experiments.EXPERIMENTS[experiment].names(other)
        if name in runs)
    pairs = {(name, column) for name in names for column in columns}
    if pairs - shown:
      found[figure_name] = [
          line for column in columns for line in _curves(runs, names, column)]
    shown |= pairs
  found['runs'] = [line for column in (_SUCCESS, _ACCURACY)
                   for line in _curves(runs, own, column)]
  found['figure7'] = list(_data_efficiency(runs))
  for figure_name in _BARS:
    found[figure_name] = list(_bars(runs, figure_name))
  return {name: lines for name, lines in found.items()
          if any(line.source != results.PAPER and len(line.points)
                 for line in lines)}


def _label(label: str, run: results.Run) -> str:
  """Returns an agent's name: AGILE-RP if AGILE learns to predict its reward.

  The paper's curve has the name, and so the colour, of the agent beside it.
  """
  config = run.config
  if config.reward_prediction and config.reward == 'discriminator':
    return re.sub(r'^AGILE\b', 'AGILE-RP', label)
  return label


def _curves(runs: _Runs, names: Collection[str], column: str
           ) -> Iterator[results.Line]:
  """Yields the lines of variants in a column; all seeds have equal intervals.

  With the paper's curve, runs that are long enough also have their averages
  over its window.
  """
  longest = max(
      (run.curve['steps'][-1] for name in names for run in runs[name]),
      default=0)
  for name in names:
    of_variant, published = runs[name], paper.curve(name, column)
    label = _label(experiments.variant(name).label, of_variant[0])
    if published is not None and (longest < published.steps[0] or
                                  not of_variant[0].on_papers_instructions):
      published = None
    edges = curves.intervals(
        max(run.curve['steps'][-1] for run in of_variant),
        max(len(run.curve['steps']) for run in of_variant))
    begins, ends = edges[:-1], edges[1:]
    for run in of_variant:
      yield results.Line.of(label, results.OURS, run.seed, column, ends,
                            curves.averaged(run.curve, column, begins, ends))
      if published is not None:
        # 1 % may be missing: the first rows have no episode, and the last row
        # ends where it can.
        yield results.Line.of(
            label, results.AVERAGED, run.seed, column, ends, curves.averaged(
                run.curve, column, ends - published.window, ends, least=0.99))
      evaluation = run.evaluations.get('evaluation', {})
      if column == _SUCCESS and 'steps' in evaluation:
        yield results.Line.of(
            label, results.EVALUATED, run.seed, column, evaluation['steps'],
            *results.rate(evaluation, 'all'))
    if published is not None:
      shown = published.steps <= 2 * longest
      yield results.Line.of(
          label, results.PAPER, '', column, *(values[shown] for values in (
              published.steps, published.mean, published.mean - published.band,
              published.mean + published.band)))


def _data_efficiency(runs: _Runs) -> Iterator[results.Line]:
  """Yields figure 7: the best success by the number of goal examples."""
  sizes = sorted(
      (int(match[1]), name) for name in runs
      if (match := re.fullmatch(r'data_(\d+)', name)))
  if not sizes:
    return
  first = runs[sizes[0][1]][0]
  label = _label('AGILE', first)
  for seed in sorted({run.seed for _, name in sizes for run in runs[name]}):
    yield results.Line.of(label, results.OURS, seed, _BEST, *zip(*(
        (size, curves.best(run.curve)) for size, name in sizes
        for run in runs[name] if run.seed == seed)))
  if first.on_papers_instructions:
    yield results.Line.of(label, results.PAPER, '', _BEST,
                          *zip(*paper.data_efficiency().items()))


def _bars(runs: _Runs, name: str) -> Iterator[results.Line]:
  variant, column, bars = _BARS[name]
  measured = runs.get(variant, ())
  for i, (label, (evaluation, group, published)) in enumerate(bars.items()):
    for run in measured:
      if found := run.evaluations.get(evaluation):
        yield results.Line.of(label, results.EVALUATED, run.seed, column, i,
                              *results.rate(found, group))
    if measured and measured[0].on_papers_instructions:
      yield results.Line.of(label, results.PAPER, '', column, i, published)


def draw(lines: Sequence[results.Line], known: dict[str, str] | None = None
        ) -> figure.Figure:
  """Draws a figure in the width of a column, a panel for each column.

  `known` has the colours of agents in other figures, and gets those of new
  agents.
  """
  lines = [line for line in lines if len(line.points)]
  columns = list(dict.fromkeys(line.column for line in lines))
  looks = _looks(list(dict.fromkeys(line.agent for line in lines)),
                 {**_COLORS} if known is None else known)
  handles: dict[str, Any] = {}  # What the legend shows, by its text.
  with matplotlib.rc_context(_FONT):
    drawing = figure.Figure(layout='constrained', dpi=300)
    panels = drawing.subplots(len(columns), squeeze=False)[:, 0]
    for ax, column in zip(panels, columns, strict=True):
      shown = [line for line in lines if line.column == column]
      handles |= (_draw_curves(ax, shown, looks) if column in _LABELS else
                  _draw_bars(ax, shown))
      highest = max(np.nanmax(line.points[:, 1:]) for line in shown)
      ax.set_ylim(0, min(1.03, max(.01, 1.15 * highest)))
      ax.set_ylabel(_LABELS.get(column, column))
      ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
      ax.grid(alpha=0.3, linewidth=0.4)
    if columns[0] in _LABELS:
      for source, (text, look) in _STYLES.items():
        groups = _groups(lines, source).values()
        if source == results.OURS and any(
            len({line.seed for line in group}) > 1 for group in groups):
          text += ', mean (thin: seeds)'
        if groups:
          handles[text], = panels[0].plot(
              [], [], color='gray', linewidth=0.9, **look)
    drawing.set_size_inches(
        _WIDTH, _HEIGHT * len(panels) + _add_legend(drawing, handles))
  return drawing


def _add_legend(drawing: figure.Figure, handles: Mapping[str, Any]) -> float:
  """Adds a legend above the panels; returns its height in inches."""
  texts = [textwrap.fill(text, 46, break_on_hyphens=False) for text in handles]
  half = (len(texts) + 1) // 2
  parts = [part for part in (texts[:half], texts[half:]) if part]
  if sum(max(map(len, part)) for part in parts) > 46:
    parts = [texts]
  drawing.legend(handles.values(), texts, loc='outside upper left',
                 ncols=len(parts))
  return 0.15 + 0.142 * max(
      sum(text.count('\n') + 1 for text in part) for part in parts)


def _groups(lines: Sequence[results.Line], source: str
           ) -> dict[str, list[results.Line]]:
  """Returns the lines of a source by agent."""
  found: dict[str, list[results.Line]] = {}
  for line in lines:
    if line.source == source:
      found.setdefault(line.agent, []).append(line)
  return found


def _looks(agents: Sequence[str], known: dict[str, str]
          ) -> dict[str, dict[str, Any]]:
  """Returns each agent's colour and marker: its own, or ones not taken."""
  colors: dict[str, str] = {}
  for agent in sorted(agents, key=lambda agent: agent not in known):
    own = known.get(agent) or known.get(
        re.sub(r'.*(rho \d+ %)$', r'\1', agent))
    free = sorted(_LOOKS, key=lambda color: (
        color in _COLORS.values(), list(known.values()).count(color)))
    colors[agent] = next(
        (color for color in (own, *free)
         if color and color not in colors.values()), '#999999')
    known.setdefault(agent, colors[agent])
  return {agent: {'color': colors[agent], 'marker': _LOOKS[colors[agent]]}
          for agent in agents}


def _draw_curves(ax: axes.Axes, lines: Sequence[results.Line],
                 looks: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
  """Draws a panel; returns the lines of agents, by what the legend says."""
  handles: dict[str, Any] = {}
  for source in results.OURS, results.AVERAGED, results.PAPER:
    for i, (agent, of_agent) in enumerate(_groups(lines, source).items()):
      look = looks[agent] | _STYLES[source][1] | {
          'linewidth': 0.9, 'markersize': 2.5,
          'markevery': (0.02 * (i % 5), 0.15)}
      if source == results.PAPER:
        look['markerfacecolor'] = 'white'
      if source == results.OURS:
        seeds = f' ({len(of_agent)} seeds)' if len(of_agent) > 1 else ''
        handles[f'{agent}{seeds}'], = ax.plot([], [], **look)
      x, y = results.stack(of_agent)
      if len(of_agent) > 1:
        thin = look | {'linewidth': 0.3, 'marker': ''}
        for line in of_agent:
          ax.plot(*line.points.T[:2], **thin)
      complete = np.isfinite(y).all(axis=0)
      ax.plot(x[complete], y[:, complete].mean(axis=0), **look)
      if source == results.PAPER:
        ax.fill_between(*of_agent[0].points.T[[0, 2, 3]], color=look['color'],
                        alpha=0.1, linewidth=0)
  for agent, of_agent in _groups(lines, results.EVALUATED).items():
    _draw_intervals(
        ax, np.concatenate([line.points for line in of_agent]), **looks[agent])
  if lines[0].column == _BEST:
    ax.set_xscale('log', base=2)
    ax.set_xlabel('goal examples')
    return handles
  longest = max(line.points[-1, 0] for line in lines)
  unit, name = (1e6, 'millions of ') if longest >= 1e6 else (1e3, 'thousand ')
  ax.xaxis.set_major_formatter(lambda x, _: f'{x / unit:g}')
  ax.set_xlabel(f'{name}policy steps')
  ax.set_xlim(0, 1.03 * longest)
  return handles


def _draw_intervals(ax: axes.Axes, points: np.ndarray, color: str, marker: str
                   ) -> None:
  x, y, low, high = points.T
  # A bound can differ from a rate of 0 or 1 by a rounding error.
  ax.errorbar(x, y, np.maximum(0, [y - low, high - y]), color=color,
              marker=marker, markersize=3.5, markeredgecolor='black',
              markeredgewidth=0.4, linestyle='', capsize=2, elinewidth=0.7,
              clip_on=False)


def _draw_bars(ax: axes.Axes, lines: Sequence[results.Line]) -> dict[str, Any]:
  """Draws the mean of seeds with each seed's interval."""
  handles: dict[str, Any] = {}
  for of_bar in _groups(lines, results.EVALUATED).values():
    points = np.concatenate([line.points for line in of_bar])
    points[:, 0] += np.linspace(-.3, -.1, len(points) + 2)[1:-1]
    handles['ours: mean, and 95 % interval of each seed'] = ax.bar(
        of_bar[0].points[0, 0] - 0.2, points[:, 1].mean(), 0.38, color=_SKY)
    _draw_intervals(ax, points, 'black', '.')
  for of_bar in _groups(lines, results.PAPER).values():
    x, y = of_bar[0].points[0, :2]
    handles['the paper'] = ax.bar(
        x + 0.2, y, 0.38, color='none', edgecolor='black', linestyle='--')
  labels = {line.agent: line.points[0, 0] for line in lines}
  ax.set_xticks(list(labels.values()), list(labels))
  return handles


def table(figures: Mapping[str, Sequence[results.Line]]) -> str:
  """Returns a Markdown table of all curves and bars.

  The paper's rate is its moving average at the last step of each seed (of
  those that are averaged, if any), then their mean.
  """
  rows = [['figure', 'agent', 'column', 'steps', 'last 5 points', 'best',
           'evaluated', "averaged as the paper's", 'the paper'], ['---'] * 9]
  for name, lines in figures.items():
    shown: dict[tuple[str, str], dict[str, list[np.ndarray]]] = {}
    for line in lines:
      parts = {line.agent: line.points} if len(line.points) else {}
      if line.column == _BEST:
        parts = {f'{line.agent}, {point[0]:,.0f} goal examples': point[None]
                 for point in line.points}
      for agent, points in parts.items():
        shown.setdefault((agent, line.column), {}).setdefault(
            line.source, []).append(points)
    for (agent, column), of_source in shown.items():
      ours, evaluated, averages, published = (
          of_source.get(source, []) for source in (
              results.OURS, results.EVALUATED, results.AVERAGED, results.PAPER))
      ends = [run[-1, 0] for run in averages or ours or published]
      timed = ours if column != _BEST else []  # x is the policy's steps.
      rows.append([
          name, agent, column, ', '.join(f'{run[-1, 0]:,.0f}' for run in timed),
          _spread([run[-5:, 1].mean() for run in timed]),
          _spread([run[:, 1].max() for run in ours if 'false' not in column]),
          *(_spread([run[-1, 1] for run in found])
            for found in (evaluated, averages)),
          _spread([np.interp(ends, curve[:, 0], curve[:, 1], left=np.nan).mean()
                   for curve in published])])
  return '\n'.join(
      f'| {" | ".join(cell.replace("|", "&#124;") for cell in row)} |'
      for row in rows)


def _spread(rates: Sequence[float]) -> str:
  """Returns mean and standard deviation over seeds as text."""
  if not np.isfinite(rates).any():
    return ''
  spread = f' ± {100 * np.std(rates, ddof=1):.1f}' if len(rates) > 1 else ''
  return f'{100 * np.mean(rates):.1f}{spread} %'


def save(out: str, figures: Mapping[str, Sequence[results.Line]]) -> None:
  """Writes figures, their CSV files and the table to a directory."""
  try:
    os.makedirs(out, exist_ok=True)
    known = {**_COLORS}
    for name, lines in figures.items():
      drawing = draw(lines, known)
      for kind in 'png', 'svg':
        drawing.savefig(os.path.join(out, f'{name}.{kind}'))
      results.write(os.path.join(out, f'{name}.csv'), lines)
    with open(os.path.join(out, 'table.md'), 'w', encoding='utf-8') as file:
      file.write(f'{table(figures)}\n')
  except OSError as error:
    raise program.UserError(
        f'--out={out} cannot be written: {error}. Name a directory that can '
        'be written.') from error


def _define_flags() -> None:
  program.define_path(
      'out', None, 'The directory for the figures and the table.',
      required=True)


@program.main(_define_flags, arguments=True)
def main(arguments: Sequence[str]) -> None:
  """Draws the figures of the runs, or CSV files, given as arguments."""
  if not arguments:
    raise program.UserError('Name the runs, such as runs/*_seed*.')
  paths = list(map(program.clean_path, arguments))
  drawn = [path for path in paths if path.endswith('.csv')]
  figures = lines_of(results.load(
      [path for path in paths if path not in drawn]))
  for path in drawn:
    name = os.path.basename(path).removesuffix('.csv')
    if name in figures:
      raise program.UserError(
          f'{path}: there is a figure {name} already. Draw the file alone, '
          'with another --out.')
    figures[name] = results.read(path)
  save(flags.FLAGS.out, figures)
  print(program.printable(table(figures)))
  print(f'{", ".join(figures) or "No figure"}: in {flags.FLAGS.out}.')


if __name__ == '__main__':
  main()
