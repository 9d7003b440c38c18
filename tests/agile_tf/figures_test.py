"""Tests for figures: what they show of runs, the drawings and the table."""

import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import matplotlib
import numpy as np

from agile_tf import config as config_lib
from agile_tf import figures
from agile_tf.recipe import settings
from agile_tf.reproduction import drawing
from agile_tf.reproduction import paper
from agile_tf.reproduction import results
from gridlu import program
from tests.gridlu import programs


def _finished(name='relations', seed=0, instructions='', changes=None,
              **columns):
  """Returns an invented run with these columns and a row every ten steps."""
  count = len(next(iter(columns.values())))
  columns = {'steps': 10 * np.arange(1, count + 1)} | columns
  return results.Run(
      f'{name}_seed{seed}', seed,
      {key: np.array(value, float) for key, value in columns.items()}, {},
      config_lib.Config(instructions=instructions, **(changes or {})))


def _run(name='relations', seed=0, **columns):
  return _finished(name, seed, **({'success_rate': [.1, .5]} | columns))


def _of(lines, source):
  return [line for line in lines if line.source == source]


class LinesTest(parameterized.TestCase):

  def test_shows_what_there_is(self):
    runs = {
        name: [_run(name, seed, reward_model_accuracy=[.5, .8],
                    false_positives=[.4, .1], false_negatives=[.1, .1])
               for seed in range(2)]
        for name in ('relations', 'relations_lstm', 'data_512', 'remark_log')}
    found = figures.lines_of(runs)
    self.assertEqual(set(found), {
        'figure4_left', 'figure4_middle', 'figure4_right', 'figure7', 'figure8',
        'remarks'})
    self.assertEqual(
        [(line.agent, line.column, line.seed)
         for line in _of(found['figure8'], results.OURS)],
        [('AGILE, rho 25 %', column, seed)
         for column in ('false_positives', 'false_negatives')
         for seed in ('0', '1')])
    for line in _of(found['figure4_left'], results.OURS):
      np.testing.assert_allclose(line.points[:, :2], [[10, .1], [20, .5]])
    # What other figures show makes no figure of its own.
    del runs['remark_log'], runs['relations_lstm']
    self.assertNotIn('remarks', figures.lines_of(runs))
    self.assertNotIn('figure4_middle', figures.lines_of(runs))

  def test_runs_of_ones_own_are_in_a_figure_of_their_own(self):
    found = figures.lines_of({
        'mine': [_run('mine', reward_model_accuracy=[.5, .75])],
        'chess': [_run('chess', instructions='^Same')]})
    self.assertEqual([*found], ['runs'])
    self.assertEqual([line.agent for line in found['runs']],
                     ['mine', 'chess', 'mine', 'chess'])

  def test_figure_7_has_the_best_rate_of_each_seed(self):
    lines = figures.lines_of({
        f'data_{size}': [
            _finished(f'data_{size}', seed, success_rate=rates)
            for seed, rates in enumerate(([.1, .3, .2], [.1, .2, size / 4096]))]
        for size in (2048, 512)})['figure7']
    ours = _of(lines, results.OURS)
    np.testing.assert_allclose(
        [line.points[:, :2] for line in ours],
        [[[512, .3], [2048, .3]], [[512, .2], [2048, .5]]])
    published, = _of(lines, results.PAPER)
    self.assertIn([512, .1304], published.points[:, :2].tolist())

  def test_bars_are_of_their_own_group(self):
    rates = {'all': {'rate': .5}, '4 blocks': {'rate': .65},
             '8 blocks': {'rate': .3}}
    run = _run('arrangements')._replace(evaluations={
        'evaluation': {'steps': 1, 'success': rates}})
    lines = figures.lines_of({'arrangements': [run]})['arrangements_by_blocks']
    for source, expected in (
        (results.EVALUATED, {name: row['rate'] for name, row in rates.items()}),
        (results.PAPER, {'all': .58, '4 blocks': .92, '8 blocks': .24})):
      self.assertEqual({line.agent: line.points[0, 1]
                        for line in _of(lines, source)}, expected)

  @parameterized.parameters((1e6, 1), (1e8, None))
  def test_the_papers_curve_is_whole_or_its_end_for_short_runs(
      self, steps, expected):
    lines = figures.lines_of({'relations': [_run(steps=[steps / 2, steps])]})
    published, = _of(lines['figure4_left'], results.PAPER)
    whole = paper.curve('relations', 'success_rate')
    self.assertLen(published.points, expected or len(whole.steps))
    np.testing.assert_allclose(
        published.points[-1, :2], [whole.steps[-1], whole.mean[-1]])

  def test_long_runs_are_averaged_as_the_papers_curves(self):
    window = paper.curve('relations', 'success_rate').window
    steps = window * np.array([.6, 1.2, 1.8, 2.4])
    rates = [.1, .3, .5, .9]
    for instructions in '', '^North':
      lines = figures.lines_of({'relations': [_run(
          steps=steps, success_rate=rates, instructions=instructions)]}
      )['figure4_left']
      ours, = _of(lines, results.OURS)
      np.testing.assert_allclose(ours.points[:, 1], rates)
      # Another job than the paper's is not compared with its curve.
      self.assertLen(_of(lines, results.PAPER), 0 if instructions else 1)
      averaged = _of(lines, results.AVERAGED)
      self.assertLen(averaged, 0 if instructions else 1)
      for line in averaged:
        np.testing.assert_allclose(
            line.points[:, :2].T, [steps[1:], [.22, .42, .74]])

  def test_agile_that_predicts_rewards_is_called_agile_rp(self):
    lines = figures.lines_of({
        name: [_run(name, changes={'reward_prediction': True, **changes})]
        for name, changes in (
            ('relations_a3c_rp', {'reward': 'environment'}),
            ('relations_rho50', {}), ('data_512', {}))})
    for source in results.OURS, results.PAPER:
      self.assertEqual(
          [line.agent for line in _of(lines['figure4_left'], source)],
          ['A3C-RP', 'AGILE-RP, rho 50 %'])
    self.assertEqual({line.agent for line in lines['figure7']}, {'AGILE-RP'})


class CurvesTest(absltest.TestCase):

  def _curves(self, *runs, column='entropy'):
    return list(figures._curves({'mine': runs}, ['mine'], column))

  def test_seeds_have_the_same_intervals(self):
    rng = np.random.default_rng(0)
    steps = [10 * np.arange(1, 41) + rng.integers(0, 5, 40) for _ in range(3)]
    lines = self._curves(*(
        _finished(seed=i, steps=steps[i], entropy=[value] * 40)
        for i, value in enumerate((.2, .5, .8))))
    x, y = results.stack(lines)
    np.testing.assert_allclose(x, np.linspace(0, max(map(max, steps)), 41)[1:])
    np.testing.assert_allclose(y.T, [[.2, .5, .8]] * 40)

  def test_a_seed_is_missing_where_it_has_no_value(self):
    x, y = results.stack(self._curves(
        _finished(entropy=[1, 2, 3, 4]), _finished(entropy=[3, np.nan])))
    np.testing.assert_allclose(x, [10, 20, 30, 40])
    np.testing.assert_allclose(
        y, [[1, 2, 3, 4], [3, np.nan, np.nan, np.nan]])

  def test_evaluations_have_their_interval_if_it_is_known(self):
    success = {'all': {'rate': .5, 'interval': [.4, .7]}}
    for evaluations, expected in (
        ({'evaluation': {'steps': 30, 'success': success}}, [30, .5, .4, .7]),
        ({'evaluation': {'steps': 30, 'success': {'all': {'rate': .5}}}},
         [30, .5, np.nan, np.nan]),
        ({'evaluation': {'success': success}}, None), ({}, None)):
      lines = self._curves(
          _finished(success_rate=[.1])._replace(evaluations=evaluations),
          column='success_rate')
      found = [line.points for line in lines
               if line.source == results.EVALUATED]
      np.testing.assert_array_equal(found, [] if expected is None else [
          [expected]])


class TableTest(absltest.TestCase):

  def test_the_table_has_our_rates_beside_the_papers(self):
    published = paper.curve('relations', 'success_rate')
    window = published.window
    runs = [_run(seed=i, steps=window * np.array([.5, 1]),
                 success_rate=[.2, rate]) for i, rate in enumerate((.4, .6))]
    text = figures.table(figures.lines_of({'relations': runs}))
    self.assertIn(
        '| figure4_left | AGILE, rho 25 % | success_rate | '
        f'{window:,.0f}, {window:,.0f} | 35.0 ± 7.1 % | 50.0 ± 14.1 % |  | '
        '35.0 ± 7.1 % | 9.', text)
    # A longer run is compared after its own steps.
    runs[1] = _run(seed=1, steps=window * np.array([.5, 1, 1.5]),
                   success_rate=[.2, .6, .6])
    expected = np.mean(np.interp(
        [window, 1.5 * window], published.steps, published.mean))
    self.assertIn(f'| {100 * expected:.1f} % |', figures.table(
        figures.lines_of({'relations': runs})))
    for name, expected in (
        ('relations', '60 | 10.0 % | 90.0 %'),
        ('data_2048', 'AGILE, 2,048 goal examples | best_success_rate |  |  | '
         '90.0 % |  |  | 25.5 %')):
      self.assertIn(f'| {expected} |', figures.table(figures.lines_of(
          {name: [_run(success_rate=[.9] + [.1] * 5)]})))


class SaveTest(parameterized.TestCase):

  def test_the_users_matplotlibrc_changes_nothing(self):
    figures_of = {'mine': figures._curves(
        {'mine': [_run('mine')]}, ['mine'], 'success_rate')}
    lines = {name: list(each) for name, each in figures_of.items()}
    pictures = []
    for changes in {}, {
        'text.usetex': True, 'savefig.dpi': 20, 'savefig.facecolor': 'black',
        'font.size': 30, 'lines.linestyle': ':', 'axes.grid': True,
        'svg.hashsalt': 'x', 'savefig.bbox': 'tight'}:
      folder = self.create_tempdir().full_path
      with matplotlib.rc_context(changes):
        figures.save(folder, lines)
      with open(os.path.join(folder, 'mine.png'), 'rb') as file:
        pictures.append(file.read())
    self.assertEqual(*pictures)

  def _evaluated(self, name, evaluation, success):
    run_dir = self.create_tempdir(name)
    run_dir.create_file('metrics.csv', 'steps,success_rate\n10,0.5\n')
    config_lib.save(
        settings.saved(config_lib.Config(), settings.Recipe()),
        os.path.join(run_dir.full_path, 'config.json'))
    run_dir.create_file(
        f'{evaluation}.json', json.dumps({'success': success}))
    return run_dir.full_path

  def test_a_figure_has_the_title_of_the_text_file_beside_its_csv(self):
    folder = self.create_tempdir().full_path
    lines = figures.lines_of({'mine': [_run('mine')]})
    figures.save(folder, lines, {'runs': 'Mine learns.'})
    with open(os.path.join(folder, 'runs.txt'), encoding='utf-8') as file:
      self.assertEqual(file.read(), 'Mine learns.\n')
    again = self.create_tempdir().full_path
    with mock.patch.object(drawing, 'draw', wraps=drawing.draw) as draw:
      programs.call(
          figures, os.path.join(folder, 'runs.csv'), f'--out={again}')
    self.assertEqual(draw.call_args.args[1], 'Mine learns.')

  def test_a_title_that_cannot_be_read_is_refused(self):
    folder = self.create_tempdir().full_path
    figures.save(folder, figures.lines_of({'mine': [_run('mine')]}))
    title = os.path.join(folder, 'runs.txt')
    for make, problem in (
        (os.mkfifo, 'it is a named pipe'),
        (lambda path: os.symlink('/dev/zero', path), 'it is a device'),
        (lambda path: pathlib.Path(path).write_text('x' * 10**6, 'utf-8'),
         '1,000,000 bytes; expected at most 10,000')):
      make(title)
      self.assertRegex(
          programs.call(figures, os.path.join(folder, 'runs.csv'),
                        f'--out={folder}').stderr,
          f'runs.txt, the title of .*runs.csv, cannot be read .*{problem}')
      os.remove(title)

  def test_lines_that_no_figure_has_together_are_refused(self):
    head = 'agent,source,seed,column,x,y,low,high\n'
    for rows, problem in (
        ('A,ours,0,success_rate,1,.5,,\nA,evaluated,0,rate,2,.5,,\n',
         'rates besides curves of success_rate'),
        ('A,ours,0,rate,1,.5,,\n',
         "a source of 'rate' is ours; expected evaluated or paper"),
        ('A,paper,,success_rate,1,.5,,\n',
         "success_rate has one point of the paper's alone"),
        ('A,ours,0,best_success_rate,0,.5,,\n',
         'an x of best_success_rate is below 1')):
      path = self.create_tempfile('other.csv', head + rows).full_path
      self.assertIn(
          f'{path} cannot be drawn: ', found := programs.call(
              figures, path, f'--out={path}.d').stderr)
      self.assertIn(problem, found)

  def test_names_of_all_kinds_are_drawn(self):
    runs = {'n' * 240: [_run()], 'a\nb|c': [_run()]}
    mine = figures.lines_of({'mine': [_run()]})['runs']
    text = figures.table(figures.lines_of(runs) | {'caf\udce9': mine})
    self.assertLen(text.splitlines(), 5)
    self.assertIn('| a b&#124;c |', text)
    self.assertIn(r'| caf\udce9 |', text)

  def test_a_backend_that_there_is_not_is_named(self):
    found = subprocess.run(
        [sys.executable, '-m', 'agile_tf.figures', '--help'],
        env=os.environ | {'MPLBACKEND': 'bogus'}, capture_output=True,
        text=True)
    self.assertEqual(found.returncode, 1)
    self.assertRegex(found.stderr, "^Error: .*'bogus'.* Unset MPLBACKEND")

  def test_figures_are_drawn_again_from_their_csv(self):
    group = {'rate': .5, 'interval': [.4, .7]}
    runs = [
        self._evaluated('immovable_seed0', 'tuned', {'all': group}),
        self._evaluated('arrangements_seed0', 'evaluation', {
            'all': group, '4 blocks': group | {'rate': .65}})]
    out, again = (self.create_tempdir(name).full_path for name in 'ab')
    programs.call(figures, *runs, f'--out={out}')
    names = ['arrangements', 'arrangements_by_blocks', 'figure5']
    files = sorted([
        'arrangements.txt', 'figure5.txt',  # Their titles.
        *(f'{name}.{kind}' for name in names
          for kind in ('csv', 'png', 'svg'))])
    self.assertEqual(sorted(os.listdir(out)), [*files, 'table.md'])
    programs.call(figures, f'--out={again}',
                  *(os.path.join(out, f'{name}.csv') for name in names))
    for file in files:
      if not file.endswith('.svg'):  # They have the date.
        with open(os.path.join(out, file), 'rb') as a, open(
            os.path.join(again, file), 'rb') as b:
          self.assertEqual(a.read(), b.read(), file)
    made = os.path.join(out, 'figure5.csv')
    self.assertIn(f'{made}: there is a figure figure5 already', programs.call(
        figures, runs[0], made, f'--out={again}').stderr)
    bars = results.read_lines(made)
    rates = {(line.agent, line.source): line.points[0, 1] for line in bars
             if len(line.points)}
    with self.assertRaisesRegex(program.UserError, 'cannot be written'):
      figures.save(os.path.join(out, files[0]), {})
    self.assertEqual(rates, {
        ('before', 'paper'): .98, ('immovable', 'paper'): .52,
        ('fine-tuned', 'paper'): .693, ('fine-tuned', 'evaluated'): .5})
