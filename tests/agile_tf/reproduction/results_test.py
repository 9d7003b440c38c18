"""Tests for results: which runs belong together, and the lines of figures."""

import contextlib
import dataclasses
import io
import os
import pathlib

from absl.testing import absltest
import numpy as np

from agile_tf import config as config_lib
from agile_tf import figures
from agile_tf.reproduction import results
from gridlu import program


class PublishedTest(absltest.TestCase):

  def test_figures_can_be_drawn_again(self):
    folder = pathlib.Path(__file__).parents[3] / 'launch/results/figures'
    paths = list(folder.glob('*.csv'))
    self.assertNotEmpty(paths)
    for path in paths:
      for panel in figures.draw(results.read(str(path))).axes:
        self.assertNotEmpty(panel.get_xlabel())  # All are curves: no bars.


class LoadTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = self.create_tempdir()

  def _run(self, name, config=None, metrics='steps,entropy\n10,1\n'):
    run_dir = self._folder.mkdir(name)
    if metrics:
      run_dir.create_file('metrics.csv', metrics)
    config_lib.save(dataclasses.asdict(config or config_lib.Config()),
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
      runs = results.load(paths)
    for seed, line in zip(
        (5, 6), printed.getvalue().splitlines(), strict=True):
      self.assertIn(f'relations_seed{seed} has no row of metrics yet', line)
    self.assertEqual(
        {name: [run.seed for run in found] for name, found in runs.items()},
        {'relations': [7, 2], 'my-run.2': [0], 'chess': [0]})

  def test_seeds_differ_in_where_they_begin_alone(self):
    def config(seed, **changes):
      return config_lib.Config(
          seed=seed, reward='frozen', reward_model=f'relations_seed{seed}',
          initial_policy=f'relations_seed{seed}', **changes)

    paths = [self._run(f'immovable_seed{seed}', config(seed))
             for seed in range(2)]
    self.assertLen(results.load(paths)['immovable'], 2)
    paths.append(self._run('immovable_seed2', config(2, episode_length=9)))
    with self.assertRaisesRegex(
        program.UserError, 'other settings: --episode_length: 30 there, 9'):
      results.load(paths)

  def test_refuses(self):
    with self.assertRaisesRegex(program.UserError, 'There is no .*config.json'):
      results.load([os.path.join(self._folder.full_path, 'no_run')])
    with self.assertRaisesRegex(program.UserError, 'same variant and seed'):
      results.load([self._run('relations'), self._run('relations_seed0')])

  def test_refuses_what_is_no_evaluation(self):
    for seed, text in enumerate((
        '{', '[]', '{"success": {}}', '{"success": {"all": {"rate": null}}}')):
      run_dir = self._run(f'immovable_seed{seed}')
      with open(os.path.join(run_dir, 'tuned.json'), 'w') as file:
        file.write(text)
      with self.assertRaisesRegex(
          program.UserError, 'tuned.json has no success rate'):
        results.load([run_dir])

  def test_a_world_without_ground_truth_has_no_success(self):
    run_dir = self._run('relations_seed0')
    with open(os.path.join(run_dir, 'evaluation.json'), 'w') as file:
      file.write('{"steps": 10}')
    (run,), = results.load([run_dir]).values()
    self.assertEmpty(run.evaluations)


class LinesTest(absltest.TestCase):

  def test_lines_are_written_and_read(self):
    path = os.path.join(self.create_tempdir().full_path, 'figure.csv')
    lines = [
        results.Line.of('A, "B"', results.OURS, 3, 'entropy', [1, 2], [.1, .2]),
        results.Line.of('A', results.PAPER, '', 'entropy', 5, .5, .4, .6)]
    results.write(path, lines)
    for found, line in zip(results.read(path), lines, strict=True):
      self.assertEqual(found[:4], line[:4])
      np.testing.assert_allclose(found.points, line.points)

  def test_refuses_other_files(self):
    head = 'agent,source,seed,column,x,y,low,high\n'
    for text in ('', 'run,seed\na,1\n', head,
                 head + 'A,ours,0,x,many,1,,\n'):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(program.UserError, 'the CSV file of a fig'):
        results.read(path)
