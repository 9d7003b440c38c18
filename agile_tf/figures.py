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
drawn to their end if our runs have its instructions and reach the step of its
first average. For shorter runs a dashed line shows how high the paper's curve
is at its end.

The sentence on top of a figure is its experiment's title. That of a figure that
is drawn from NAME.csv is the text of NAME.txt, if there is one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import os
import re
from typing import NamedTuple

from absl import flags
import numpy as np

from agile_tf.reproduction import curves
from agile_tf.reproduction import drawing
from agile_tf.reproduction import experiments
from agile_tf.reproduction import paper
from agile_tf.reproduction import results
from gridlu import files
from gridlu import flagfiles
from gridlu import program

_MOST_TITLE = 10_000  # The most bytes of a title that are read.
_Runs = Mapping[str, Sequence[results.Run]]  # The keys are variants.

_SUCCESS, _ACCURACY = 'success_rate', 'reward_model_accuracy'

# Each figure of curves shows these columns of the runs of an experiment.
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


class _Bar(NamedTuple):
  """A rate of a run, and of the paper."""
  label: str
  evaluation: str  # One of the variant's `evaluations`.
  group: str  # The group of its episodes.
  published: float = np.nan  # The paper's rate.


class _BarChart(NamedTuple):
  """What a bar chart shows."""
  variant: str
  y_label: str
  bars: tuple[_Bar, ...]


_BAR_CHARTS = {
    'figure5': _BarChart('immovable', 'success rate', tuple(
        _Bar(label, name, 'all', paper.IMMOVABLE[name])
        for name, label in (('before', 'before'), ('changed', 'immovable'),
                            ('tuned', 'fine-tuned')))),
    **{f'{name}_by_blocks': _BarChart(
        name, 'success rate (paper: best of 10, by people)', tuple(
            _Bar(group, 'evaluation', group, rate)
            for group, rate in paper.ARRANGEMENTS.items()))
       for name in ('arrangements', 'arrangements_evening')},
    **{f'held_out_{way}': _BarChart(f'held_out_{way}', 'success rate', (
        _Bar('trained on', 'seen', 'all'),
        _Bar('held out', 'held_out', 'all')))
       for way in ('strings', 'meanings')},
}


def lines_of(runs: _Runs) -> dict[str, list[results.Line]]:
  """Returns what each figure shows of the runs.

  A figure is only made if it shows a curve that the ones before it do not.
  """
  found: dict[str, list[results.Line]] = {}
  shown: set[tuple[str, str]] = set()
  # Runs of no variant have names of the user's own.
  own = [name for name in runs if name not in experiments.VARIANTS]
  for figure_name, (experiment, columns) in _CURVES.items():
    names = dict.fromkeys(
        name for recipe in (False, True)
        for name in experiments.EXPERIMENTS[experiment].names(recipe)
        if name in runs)
    pairs = {(name, column) for name in names for column in columns}
    if pairs - shown:
      found[figure_name] = [
          line for column in columns for line in _curves(runs, names, column)]
    shown |= pairs
  found['runs'] = [line for column in (_SUCCESS, _ACCURACY)
                   for line in _curves(runs, own, column)]
  found['figure7'] = list(_data_efficiency(runs))
  for figure_name, chart in _BAR_CHARTS.items():
    found[figure_name] = list(_bars(runs, chart))
  return {name: lines for name, lines in found.items()
          if any(line.source != results.PAPER and len(line.points)
                 for line in lines)}


def _label(label: str, run: results.Run) -> str:
  """Returns an agent's name: AGILE-RP if AGILE learns to predict its reward.

  The paper's AGILE does not do so. Its curve gets this name too, so that it is
  drawn in the agent's panel.
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
    if not of_variant[0].on_papers_instructions:
      published = None
    edges = curves.intervals(
        max(run.curve['steps'][-1] for run in of_variant),
        max(len(run.curve['steps']) for run in of_variant))
    begins, ends = edges[:-1], edges[1:]
    for run in of_variant:
      yield results.Line.of(label, results.OURS, run.seed, column, ends,
                            curves.averaged(run.curve, column, begins, ends))
      if published is not None and longest >= published.steps[0]:
        # A mean may lack 1 % of its steps: the first rows have no rate if no
        # episode has ended yet, and the last row ends a little before or after
        # the interval does.
        yield results.Line.of(
            label, results.AVERAGED, run.seed, column, ends, curves.averaged(
                run.curve, column, ends - published.window, ends, least=0.99))
      evaluation = run.evaluations.get('evaluation', {})
      if column == _SUCCESS and 'steps' in evaluation:
        yield results.Line.of(
            label, results.EVALUATED, run.seed, column, evaluation['steps'],
            *results.rate(evaluation, 'all'))
    if published is not None:
      # For shorter runs only the last point is drawn, as a dashed line.
      shown = slice(None) if longest >= published.steps[0] else slice(-1, None)
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
    points = [(size, curves.best(run.curve)) for size, name in sizes
              for run in runs[name] if run.seed == seed]
    x, y = zip(*points)
    yield results.Line.of(label, results.OURS, seed, drawing.BEST, x, y)
  if first.on_papers_instructions:
    yield results.Line.of(label, results.PAPER, '', drawing.BEST,
                          *zip(*paper.data_efficiency().items()))


def _bars(runs: _Runs, chart: _BarChart) -> Iterator[results.Line]:
  """Yields the rates of a bar chart, whose column is the label of its axis."""
  measured, column = runs.get(chart.variant, ()), chart.y_label
  for i, bar in enumerate(chart.bars):
    for run in measured:
      if found := run.evaluations.get(bar.evaluation):
        yield results.Line.of(bar.label, results.EVALUATED, run.seed, column,
                              i, *results.rate(found, bar.group))
    if measured and measured[0].on_papers_instructions:
      yield results.Line.of(
          bar.label, results.PAPER, '', column, i, bar.published)


def table(figures: Mapping[str, Sequence[results.Line]]) -> str:
  """Returns a Markdown table of all curves and bars.

  The paper's rate is read from its curve at the step where each seed ends, and
  averaged over the seeds. If some seeds are averaged as the paper's, only these
  count.
  """
  rows = [['figure', 'agent', 'column', 'steps', 'last 5 points', 'best',
           'evaluated', "averaged as the paper's", 'the paper'], ['---'] * 9]
  for name, lines in figures.items():
    # The points of each line, by row of the table and then by source. A row is
    # an agent and a column.
    shown: dict[tuple[str, str], dict[str, list[np.ndarray]]] = {}
    for line in lines:
      parts = {line.agent: line.points} if len(line.points) else {}
      if line.column == drawing.BEST:  # Each point is an agent of its own.
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
      timed = ours if column != drawing.BEST else []  # x is the policy's steps.
      # The best of an error rate would be its lowest, so it has none here.
      rated = ours if 'false' not in column else []
      rows.append([
          name, agent, column, ', '.join(f'{run[-1, 0]:,.0f}' for run in timed),
          _spread([run[-5:, 1].mean() for run in timed]),
          _spread([run[:, 1].max() for run in rated]),
          *(_spread([run[-1, 1] for run in found])
            for found in (evaluated, averages)),
          _spread([np.interp(ends, curve[:, 0], curve[:, 1], left=np.nan).mean()
                   for curve in published])])
  return '\n'.join(f'| {" | ".join(map(_cell, row))} |' for row in rows)


def _cell(text: str) -> str:
  """Returns a text for the table, as UTF-8 can have it, in one line."""
  return program.printable(text).replace('\n', ' ').replace('|', '&#124;')


def _spread(rates: Sequence[float]) -> str:
  """Returns mean and standard deviation over seeds as text."""
  if not np.isfinite(rates).any():
    return ''
  spread = f' ± {100 * np.std(rates, ddof=1):.1f}' if len(rates) > 1 else ''
  return f'{100 * np.mean(rates):.1f}{spread} %'


def save(out: str, figures: Mapping[str, Sequence[results.Line]],
         titles: Mapping[str, str] | None = None) -> None:
  """Writes figures, their CSV files, titles and the table to a directory."""
  try:
    os.makedirs(out, exist_ok=True)
    for name, lines in figures.items():
      title = (titles or {}).get(name, '')
      drawn = drawing.draw(lines, title)
      for kind in 'png', 'svg':
        path = os.path.join(out, f'{name}.{kind}')
        with files.replacing(path, 'wb') as file, drawing.own_style():
          drawn.savefig(file, format=kind)
      results.write_lines(os.path.join(out, f'{name}.csv'), lines)
      if title:
        with files.replacing(os.path.join(out, f'{name}.txt')) as file:
          file.write(f'{title}\n')
    with files.replacing(os.path.join(out, 'table.md')) as file:
      file.write(f'{table(figures)}\n')
  except OSError as error:
    raise program.UserError(
        f'--out={out} cannot be written: {error}. Name a directory that can '
        'be written.') from error


def _title(name: str) -> str:
  """Returns the title of a figure of runs."""
  experiment = 'figure4_right' if name == 'figure8' else name
  if experiment in experiments.EXPERIMENTS:
    return experiments.EXPERIMENTS[experiment].title
  return ''


def _read_title(path: str) -> str:
  """Returns the text of the file NAME.txt beside NAME.csv; '' without one."""
  title_path = path.removesuffix('.csv') + '.txt'
  try:
    text = files.read(title_path, _MOST_TITLE).decode()
    return program.printable(' '.join(text.split()))
  except FileNotFoundError:
    return ''
  except (OSError, ValueError) as error:
    raise program.UserError(
        f'{title_path}, the title of {path}, cannot be read ({error}): '
        'expected a text in UTF-8. Remove it to draw without a title.'
        ) from error


def _read_lines(path: str) -> list[results.Line]:
  """Reads the lines of NAME.csv; UserError if no figure has them together."""
  lines = results.read_lines(path)
  of_curves = [line for line in lines if line.column in drawing.CURVES]
  # A paper's line of one point is only a height to compare with.
  curves_of = {line.column for line in of_curves
               if line.source != results.PAPER or len(line.points) > 1}
  problem = ''
  if of_curves and len(of_curves) < len(lines):
    problem = (f'it has rates besides curves of {of_curves[0].column}; '
               'expected either')
  elif not of_curves and (others := [
      line.source for line in lines
      if line.source not in (results.EVALUATED, results.PAPER)]):
    problem = (f'a source of {lines[0].column!r:.100} is {others[0]}; expected '
               f'{results.EVALUATED} or {results.PAPER}, because that is no '
               'column of curves')
  elif missing := {line.column for line in of_curves} - curves_of:
    problem = (f"{min(missing)} has one point of the paper's alone; expected "
               'a curve to compare with it')
  elif any(line.column == drawing.BEST and line.points[:, 0].min() < 1
           for line in lines):
    problem = f'an x of {drawing.BEST} is below 1; expected goal examples'
  if problem:
    raise program.UserError(f'{path} cannot be drawn: {problem}.')
  return lines


def _define_flags() -> None:
  program.define_path(
      'out', None, 'The directory for the figures and the table.',
      required=True)


@program.main(_define_flags, arguments=True, expand=flagfiles.expand)
def main(arguments: Sequence[str]) -> None:
  """Draws the figures of the runs, or CSV files, given as arguments."""
  if not arguments:
    raise program.UserError('Name the runs, such as runs/*_seed*.')
  files.check_directory('out', flags.FLAGS.out)
  paths = list(map(program.clean_path, arguments))
  drawn = [path for path in paths if path.endswith('.csv')]
  figures = lines_of(results.runs_by_variant(
      [path for path in paths if path not in drawn]))
  titles = {name: _title(name) for name in figures}
  for path in drawn:
    name = os.path.basename(path).removesuffix('.csv')
    if name in figures:
      raise program.UserError(
          f'{path}: there is a figure {name} already. Draw the file alone, '
          'with another --out.')
    figures[name] = _read_lines(path)
    titles[name] = _read_title(path)
  save(flags.FLAGS.out, figures, titles)
  print(program.printable(table(figures)))
  print(program.printable(
      f'{", ".join(figures) or "No figure"}: in {flags.FLAGS.out}.'))


if __name__ == '__main__':
  main()
