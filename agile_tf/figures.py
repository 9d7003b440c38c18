"""Draws the paper's figures from runs, over the published curves.

  python -m agile_tf.figures runs/*_seed* --out=figures

A run is a directory that agile_tf.launch wrote, or its metrics.csv under
another name; either way it is named NAME_seedN, with a NAME of
`agile_tf.experiments`, as agile_tf.sweep names them. Ours are solid lines, the
mean over seeds in a band of one standard deviation; the paper's are dashed.
Unfinished runs count as far as they have come: where some have not come, the
line is thin. Where our runs are much shorter than the paper's, its curves have
an axis of their own, at the top.

Figures are written as PNG and SVG, and the numbers as table.md.
"""

from collections.abc import Mapping, Sequence
import json
import os
import re
import sys
from typing import Any, NamedTuple

from absl import app
from absl import flags
from matplotlib import axes
from matplotlib import figure
import numpy as np

from agile_tf import curves
from agile_tf import experiments
from agile_tf import paper

_POINTS = 100  # Of a drawn curve; rows between two points are averaged.
_END_ROWS = 10  # The rows whose mean is a run's end.
_SHORT = 0.1  # Of the paper's steps: shorter runs have an axis of their own.

_COLUMNS = {
    'success_rate': 'success rate', 'reward_model_accuracy': 'accuracy',
    'false_positives': 'false positives', 'false_negatives': 'false negatives'}


class Run(NamedTuple):
  """What there is of one run."""
  path: str
  name: str  # The setting's.
  seed: int
  curve: dict[str, np.ndarray]  # The columns of metrics.csv.
  evaluations: dict[str, Any]  # By name, what agile_tf.evaluate --json said.


class FigureError(ValueError):
  """Runs from which nothing can be drawn."""


def _evaluations(path: str, setting: experiments.Setting) -> dict[str, Any]:
  """Reads what was measured on a run: in its directory, or beside its file."""
  found = {}
  stem = path.removesuffix('.csv')
  for evaluation in setting.evaluations:
    file_path = (
        os.path.join(path, f'{evaluation.name}.json') if os.path.isdir(path)
        else f'{stem}.{evaluation.name}.json')
    if os.path.exists(file_path):
      try:
        with open(file_path, encoding='utf-8') as file:
          found[evaluation.name] = json.load(file)
      except ValueError as error:
        raise FigureError(
            f'{file_path} is not JSON ({error}): expected what '
            'agile_tf.evaluate --json prints.') from error
  return found


def load(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Reads runs, by setting.

  Raises:
    FigureError or CurveError: if a path is not a run of a known setting.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    base = os.path.basename(os.path.normpath(path))
    match = re.fullmatch(r'(\w+)_seed(\d+)(\.csv)?', base)
    if not match or match[1] not in experiments.SETTINGS:
      raise FigureError(
          f'{path}: expected a run named NAME_seedN or NAME_seedN.csv, with '
          f'one of these names: {", ".join(experiments.SETTINGS)}.')
    name = match[1]
    runs.setdefault(name, []).append(Run(
        path, name, int(match[2]), curves.read(path),
        _evaluations(path, experiments.SETTINGS[name])))
  return runs


class Mean(NamedTuple):
  """A curve over seeds."""
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N]
  deviation: np.ndarray  # float64 [N], of the seeds; 0 where there is one
  complete: np.ndarray  # bool [N], whether all seeds have come so far


def mean_curve(runs: Sequence[Run], column: str) -> Mean | None:
  """Averages a column over seeds, each in the same intervals of steps.

  Where only some runs have come so far, they alone count.

  Returns:
    None if no run has the column.
  """
  runs = [run for run in runs
          if np.isfinite(run.curve.get(column, np.nan)).any()]
  if not runs:
    return None
  edges = np.linspace(
      0, max(run.curve['steps'].max() for run in runs), _POINTS + 1)
  values = np.full([len(runs), _POINTS], np.nan)
  for i, run in enumerate(runs):
    known = np.isfinite(run.curve[column])
    # An interval is open at its left end: the last step is in the last one.
    index = np.clip(np.searchsorted(
        edges, run.curve['steps'][known]) - 1, 0, _POINTS - 1)
    count = np.bincount(index, minlength=_POINTS)
    total = np.bincount(index, run.curve[column][known], minlength=_POINTS)
    values[i, count > 0] = total[count > 0] / count[count > 0]
  drawn = np.isfinite(values).any(axis=0)
  values = values[:, drawn]
  centers = (edges[1:] + edges[:-1])[drawn] / 2
  last = min(run.curve['steps'].max() for run in runs)
  return Mean(
      centers, np.nanmean(values, axis=0), np.nanstd(values, axis=0),
      centers <= last)


def end(run: Run, column: str) -> float:
  """Returns a run's mean over its last rows, NaN if it has none."""
  values = run.curve.get(column, np.array([]))
  values = values[np.isfinite(values)][-_END_ROWS:]
  return float(np.mean(values)) if len(values) else float('nan')


def _label_steps(ax: axes.Axes, longest: float) -> None:
  unit, name = (1e6, 'millions of ') if longest >= 1e6 else (1e3, 'thousand ')
  ax.xaxis.set_major_formatter(lambda x, _: f'{x / unit:g}')
  ax.set_xlabel(f'{name}steps')


def _draw(ax: axes.Axes, runs: Mapping[str, Sequence[Run]],
          settings: Sequence[str], column: str) -> bool:
  """Draws a panel; returns whether there was anything to draw."""
  ours = {name: mean_curve(runs[name], column)
          for name in settings if name in runs}
  drawn = {name: curve for name, curve in ours.items() if curve is not None}
  if not drawn:
    return False
  published = {name: paper.curve(name, column) for name in drawn}
  longest = max(curve.steps[-1] for curve in drawn.values())
  theirs = [curve for curve in published.values() if curve is not None]
  top = ax
  if theirs and longest < _SHORT * max(curve.steps[-1] for curve in theirs):
    top = ax.twiny()
    top.set_xlim(0, theirs[0].steps[-1])
    _label_steps(top, theirs[0].steps[-1])
    top.set_xlabel("the paper's steps, millions (dashed)")
    ax.set_xlim(0, longest)
  for i, name in enumerate(settings):
    if name not in drawn:
      continue
    color = f'C{i}'
    mean = drawn[name]
    ax.plot(mean.steps, mean.mean, color=color, linewidth=0.6)
    ax.plot(mean.steps[mean.complete], mean.mean[mean.complete], color=color,
            label=f'{experiments.SETTINGS[name].label} ({len(runs[name])})')
    ax.fill_between(
        mean.steps, mean.mean - mean.deviation, mean.mean + mean.deviation,
        color=color, alpha=0.2, linewidth=0)
    curve = published[name]
    if curve is not None:
      top.plot(curve.steps, curve.mean, color=color, linestyle='--',
               linewidth=1)
  _label_steps(ax, longest)
  ax.set_ylabel(_COLUMNS[column])
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  ax.set_ylim(0, 1.02 if 'false' not in column else None)
  ax.grid(alpha=0.3)
  ax.legend(
      fontsize='small', title='ours (seeds)', title_fontsize='small',
      loc='upper right' if 'false' in column else 'lower right')
  return True


def _new(panels: int) -> tuple[figure.Figure, list[axes.Axes]]:
  drawing = figure.Figure(
      figsize=(6.4 * panels, 4.8), layout='constrained', dpi=100)
  return drawing, list(np.atleast_1d(drawing.subplots(1, panels)))


def draw_curves(runs: Mapping[str, Sequence[Run]], settings: Sequence[str],
                columns: Sequence[str]) -> figure.Figure | None:
  """Draws a figure of curves, a panel a column; None if there are none."""
  drawing, panels = _new(len(columns))
  drawn = [_draw(ax, runs, settings, column)
           for ax, column in zip(panels, columns)]
  return drawing if any(drawn) else None


def draw_data_efficiency(runs: Mapping[str, Sequence[Run]]
                        ) -> figure.Figure | None:
  """Draws figure 7: the best success rate by the number of goal examples."""
  points = []
  for name in runs:
    match = re.fullmatch(r'data_(\d+)', name)
    best = [curves.best(run.curve) for run in runs[name]]
    rates = [b.rate for b in best if b is not None]
    if match and rates:
      points.append((int(match[1]), np.mean(rates), np.std(rates)))
  if not points:
    return None
  drawing, (ax,) = _new(1)
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


def _rates(runs: Sequence[Run], evaluation: str, key: str = 'rate'
          ) -> list[float]:
  """The rates over all episodes that an evaluation of each seed has."""
  values = [run.evaluations[evaluation]['success']['all'][key]
            for run in runs if evaluation in run.evaluations]
  return [value for value in values if value is not None]


def draw_bars(runs: Sequence[Run], evaluations: Mapping[str, str],
              published: Mapping[str, float]) -> figure.Figure | None:
  """Draws evaluated success rates beside the paper's (figure 5).

  Args:
    runs: Of a setting.
    evaluations: From the names of evaluations to their labels.
    published: The paper's rates by the same names.

  Returns:
    None if no run was evaluated.
  """
  ours = {name: _rates(runs, name) for name in evaluations}
  if not any(ours.values()):
    return None
  drawing, (ax,) = _new(1)
  for i, name in enumerate(evaluations):
    if ours[name]:
      ax.bar(i - 0.2, np.mean(ours[name]), 0.38, color='C0',
             yerr=np.std(ours[name]), capsize=3,
             label=f'ours ({len(ours[name])} seeds)' if not i else None)
    if name in published:
      ax.bar(i + 0.2, published[name], 0.38, color='none', edgecolor='C0',
             linestyle='--', label='paper' if not i else None)
    ceiling = _rates(runs, name, 'solvable')
    if ceiling:
      ax.hlines(float(np.mean(ceiling)), i - 0.39, i + 0.01, color='black',
                label='' if i else 'solvable')
  ax.set_xticks(range(len(evaluations)), list(evaluations.values()))
  ax.set_ylabel('success rate')
  ax.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
  ax.set_ylim(0, 1.02)
  ax.legend()
  return drawing


def draw(runs: Mapping[str, Sequence[Run]]) -> dict[str, figure.Figure]:
  """Draws every figure for which there are runs, by name."""
  known = experiments.EXPERIMENTS
  drawings = {
      'figure4_left': draw_curves(
          runs, known['figure4_left'].settings, ['success_rate']),
      'figure4_middle': draw_curves(
          runs, known['figure4_middle'].settings, ['success_rate'])
                        if any('lstm' in name for name in runs) else None,
      'figure4_right': draw_curves(
          runs, known['figure4_right'].settings, ['reward_model_accuracy']),
      'figure5': draw_bars(
          runs.get('immovable', ()), {
              'before': 'before', 'changed': 'immovable red rects',
              'tuned': 'after fine-tuning'}, paper.IMMOVABLE),
      'figure7': draw_data_efficiency(runs),
      'figure8': draw_curves(
          runs, known['figure4_right'].settings,
          ['false_positives', 'false_negatives']),
      'arrangements': draw_curves(runs, ['arrangements'], ['success_rate']),
      'remarks': draw_curves(
          runs, known['remarks'].settings,
          ['success_rate', 'reward_model_accuracy'])
                 if any('remark' in name for name in runs) else None,
  }
  for way in 'strings', 'meanings':
    drawings[f'held_out_{way}'] = draw_bars(
        runs.get(f'held_out_{way}', ()),
        {'seen': 'trained on', 'held_out': 'held out'}, {})
  return {name: drawing for name, drawing in drawings.items()
          if drawing is not None}


def _spread(rates: Sequence[float]) -> str:
  """Formats rates of seeds: their mean and standard deviation."""
  known = [rate for rate in rates if np.isfinite(rate)]
  if not known:
    return ''
  if len(known) == 1:
    return f'{100 * known[0]:.1f} %'
  return f'{100 * np.mean(known):.1f} ± {100 * np.std(known):.1f} %'


def _percent(rate: float | None) -> str:
  return '' if rate is None else f'{100 * rate:.1f} %'


def table(runs: Mapping[str, Sequence[Run]]) -> str:
  """Lists every setting's success beside the paper's, in Markdown."""
  lines = [
      '| | seeds | steps | ours, at the end | ours, best | paper, at the end | '
      'paper, in its text |',
      '| --- | --- | --- | --- | --- | --- | --- |']
  for name, setting in experiments.SETTINGS.items():
    if name not in runs:
      continue
    steps = sorted({int(run.curve['steps'][-1]) for run in runs[name]
                    if len(run.curve['steps'])})
    best = [curves.best(run.curve) for run in runs[name]]
    published = paper.curve(name, 'success_rate')
    lines.append(' | '.join([
        f'| {setting.label}', str(len(runs[name])),
        ' to '.join(f'{n:,}' for n in dict.fromkeys([steps[0], steps[-1]]))
        if steps else '0',
        _spread([end(run, 'success_rate') for run in runs[name]]),
        _spread([b.rate for b in best if b is not None]),
        _percent(None if published is None else float(published.mean[-1])),
        _percent(paper.TEXT.get(name))]) + ' |')
  measured = [
      (setting.label, evaluation.name, _rates(runs[name], evaluation.name))
      for name, setting in experiments.SETTINGS.items() if name in runs
      for evaluation in setting.evaluations]
  for label, evaluation_name, rates in measured:
    if rates:
      lines.append(
          f'| {label}: {evaluation_name} | {len(rates)} | | {_spread(rates)} | '
          f'| | {_percent(paper.IMMOVABLE.get(evaluation_name))} |')
  return '\n'.join(lines)


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
      'out', None, 'The directory for the figures and the table.',
      required=True)


def main(argv: Sequence[str]) -> None:
  """Draws figures of the runs that are named."""
  out = flags.FLAGS.out
  if len(argv) < 2:
    sys.exit('Error: name runs, such as runs/*_seed*.')
  try:
    runs = load(argv[1:])
    drawings = draw(runs)
    os.makedirs(out, exist_ok=True)
    for name, drawing in drawings.items():
      for kind in 'png', 'svg':
        drawing.savefig(os.path.join(out, f'{name}.{kind}'))
    text = table(runs)
    with open(os.path.join(out, 'table.md'), 'w', encoding='utf-8') as file:
      file.write(f'{text}\n')
  except (FigureError, curves.CurveError) as error:
    sys.exit(f'Error: {error}')
  except OSError as error:
    sys.exit(f'Error: --out={out} cannot be written: {error}.')
  print(text)
  print(f'{", ".join(drawings) or "No figure"}: in {out}.')


if __name__ == '__main__':
  define_flags()
  app.run(main)
