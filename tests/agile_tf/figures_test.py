"""Tests for figures: the numbers that are drawn, and what is refused."""

import json
import os

from absl.testing import absltest
import numpy as np

from agile_tf import config as config_lib
from agile_tf import figures


def _run(name='relations', seed=0, instructions='', **columns):
  count = len(next(iter(columns.values())))
  columns = {'steps': 10 * np.arange(1, count + 1)} | columns
  return figures.Run(
      f'{name}_seed{seed}', name, seed,
      {key: np.array(value, float) for key, value in columns.items()}, {},
      config_lib.Config(instructions=instructions))


def _solid(drawing):
  return [line for ax in drawing.axes for line in ax.lines
          if line.get_linestyle() == '-']


def _dashed(drawing):
  return [line for ax in drawing.axes for line in ax.lines
          if line.get_linestyle() == '--' and len(line.get_xdata())]


class FiguresTest(absltest.TestCase):

  def test_mean_over_seeds(self):
    mean = figures.mean_curve(
        [_run(entropy=[1, 2, 3, 4]), _run(entropy=[3, 2]),
         _run(entropy=[np.nan] * 4)], 'entropy')
    np.testing.assert_allclose(mean.mean, [2, 2, 3, 4])
    np.testing.assert_allclose(mean.deviation, [2**.5, 0, 0, 0])
    np.testing.assert_allclose(mean.steps, [10, 20, 30, 40], atol=.3)
    np.testing.assert_array_equal(mean.complete, [True, True, False, False])

  def test_rows_of_threads_stand_where_they_happen_to(self):
    rng = np.random.default_rng(0)
    steps = [10 * np.arange(1, 41) + rng.integers(0, 5, 40) for _ in range(3)]
    mean = figures.mean_curve(
        [_run(seed=i, steps=steps[i], entropy=[value] * 40)
         for i, value in enumerate((.2, .5, .8))], 'entropy')
    np.testing.assert_allclose(mean.mean, .5)
    np.testing.assert_allclose(mean.deviation, .3)
    self.assertTrue(mean.complete.all())

  def test_close_rows_are_averaged(self):
    values = np.random.default_rng(0).uniform(size=10_000)
    mean = figures.mean_curve([_run(entropy=values)], 'entropy')
    self.assertLen(mean.mean, 100)
    np.testing.assert_allclose(
        mean.mean, values.reshape(100, 100).mean(axis=1))

  def test_nothing_to_average(self):
    self.assertIsNone(figures.mean_curve([_run(entropy=[1])], 'success_rate'))
    self.assertIsNone(figures.mean_curve([], 'entropy'))

  def test_end_is_the_mean_of_the_last_rows(self):
    values = np.arange(100.)
    values[95] = np.nan
    self.assertEqual(
        figures.end(_run(entropy=values), 'entropy'),
        np.mean([89, 90, 91, 92, 93, 94, 96, 97, 98, 99]))
    self.assertTrue(np.isnan(figures.end(_run(entropy=values), 'none')))

  def test_draws_what_there_is(self):
    runs = {
        name: [_run(name, seed, success_rate=[.1, .5, .7],
                    reward_model_accuracy=[.5, .8, .9],
                    false_positives=[.4, .1, .1],
                    false_negatives=[.1, .1, 0]) for seed in range(2)]
        for name in ('relations', 'relations_lstm', 'data_512', 'remark_log')}
    drawings = figures.draw(runs)
    self.assertEqual(set(drawings), {
        'figure4_left', 'figure4_middle', 'figure4_right', 'figure7', 'figure8',
        'remarks'})
    whole, complete = _solid(drawings['figure4_left'])
    for ours in whole, complete:
      np.testing.assert_allclose(ours.get_ydata(), [.1, .5, .7])
    # The paper's five stand there, whatever there is of ours.
    ends = sorted(line.get_ydata()[-1]
                  for line in _dashed(drawings['figure4_left']))
    np.testing.assert_allclose(
        ends, [.874, .876, .947, .990, .996], atol=.001)

  def test_runs_of_the_papers_job_share_its_axis(self):
    run = _run('relations', steps=[1e7, 4e7], success_rate=[.1, .2])
    drawing = figures.draw({'relations': [run]})['figure4_left']
    self.assertLen(drawing.axes, 1)
    self.assertEqual(drawing.axes[0].get_title(), '')
    self.assertGreater(drawing.axes[0].get_xlim()[1], 4e8)

  def test_a_smaller_job_has_an_axis_of_its_own_and_says_so(self):
    small = _run('relations', success_rate=[.1, .2], instructions='^North')
    drawing = figures.draw({'relations': [small]})['figure4_left']
    self.assertLen(drawing.axes, 2)
    self.assertIn('smaller job', drawing.axes[0].get_title())
    self.assertIn('| `^North` |', figures.table({'relations': [small]}))
    whole = _run('relations_a3c', success_rate=[.1, .2])
    with self.assertRaisesRegex(figures.FigureError, 'draw them apart'):
      figures.draw({'relations': [small], 'relations_a3c': [whole]})

  def test_table(self):
    text = figures.table({'relations': [
        _run(seed=0, success_rate=[.2, .9, .6],
             reward_model_accuracy=[1, .5, 0]),
        _run(seed=1, success_rate=[.2, .7, .4])]})
    _, _, success, accuracy = text.splitlines()
    self.assertEqual(
        success, "| AGILE, rho 25 % | the paper's | 2 | 30 | 50.0 ± 9.4 % | "
        '80.0 ± 14.1 % |  | 99.0 % | 99.5 % |')  # 1.7 / 3 and 1.3 / 3.
    self.assertEqual(
        accuracy, "| AGILE, rho 25 %: the reward model's accuracy | the "
        "paper's | 1 | 30 | 50.0 % | 100.0 % |  | 99.0 % | 99.5 % |")

  def test_unfinished_runs_stand_beside_the_paper_after_as_many_steps(self):
    run = _run(steps=[1e8, 2e8], success_rate=[.5, .7])
    row = figures.table({'relations': [run]}).splitlines()[-1]
    self.assertTrue(row.endswith('| 93.7 % | 99.0 % | 99.5 % |'), row)

  def _evaluated(self, name, seed, evaluation, success):
    run_dir = self.create_tempdir(f'{name}_seed{seed}')
    run_dir.create_file('metrics.csv', 'steps,success_rate\n10,0.5\n')
    run_dir.create_file(
        f'{evaluation}.json', json.dumps({'success': success}))
    return run_dir.full_path

  def test_bars_of_evaluations(self):
    runs = figures.load([
        self._evaluated('immovable', seed, 'tuned',
                        {'all': {'rate': rate, 'solvable': .8}})
        for seed, rate in enumerate((.5, .7))])
    drawing = figures.draw(runs)['figure5']
    heights = sorted(bar.get_height() for bar in drawing.axes[0].patches)
    np.testing.assert_allclose(heights, [.52, .6, .693, .98])
    legend = [text.get_text() for text in
              drawing.axes[0].get_legend().get_texts()]
    self.assertEqual(sorted(legend), ['ours (2 seeds)', 'paper', 'solvable'])
    text = figures.table(runs)
    self.assertIn('| immovable red rects: after fine-tuning | not known | 2 |  '
                  '| 60.0 ± 14.1 % |  |  |  | 69.3 % |', text)
    self.assertIn('after fine-tuning, solvable | not known | 2 |  | 80.0 ± 0.0',
                  text)

  def test_arrangements_are_shown_by_their_blocks(self):
    runs = figures.load([self._evaluated('arrangements', 0, 'evaluation', {
        'all': {'rate': .5}, '4 blocks': {'rate': .75},
        '8 blocks': {'rate': .25}})])
    drawing = figures.draw(runs)['arrangements_by_blocks']
    heights = [bar.get_height() for bar in drawing.axes[0].patches]
    np.testing.assert_allclose(heights, [.5, .58, .75, .92, .25, .24])
    self.assertIn('| Arrangements: 8 blocks | not known | 1 |  | 25.0 % |  |  '
                  '|  | 24.0 % |', figures.table(runs))

  def test_runs_are_taken_from_anywhere(self):
    folder = self.create_tempdir()
    for name, seed in (('relations', 7), ('relations_seed2', 2)):
      run_dir = folder.mkdir(name)
      run_dir.create_file('metrics.csv', 'steps,entropy\n10,1\n20,2')
      config_lib.save(config_lib.Config(seed=seed),
                      os.path.join(run_dir.full_path, 'config.json'))
    folder.mkdir('relations_seed5')  # It has only just begun.
    paths = [os.path.join(folder.full_path, name) for name in (
        'relations', 'relations_seed2/metrics.csv', 'relations_seed5')]
    with self.assertLogs('absl', 'WARNING') as logs:
      runs = figures.load(paths)['relations']
    self.assertIn('relations_seed5 has no metrics.csv yet', logs.output[0])
    self.assertEqual([run.seed for run in runs], [7, 2])
    for run in runs:  # A row that is not whole is none.
      np.testing.assert_array_equal(run.curve['entropy'], [1])
    for seed in range(2):
      run_dir = folder.mkdir(f'immovable_seed{seed}')
      run_dir.create_file('metrics.csv', 'steps,entropy\n10,1\n')
      config_lib.save(
          config_lib.Config(
              seed=seed, reward='frozen', reward_model=f'relations_seed{seed}',
              initial_policy=f'relations_seed{seed}'),
          os.path.join(run_dir.full_path, 'config.json'))
    self.assertLen(figures.load([
        os.path.join(folder.full_path, f'immovable_seed{seed}')
        for seed in range(2)])['immovable'], 2)
    config_lib.save(
        config_lib.Config(seed=2, episode_length=9),
        os.path.join(folder.full_path, 'relations_seed2', 'config.json'))
    with self.assertRaisesRegex(
        figures.FigureError, 'other settings: --episode_length: 30 there, 9'):
      figures.load(paths)

  def test_refuses(self):
    folder = self.create_tempdir()
    for name in 'chess_seed0', 'relation', 'relations-0':
      folder.mkdir(name).create_file('metrics.csv', 'steps\n1\n')
      with self.assertRaisesRegex(
          figures.FigureError, 'in a directory named NAME_seedN'):
        figures.load([os.path.join(folder.full_path, name)])
    twice = []
    for name in 'relations', 'relations_seed0', 'relations_seed1':
      run_dir = folder.mkdir(name)
      run_dir.create_file('metrics.csv', 'steps\n1\n')
      twice.append(run_dir.full_path)
    with self.assertRaisesRegex(figures.FigureError, 'same setting and seed'):
      figures.load(twice)
    config_lib.save(
        config_lib.Config(seed=1), os.path.join(twice[2], 'config.json'))
    with self.assertRaisesRegex(
        figures.FigureError, 'relations_seed0 has no config.json'):
      figures.load(twice[1:])

  def test_refuses_what_is_no_evaluation(self):
    for seed, text in enumerate(('{', '[]', '{"success": {}}')):
      run_dir = self.create_tempdir(f'immovable_seed{seed}')
      run_dir.create_file('metrics.csv', 'steps\n1\n')
      run_dir.create_file('tuned.json', text)
      with self.assertRaisesRegex(
          figures.FigureError, 'tuned.json has no success rate'):
        figures.load([run_dir.full_path])


if __name__ == '__main__':
  absltest.main()
