"""Draws the paper's figures from runs, over the published curves.

  python -m agile_tf.figures runs/*_seed* --out=figures

A run is a directory named NAME_seedN or NAME. If NAME is a variant of
`agile_tf.reproduction.experiments`, as agile_tf.sweep names its runs, the run
is in the paper's figures. Any other run is in a figure "runs". The curves come
from the run's `metrics.csv`, and its settings from `config.json`: to copy a
run, copy both files.

Solid lines are ours: the mean over seeds, with a band of one standard deviation
over seeds. Dashed lines are the paper's, which are moving averages over 16 to
30 million steps. Where our runs have so many, their solid line is averaged in
the same way, and a dotted line is not. A dot is what agile_tf.evaluate measured
(`evaluation.json`), with its 95 % confidence interval. Unfinished runs are
drawn up to their last step; the line is thin where some seeds are missing. If
our runs are shorter than the paper's, the axis ends at twice their steps, or at
twice the step where the paper's curves begin. Runs on other instructions than
the paper's, such as those of a laptop, are labelled so, and the paper's curves
then have their own axis at the top.

The figures are written as PNG and SVG, and their numbers as table.md. The runs
of `evening_settings` are in the table alone.
"""

from collections.abc import Mapping, Sequence
import os
import re
import textwrap
from typing import NamedTuple

from absl import flags
from matplotlib import axes
from matplotlib import figure
import numpy as np

from agile_tf.reproduction import curves
from agile_tf.reproduction import experiments
from agile_tf.reproduction import paper
from agile_tf.reproduction import results
from gridlu import program

_Runs = Mapping[str, Sequence[results.Run]]  # By variant.

_COLUMNS = {
    'success_rate': 'success rate', 'reward_model_accuracy': 'accuracy',
    'false_positives': 'false positives', 'false_negatives': 'false negatives'}

# Characters in a line of the legend.
_LEGEND_WIDTH = 48

# The columns of metrics.csv in the table, with the suffix of their labels.
_TABLE_COLUMNS = {
    'success_rate': '',
    'reward_model_accuracy': ": the reward model's accuracy",
    'false_positives': ': its false positives',
    'false_negatives': ': its false negatives'}


def _label(name: str, runs: Sequence[results.Run]) -> str:
  """Returns what a variant's runs are called.

  AGILE that also learns to predict its reward is AGILE-RP, as the paper's A3C
  is A3C-RP then. The paper's AGILE does not.
  """
  label, config = experiments.variant(name).label, runs[0].config
  if (config is not None and config.reward_prediction and
      config.reward == 'discriminator'):
    return re.sub(r'^AGILE\b', 'AGILE-RP', label)
  return label


def _label_steps(ax: axes.Axes, longest: float) -> None:
  unit, name = (1e6, 'millions of ') if longest >= 1e6 else (1e3, 'thousand ')
  ax.xaxis.set_major_formatter(lambda x, _: f'{x / unit:g}')
  ax.set_xlabel(f'{name}steps')


def _title(ax: axes.Axes, replica: bool) -> None:
  if replica:
    ax.set_title("ours: a smaller job than the paper's", fontsize='medium')


def _draw(ax: axes.Axes, runs: _Runs,
          variants: Sequence[str], column: str) -> bool:
  """Draws a panel; returns False if no run has anything to draw."""
  ours = {name: results.mean_curve(runs[name], column)
          for name in variants if name in runs}
  drawn = {name: curve for name, curve in ours.items() if curve is not None}
  if not drawn:
    return False
  published = {
      name: curve for name in variants
      if (curve := paper.curve(name, column)) is not None}
  longest = max(curve.steps[-1] for curve in drawn.values())
  replica = drawn.keys() <= experiments.VARIANTS.keys() and (
      results.are_replicas(runs[name] for name in drawn))
  _title(ax, replica)
  top, shown = ax, longest
  if published:
    paper_begins = max(curve.steps[0] for curve in published.values())
    paper_ends = max(curve.steps[-1] for curve in published.values())
    if replica:
      top = ax.twiny()
      top.set_xlim(0, 1.02 * paper_ends)
      _label_steps(top, paper_ends)
      top.set_xlabel("the paper's steps, millions (dashed)")
    else:
      shown = max(longest, min(2 * max(longest, paper_begins), paper_ends))
    # Evaluations of a replica are dots at the end.
    ax.set_xlim(0, 1.02 * shown if replica else shown)
  any_averaged = any_evaluated = False
  for i, name in enumerate(variants):
    color = f'C{i}'
    if name in drawn:
      mean = drawn[name]
      averaged = None
      if name in published and not replica:
        averaged = results.mean_curve(
            runs[name], column, published[name].window)
      if averaged is not None:
        ax.plot(mean.steps, mean.mean, color=color, linewidth=1, linestyle=':')
        mean, any_averaged = averaged, True
      ax.plot(mean.steps, mean.mean, color=color, linewidth=0.6)
      ax.plot(mean.steps[mean.complete], mean.mean[mean.complete], color=color,
              label=textwrap.fill(
                  f'{_label(name, runs[name])} ({len(runs[name])})',
                  _LEGEND_WIDTH, break_on_hyphens=False))
      ax.fill_between(
          mean.steps, mean.mean - mean.deviation, mean.mean + mean.deviation,
          color=color, alpha=0.2, linewidth=0)
      points = results.points(runs[name]) if column == 'success_rate' else []
      for point in points:
        _draw_point(ax, point, color)
        any_evaluated = True
    if name in published:
      curve = published[name]
      top.plot(curve.steps, curve.mean, color=color, linestyle='--',
               linewidth=1)
      top.fill_between(curve.steps, curve.mean - curve.band,
                       curve.mean + curve.band, color=color, alpha=0.08,
                       linewidth=0)
      if name not in drawn:
        ax.plot([], [], color=color, linestyle='--', linewidth=1,
                label=experiments.variant(name).label)
  if published:
    ax.plot([], [], color='gray', linestyle='--', linewidth=1,
            label=f'paper (to {paper_ends / 1e6:.0f} million steps)')
  if any_averaged:
    ax.plot([], [], color='gray', linestyle=':', linewidth=1,
            label="ours, not averaged as the paper's")
  if any_evaluated:
    ax.plot([], [], color='gray', linestyle='', marker='o', markersize=3,
            label='ours, evaluated (95 % interval)')
  _label_steps(ax, shown)
  ax.set_ylabel(_COLUMNS[column])
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  ax.set_ylim(0, 1.02 if 'false' not in column else None)
  ax.grid(alpha=0.3)
  ax.legend(
      fontsize='small', title='ours (seeds)', title_fontsize='small',
      loc='upper left', bbox_to_anchor=(1.01, 1))  # Inside it hides curves.
  return True


def _draw_point(ax: axes.Axes, point: results.Point, color: str) -> None:
  """Draws an evaluation with its confidence interval."""
  # Half of a point at the end of the axis would be cut off.
  ax.errorbar(
      point.steps, point.rate,
      [[point.rate - point.low], [point.high - point.rate]], color=color,
      marker='o', markersize=3, capsize=2, linewidth=1, clip_on=False)


def _new(panels: int, width: float = 6.4
        ) -> tuple[figure.Figure, list[axes.Axes]]:
  drawing = figure.Figure(
      figsize=(width * panels, 4.8), layout='constrained', dpi=100)
  return drawing, list(np.atleast_1d(drawing.subplots(1, panels)))


def draw_curves(runs: _Runs, variants: Sequence[str],
                columns: Sequence[str]) -> figure.Figure | None:
  """Draws curves, one panel for each column; None if there are none."""
  drawing, panels = _new(len(columns), 8.4)  # With room for a legend.
  drawn = [_draw(ax, runs, variants, column)
           for ax, column in zip(panels, columns)]
  return drawing if any(drawn) else None


def draw_data_efficiency(runs: _Runs) -> figure.Figure | None:
  """Draws figure 7: success by number of goal examples; None without runs."""
  points, drawn = [], []
  for name, of_size in runs.items():
    match = re.fullmatch(r'data_(\d+)', name)
    best = [curves.best(run.curve) for run in of_size]
    rates = [b.rate for b in best if b is not None]
    if match and rates:
      points.append((int(match[1]), np.mean(rates), results.deviation(rates)))
      drawn.append(of_size)
  if not points:
    return None
  drawing, (ax,) = _new(1)
  _title(ax, results.are_replicas(drawn))
  sizes, means, deviations = zip(*sorted(points))
  ax.errorbar(sizes, means, deviations, marker='o', capsize=3, label='ours')
  theirs = paper.data_efficiency()
  ax.plot(list(theirs), list(theirs.values()), 'C0--', marker='.', linewidth=1,
          label='paper')
  ax.set_xscale('log', base=2)
  ax.set_xlabel('goal examples')
  ax.set_ylabel('best success rate over training')
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  ax.set_ylim(0, 1.02)
  ax.grid(alpha=0.3)
  ax.legend()
  return drawing


# The name of an evaluation, and a group of its episodes.
_Bar = tuple[str, str]


class Bars(NamedTuple):
  """A bar chart.

  Attributes:
    variant: The variant of the runs.
    labels: The label of each bar.
    published: The paper's rate for each bar that it has.
    paper: The legend of the paper's bars.
  """
  variant: str
  labels: dict[_Bar, str]
  published: dict[_Bar, float]
  paper: str = 'paper'


def draw_bars(runs: Sequence[results.Run], bars: Bars) -> figure.Figure | None:
  """Draws evaluated success rates beside the paper's (figure 5).

  Args:
    runs: The runs of the variant.
    bars: What to draw.

  Returns:
    The figure, or None if no run was evaluated.
  """
  _, labels, published, theirs = bars
  ours = {bar: results.rates(runs, *bar) for bar in labels}
  if not any(ours.values()):
    return None
  drawing, (ax,) = _new(1, 7.6)  # With room for a legend.
  _title(ax, results.are_replicas([runs]))
  for i, bar in enumerate(labels):
    middle = i - 0.2 * bool(published)  # The center of our bar.
    if ours[bar]:
      several = len(ours[bar]) > 1
      ax.bar(middle, np.mean(ours[bar]), 0.38, color='C0', capsize=3,
             yerr=results.deviation(ours[bar]) if several else None,
             label=f'ours ({len(ours[bar])} seed{"s" if several else ""})')
    if bar in published:
      ax.bar(i + 0.2, published[bar], 0.38, color='none', edgecolor='C0',
             linestyle='--', label=theirs)
    ceiling = results.rates(runs, *bar, key='solvable')
    if ceiling:
      ax.hlines(float(np.mean(ceiling)), middle - 0.19, middle + 0.19,
                color='black', label='solvable')
  ax.set_xticks(range(len(labels)), list(labels.values()))
  ax.set_xlim(-0.5, len(labels) - 0.5)
  ax.set_ylabel('success rate')
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  ax.set_ylim(0, 1.02)
  handles, names = ax.get_legend_handles_labels()
  once = dict(zip(names, handles))  # One entry for each bar otherwise.
  ax.legend(once.values(), once.keys(), loc='upper left',
            bbox_to_anchor=(1.01, 1))
  return drawing


_BARS = {
    'figure5': Bars(
        'immovable',
        {('before', 'all'): 'before', ('changed', 'all'): 'immovable red rects',
         ('tuned', 'all'): 'after fine-tuning'},
        {(name, 'all'): rate for name, rate in paper.IMMOVABLE.items()}),
    'arrangements_by_blocks': Bars(
        'arrangements',
        {('evaluation', group): group for group in paper.ARRANGEMENTS},
        {('evaluation', group): rate
         for group, rate in paper.ARRANGEMENTS.items()},
        'paper: best of 10\nseeds, by people'),
    **{f'held_out_{way}': Bars(
        f'held_out_{way}',
        {('seen', 'all'): 'trained on', ('held_out', 'all'): 'held out'}, {})
       for way in ('strings', 'meanings')},
}


def draw(runs: _Runs) -> dict[str, figure.Figure]:
  """Returns every figure for which there are runs, by name."""
  def variants(name: str) -> tuple[str, ...]:
    """Returns the variants of an experiment, or of its laptop replica."""
    experiment = experiments.EXPERIMENTS[name]
    replica = experiment.replica and any(
        run.is_replica for laptop in (False, True)
        for variant in experiment.names(laptop) for run in runs.get(variant, ())
    )
    return experiment.names(replica)

  def curves_of(name: str, *columns: str,
                only_with: str = '') -> figure.Figure | None:
    """Draws an experiment, if a variant's name begins with `only_with`."""
    if not any(run.startswith(only_with) for run in runs):
      return None
    return draw_curves(runs, variants(name), columns or ['success_rate'])

  both = 'success_rate', 'reward_model_accuracy'
  drawings = {
      'figure4_left': curves_of('figure4_left'),
      'figure4_middle': draw_curves(
          runs, variants('figure4_middle'), ['success_rate'])
                        if any('lstm' in name for name in runs) else None,
      'figure4_right': curves_of('figure4_right', 'reward_model_accuracy'),
      'figure7': draw_data_efficiency(runs),
      'figure8': curves_of(
          'figure4_right', 'false_positives', 'false_negatives'),
      'arrangements': curves_of('arrangements'),
      'threads': curves_of('threads', only_with='threads_'),
      'remarks': curves_of('remarks', *both, only_with='remark_'),
      'a3c_rp_readings': curves_of('a3c_rp_readings', only_with='a3c_rp_'),
      'rho50_readings': curves_of(
          'rho50_readings', *both, only_with='rho50_'),
      'evening': curves_of('evening', *both),
      'quickstart_rho': curves_of('quickstart_rho', *both),
      'quickstart_threads': curves_of(
          'quickstart_threads', only_with='quickstart_threads_'),
  }
  own = [name for name in runs if name not in experiments.VARIANTS]
  drawings['runs'] = draw_curves(runs, own, both)
  for name, bars in _BARS.items():
    drawings[name] = draw_bars(runs.get(bars.variant, ()), bars)
  return {name: drawing for name, drawing in drawings.items()
          if drawing is not None}


def _spread(rates: Sequence[float]) -> str:
  """Returns mean and standard deviation over seeds as text."""
  known = [rate for rate in rates if np.isfinite(rate)]
  if not known:
    return ''
  if len(known) == 1:
    return f'{100 * known[0]:.1f} %'
  return f'{100 * np.mean(known):.1f} ± {100 * results.deviation(known):.1f} %'


def _percent(rate: float | None) -> str:
  return '' if rate is None else f'{100 * rate:.1f} %'


def _job(runs: Sequence[results.Run]) -> str:
  """Returns the job of the runs as text: whose, or which instructions."""
  config = runs[0].config
  if config is None:
    return 'not known'
  if not runs[0].is_replica:
    return "the paper's"
  return '`' + config.instructions.replace('|', '\\|') + '`'


def _row(*cells: str) -> str:
  return f'| {" | ".join(cells)} |'


def table(runs: _Runs) -> str:
  """Returns a Markdown table of every variant beside the paper's numbers.

  Success rates come first, then the reward models, then the evaluations. The
  paper's rate "after as many steps" is the mean of its curve at the seeds' last
  steps, if the curve has them. It is a moving average, and "ours, averaged as
  the paper's" is the same one.
  """
  lines = [
      _row('', 'job', 'seeds', 'steps', 'ours, at the end', 'ours, best',
           'ours, evaluated', "ours, averaged as the paper's",
           'paper, after as many steps', 'paper, at the end',
           'paper, in its text or best'),
      _row(*['---'] * 11)]
  best_of_size = {f'data_{size}': rate
                  for size, rate in paper.data_efficiency().items()}
  for column, note in _TABLE_COLUMNS.items():
    for name in dict.fromkeys([*experiments.VARIANTS, *runs]):
      known = [run for run in runs.get(name, ())
               if np.isfinite(results.end(run, column))]
      published = paper.curve(name, column)
      if not known or (
          note and published is None and name in experiments.VARIANTS):
        continue
      best = []
      if 'false' not in column:
        best = [curves.best(run.curve, column) for run in known]
      steps = sorted({int(run.curve['steps'][-1]) for run in known})
      there, averaged = None, []
      if published is not None and not known[0].is_replica:
        ends = [run.curve['steps'][-1] for run in known]
        # A whole run ends just after the last point of its curve.
        if published.steps[0] <= min(ends) and (
            max(ends) <= 1.01 * published.steps[-1]):
          there = float(np.mean(
              np.interp(ends, published.steps, published.mean)))
          averaged = [
              float(curves.moving_average(
                  run.curve, column, run.curve['steps'][-1:],
                  published.window)[0]) for run in known]
      lines.append(_row(
          f'{_label(name, known)}{note}', _job(known), str(len(known)),
          ' to '.join(f'{n:,}' for n in dict.fromkeys([steps[0], steps[-1]])),
          _spread([results.end(run, column) for run in known]),
          _spread([b.rate for b in best if b is not None]),
          '' if note else _spread(results.rates(known, 'evaluation')),
          _spread(averaged),
          _percent(there),
          _percent(None if published is None else float(published.mean[-1])),
          _percent(paper.TEXT.get(
              (name, column), None if note else best_of_size.get(name)))))
  for name, labels, rates, theirs in _BARS.values():
    for bar, label in labels.items():
      label = f'{experiments.variant(name).label}: {label}'
      their_note = '' if theirs == 'paper' else f' ({" ".join(theirs.split())})'
      for text, key, rate in (
          (label + their_note, 'rate', rates.get(bar)),
          (f'{label}, solvable', 'solvable', None)):
        measured = results.rates(runs.get(name, ()), *bar, key=key)
        if measured:
          lines.append(_row(
              text, _job(runs[name]), str(len(measured)), '', '', '',
              _spread(measured), '', '', '', _percent(rate)))
  return '\n'.join(lines)


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
      'out', None, 'The directory for the figures and the table.',
      required=True)


@program.main(arguments=True)
def main(argv: Sequence[str]) -> None:
  """Draws the figures of the runs given as arguments."""
  out = flags.FLAGS.out
  if len(argv) < 2:
    raise results.ResultError('Name the runs, such as runs/*_seed*.')
  try:
    runs = results.load(argv[1:])
    drawings = draw(runs)
    os.makedirs(out, exist_ok=True)
    for name, drawing in drawings.items():
      for kind in 'png', 'svg':
        drawing.savefig(os.path.join(out, f'{name}.{kind}'))
    text = table(runs)
    with open(os.path.join(out, 'table.md'), 'w', encoding='utf-8') as file:
      file.write(f'{text}\n')
  except OSError as error:
    raise results.ResultError(
        f'--out={out} cannot be written: {error}. Name a directory that can '
        'be written.') from error
  print(text)
  print(f'{", ".join(drawings) or "No figure"}: in {out}.')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
