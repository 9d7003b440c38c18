"""Tests for results: which runs belong together, and the lines of figures."""

import contextlib
import io
import os
import pathlib

from absl.testing import absltest
import numpy as np

from agile_tf import config as config_lib
from agile_tf.recipe import settings
from agile_tf.reproduction import drawing
from agile_tf.reproduction import results
from gridlu import program


class PublishedTest(absltest.TestCase):

  def test_figures_can_be_drawn_again(self):
    folder = pathlib.Path(__file__).parents[3] / 'launch/results/figures'
    paths = list(folder.glob('*.csv'))
    self.assertNotEmpty(paths)
    for path in paths:
      drawn = drawing.draw(results.read_lines(str(path)))
      self.assertNotEmpty([ax for ax in drawn.axes if ax.get_visible()], path)


class LoadTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = self.create_tempdir()

  def _run(self, name, config=None, metrics='steps,entropy\n10,1\n'):
    run_dir = self._folder.mkdir(name)
    if metrics:
      run_dir.create_file('metrics.csv', metrics)
    config_lib.save(
        settings.saved(config or config_lib.Config(), settings.Recipe()),
        os.path.join(run_dir.full_path, 'config.json'))
    return run_dir.full_path

  def test_runs_are_taken_from_anywhere(self):
    paths = [
        self._run('relations', config_lib.Config(seed=7)),
        self._run('relations_seed2', config_lib.Config(seed=2)),
        self._run('relations_seed5', metrics=''),
        self._run('relations_seed6', metrics='steps,entropy\n'),
        self._run('my-run.2'), self._run('chess_seed3')]
    with contextlib.redirect_stderr(io.StringIO()) as printed:
      runs = results.runs_by_variant(paths)
    for seed, line in zip(
        (5, 6), printed.getvalue().splitlines(), strict=True):
      self.assertIn(f'relations_seed{seed} has no row of metrics yet', line)
    self.assertEqual(
        {name: [run.seed for run in found] for name, found in runs.items()},
        {'relations': [7, 2], 'my-run.2': [0], 'chess': [0]})

  def test_a_name_that_is_no_utf_8_is_written_as_it_can_be(self):
    named, = results.runs_by_variant([self._run('caf\udce9_seed3')])
    self.assertEqual(named, r'caf\udce9')

  def test_seeds_differ_in_where_they_begin_alone(self):
    def config(seed, **changes):
      return config_lib.Config(
          seed=seed, reward='frozen', reward_model=f'relations_seed{seed}',
          initial_policy=f'relations_seed{seed}', **changes)

    paths = [self._run(f'immovable_seed{seed}', config(seed))
             for seed in range(2)]
    self.assertLen(results.runs_by_variant(paths)['immovable'], 2)
    paths.append(self._run('immovable_seed2', config(2, episode_length=9)))
    with self.assertRaisesRegex(
        program.UserError, 'other settings: --episode_length: 30 there, 9'):
      results.runs_by_variant(paths)

  def test_missing_runs_and_runs_given_twice_are_refused(self):
    with self.assertRaisesRegex(program.UserError, 'There is no .*config.json'):
      results.runs_by_variant([os.path.join(self._folder.full_path, 'no_run')])
    with self.assertRaisesRegex(program.UserError, 'same variant and seed'):
      results.runs_by_variant(
          [self._run('relations'), self._run('relations_seed0')])

  def test_files_that_are_no_evaluation_are_refused(self):
    for seed, text in enumerate((
        '{', '[]', '5', '[' * 10_000, '{"success": {}}', '{"success": null}',
        '{"success": {"all": {"rate": null}}}',
        '{"success": {"all": {"rate": 7}}}',
        '{"success": {"all": {"rate": NaN}}}',
        '{"success": {"all": {"rate": 1, "interval": [-0.5, 1]}}}',
        '{"success": {"all": {"rate": 1, "interval": [1]}}}',
        '{"success": {"all": {"rate": 1}, "go-to": 3}}',
        '{"success": {"all": {"rate": 1}}, "steps": "x"}')):
      run_dir = self._run(f'immovable_seed{seed}')
      with open(os.path.join(run_dir, 'tuned.json'), 'w') as file:
        file.write(text)
      with self.assertRaisesRegex(
          program.UserError, 'tuned.json has no success rate'):
        results.runs_by_variant([run_dir])

  def test_special_files_are_no_evaluation(self):
    run_dir = self._run('immovable_seed0')
    os.mkfifo(os.path.join(run_dir, 'tuned.json'))
    with self.assertRaisesRegex(program.UserError, 'tuned.json .*named pipe'):
      results.runs_by_variant([run_dir])

  def test_a_world_without_ground_truth_has_no_success(self):
    run_dir = self._run('relations_seed0')
    with open(os.path.join(run_dir, 'evaluation.json'), 'w') as file:
      file.write('{"steps": 10}')
    (run,), = results.runs_by_variant([run_dir]).values()
    self.assertEmpty(run.evaluations)


class LinesTest(absltest.TestCase):

  def test_a_point_that_is_no_number_is_named(self):
    path = os.path.join(self.create_tempdir().full_path, 'figure.csv')
    head = 'agent,source,seed,column,x,y,low,high\n'
    for text, problem in (
        (f'{head}a,ours,0,y,1,.5,,\na,ours,0,y,2,abc,,\n',
         "line 3: y is 'abc'; expected a number"),
        (f'{head}a,ours,0,y,,.5,,\n', "line 2: x is ''"),
        (f'{head}a,ours,0,y,inf,.5,,\n', "line 2: x is 'inf'"),
        (f'{head}a,ours,0,y,nan,.5,,\n', "line 2: x is 'nan'; expected a num"),
        (f'{head}a,ours,0,y,-1,.5,,\n', 'x is .* from 0 to'),
        (f'{head}a,ours,0,y,1,42,,\n', "y is '42'; expected .* from 0 to 1"),
        (f'{head}a,ours,0,y,1,,,\n', "line 2: y is ''"),
        (f'{head}a,ours,0,y,1,.5,-1e9,\n', "low is '-1e9'.*from -1 to 1"),
        (f'{head}a,theirs,0,y,1,.5,,\n',
         "line 2: source is 'theirs'; expected one of ours, averaged, "),
        (head, 'it has no rows'), ('a,b\n1,2\n', 'the first line is not')):
      pathlib.Path(path).write_text(text, 'utf-8')
      with self.assertRaisesRegex(program.UserError, problem):
        results.read_lines(path)

  def test_lines_are_written_and_read(self):
    path = os.path.join(self.create_tempdir().full_path, 'figure.csv')
    lines = [
        results.Line.of('A, "B"', results.OURS, 3, 'entropy', [1, 2], [.1, .2]),
        results.Line.of('A', results.PAPER, '', 'entropy', 5, .5, .4, .6)]
    results.write_lines(path, lines)
    for found, line in zip(results.read_lines(path), lines, strict=True):
      self.assertEqual(found[:4], line[:4])
      np.testing.assert_allclose(found.points, line.points)

  def test_other_csv_files_are_refused(self):
    head = 'agent,source,seed,column,x,y,low,high\n'
    for text in ('', 'run,seed\na,1\n', head,
                 head + 'A,ours,0,x,many,1,,\n'):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(program.UserError, 'the CSV file of a fig'):
        results.read_lines(path)
