"""Draws the paper's figures from runs, over the published curves.

  python -m agile_tf.figures runs/*_seed* --out=figures

A run is a directory that agile_tf.launch wrote, or its metrics.csv, there or
under another name; it is named NAME_seedN, with a NAME of
`agile_tf.experiments`, as agile_tf.sweep names them, or NAME alone. Ours are
solid lines, the mean over seeds in a band of one standard deviation of the
seeds; the paper's are dashed.
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
from absl import logging
from matplotlib import axes
from matplotlib import figure
import numpy as np

from agile_tf import config as config_lib
from agile_tf import curves
from agile_tf import experiments
from agile_tf import paper

_END_ROWS = 10  # The rows whose mean is a run's end.
_SHORT = 0.1  # Of the paper's steps: shorter runs have an axis of their own.

_COLUMNS = {
    'success_rate': 'success rate', 'reward_model_accuracy': 'accuracy',
    'false_positives': 'false positives', 'false_negatives': 'false negatives'}


# What the table has, with what a line says of it.
_TABLE_COLUMNS = {
    'success_rate': '',
    'reward_model_accuracy': ": the reward model's accuracy",
    'false_positives': ': its false positives',
    'false_negatives': ': its false negatives'}


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


def _name_and_seed(path: str) -> tuple[str, int]:
  """Tells from its name, or its configuration, which run this is."""
  base = os.path.basename(os.path.abspath(path))
  match = re.fullmatch(r'(\w+?)(?:_seed(\d+))?(?:\.csv)?', base)
  if not match or match[1] not in experiments.SETTINGS:
    raise FigureError(
        f'{path}: expected a run named NAME_seedN or NAME_seedN.csv, with '
        f'one of these names: {", ".join(experiments.SETTINGS)}.')
  if match[2]:
    return match[1], int(match[2])
  config = _config(path)
  return match[1], config.seed if config else 0


def _config(path: str) -> config_lib.Config | None:
  """Returns a run's configuration, if it is there."""
  config_path = os.path.join(path, 'config.json')
  return config_lib.load(config_path) if os.path.exists(config_path) else None


def load(paths: Sequence[str]) -> dict[str, list[Run]]:
  """Reads runs, by setting. Those without a row yet are left out.

  Raises:
    FigureError, ConfigError or CurveError: if a path is not a run of a known
      setting, or two do not belong together.
  """
  runs: dict[str, list[Run]] = {}
  for path in paths:
    if os.path.basename(path) == 'metrics.csv':
      path = os.path.dirname(os.path.abspath(path))
    name, seed = _name_and_seed(path)
    if os.path.isdir(path) and not os.path.exists(
        os.path.join(path, 'metrics.csv')):
      logging.warning('%s has no metrics.csv yet and is left out.', path)
      continue
    curve = curves.read(path)
    if not len(curve['steps']):
      logging.warning('%s has no row yet and is left out.', path)
      continue
    others = runs.setdefault(name, [])
    _check_belongs(path, seed, others)
    others.append(Run(
        path, name, seed, curve,
        _evaluations(path, experiments.SETTINGS[name])))
  return {name: found for name, found in runs.items() if found}


def _check_belongs(path: str, seed: int, others: Sequence[Run]) -> None:
  """Checks that a run can be averaged with others of its setting."""
  config = _config(path)
  for other in others:
    if other.seed == seed:
      raise FigureError(
          f'{path} and {other.path} are the same setting and seed: name one of '
          'them.')
    other_config = _config(other.path)
    if config is None or other_config is None:
      continue
    # Fine-tuning begins with a run of its own seed.
    own = ('--seed:', '--reward_model:', '--initial_policy:')
    differences = [
        line for line in config_lib.differences(other_config, config)
        if not line.startswith(own)]
    if differences:
      raise FigureError(
          f'{path} cannot be averaged with {other.path}, which was trained '
          f'with other settings: {"; ".join(differences)}.')


class Mean(NamedTuple):
  """A curve over seeds."""
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N]
  deviation: np.ndarray  # float64 [N], see `_deviation`
  complete: np.ndarray  # bool [N], whether all seeds have come so far


def _deviation(values: np.ndarray | Sequence[float]) -> np.ndarray:
  """Returns the seeds' standard deviation [...] of [seeds, ...], 0 for one."""
  values = np.asarray(values, float)
  count = np.isfinite(values).sum(axis=0)
  squares = np.nansum((values - np.nanmean(values, axis=0))**2, axis=0)
  return np.sqrt(squares / np.maximum(count - 1, 1))


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
  ends = [run.curve['steps'][-1] for run in runs]
  edges = curves.intervals(
      max(ends), max(len(run.curve['steps']) for run in runs))
  values = np.stack([curves.averaged(run.curve, column, edges)
                     for run in runs])
  drawn = np.isfinite(values).any(axis=0)
  values, last_steps = values[:, drawn], edges[1:][drawn]
  return Mean(
      last_steps, np.nanmean(values, axis=0), _deviation(values),
      last_steps - (edges[1] - edges[0]) / 2 <= min(ends))


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
      top.fill_between(curve.steps, curve.mean - curve.band,
                       curve.mean + curve.band, color=color, alpha=0.08,
                       linewidth=0)
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
      points.append((int(match[1]), np.mean(rates), _deviation(rates)))
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
             yerr=_deviation(ours[name]), capsize=3,
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

  def settings(name: str) -> tuple[str, ...]:
    """An experiment's, or those of its replica if more of them are there."""
    return max((experiments.EXPERIMENTS[name].names(laptop)
                for laptop in (False, True)),
               key=lambda names: sum(name in runs for name in names))

  drawings = {
      'figure4_left': draw_curves(
          runs, settings('figure4_left'), ['success_rate']),
      'figure4_middle': draw_curves(
          runs, settings('figure4_middle'), ['success_rate'])
                        if any('lstm' in name for name in runs) else None,
      'figure4_right': draw_curves(
          runs, settings('figure4_right'), ['reward_model_accuracy']),
      'figure5': draw_bars(
          runs.get('immovable', ()), {
              'before': 'before', 'changed': 'immovable red rects',
              'tuned': 'after fine-tuning'}, paper.IMMOVABLE),
      'figure7': draw_data_efficiency(runs),
      'figure8': draw_curves(
          runs, settings('figure4_right'),
          ['false_positives', 'false_negatives']),
      'arrangements': draw_curves(runs, ['arrangements'], ['success_rate']),
      'remarks': draw_curves(
          runs, settings('remarks'),
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
  return f'{100 * np.mean(known):.1f} ± {100 * _deviation(known):.1f} %'


def _percent(rate: float | None) -> str:
  return '' if rate is None else f'{100 * rate:.1f} %'


def table(runs: Mapping[str, Sequence[Run]]) -> str:
  """Lists every setting beside the paper, in Markdown.

  Success first, then the reward models, then what was evaluated.
  """
  lines = [
      '| | seeds | steps | ours, at the end | ours, best | paper, at the end | '
      'paper, in its text or best |',
      '| --- | --- | --- | --- | --- | --- | --- |']
  best_of_size = {f'data_{size}': rate
                  for size, rate in paper.data_efficiency().items()}
  for column, note in _TABLE_COLUMNS.items():
    for name, setting in experiments.SETTINGS.items():
      known = [run for run in runs.get(name, ())
               if np.isfinite(end(run, column))]
      published = paper.curve(name, column)
      if not known or note and published is None:
        continue
      best = [curves.best(run.curve) for run in known] if not note else []
      steps = sorted({int(run.curve['steps'][-1]) for run in known})
      lines.append(' | '.join([
          f'| {setting.label}{note}', str(len(known)),
          ' to '.join(f'{n:,}' for n in dict.fromkeys([steps[0], steps[-1]])),
          _spread([end(run, column) for run in known]),
          _spread([b.rate for b in best if b is not None]),
          _percent(None if published is None else float(published.mean[-1])),
          _percent(None if note else
                   paper.TEXT.get(name, best_of_size.get(name)))]) + ' |')
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
  except (FigureError, config_lib.ConfigError, curves.CurveError) as error:
    sys.exit(f'Error: {error}')
  except OSError as error:
    sys.exit(f'Error: --out={out} cannot be written: {error}.')
  print(text)
  print(f'{", ".join(drawings) or "No figure"}: in {out}.')


if __name__ == '__main__':
  define_flags()
  app.run(main)
