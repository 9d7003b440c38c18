"""Tests for results: which runs belong together, and means over seeds."""

import os

from absl.testing import absltest
import numpy as np

from agile_tf import config as config_lib
from agile_tf.reproduction import curves
from agile_tf.reproduction import results
from tests.agile_tf import finished


class ResultsTest(absltest.TestCase):

  def test_mean_over_seeds(self):
    mean = results.mean_curve(
        [finished.run(entropy=[1, 2, 3, 4]), finished.run(entropy=[3, 2]),
         finished.run(entropy=[np.nan] * 4)], 'entropy')
    np.testing.assert_allclose(mean.mean, [2, 2, 3, 4])
    np.testing.assert_allclose(mean.deviation, [2**.5, 0, 0, 0])
    np.testing.assert_allclose(mean.steps, [10, 20, 30, 40], atol=.3)
    np.testing.assert_array_equal(mean.complete, [True, True, False, False])

  def test_rows_of_threads_stand_where_they_happen_to(self):
    rng = np.random.default_rng(0)
    steps = [10 * np.arange(1, 41) + rng.integers(0, 5, 40) for _ in range(3)]
    mean = results.mean_curve(
        [finished.run(seed=i, steps=steps[i], entropy=[value] * 40)
         for i, value in enumerate((.2, .5, .8))], 'entropy')
    np.testing.assert_allclose(mean.mean, .5)
    np.testing.assert_allclose(mean.deviation, .3)
    self.assertTrue(mean.complete.all())

  def test_close_rows_are_averaged(self):
    values = np.random.default_rng(0).uniform(size=10_000)
    mean = results.mean_curve([finished.run(entropy=values)], 'entropy')
    self.assertLen(mean.mean, 100)
    np.testing.assert_allclose(
        mean.mean, values.reshape(100, 100).mean(axis=1))

  def test_nothing_to_average(self):
    self.assertIsNone(
        results.mean_curve([finished.run(entropy=[1])], 'success_rate'))
    self.assertIsNone(results.mean_curve([], 'entropy'))

  def test_end_is_the_mean_of_the_last_rows(self):
    values = np.arange(100.)
    values[95] = np.nan
    self.assertEqual(
        results.end(finished.run(entropy=values), 'entropy'),
        np.mean([89, 90, 91, 92, 93, 94, 96, 97, 98, 99]))
    self.assertTrue(np.isnan(results.end(finished.run(entropy=values), 'none')))

  def test_runs_are_taken_from_anywhere(self):
    folder = self.create_tempdir()
    for name, seed in (('relations', 7), ('relations_seed2', 2)):
      run_dir = folder.mkdir(name)
      run_dir.create_file('metrics.csv', 'steps,entropy\n10,1\n20,2')
      config_lib.save(config_lib.Config(seed=seed),
                      os.path.join(run_dir.full_path, 'config.json'))
    folder.mkdir('relations_seed5')  # A run without metrics yet.
    paths = [os.path.join(folder.full_path, name) for name in (
        'relations', 'relations_seed2/metrics.csv', 'relations_seed5')]
    with self.assertLogs('absl', 'WARNING') as logs:
      runs = results.load(paths)['relations']
    self.assertIn('relations_seed5 has no metrics.csv yet', logs.output[0])
    self.assertEqual([run.seed for run in runs], [7, 2])
    for run in runs:  # An incomplete row does not count.
      np.testing.assert_array_equal(run.curve['entropy'], [1])
    for seed in range(2):
      run_dir = folder.mkdir(f'immovable_seed{seed}')
      run_dir.create_file('metrics.csv', 'steps,entropy\n10,1\n')
      config_lib.save(
          config_lib.Config(
              seed=seed, reward='frozen', reward_model=f'relations_seed{seed}',
              initial_policy=f'relations_seed{seed}'),
          os.path.join(run_dir.full_path, 'config.json'))
    self.assertLen(results.load([
        os.path.join(folder.full_path, f'immovable_seed{seed}')
        for seed in range(2)])['immovable'], 2)
    config_lib.save(
        config_lib.Config(seed=2, episode_length=9),
        os.path.join(folder.full_path, 'relations_seed2', 'config.json'))
    with self.assertRaisesRegex(
        results.ResultError, 'other settings: --episode_length: 30 there, 9'):
      results.load(paths)

  def test_any_run_can_be_read(self):
    folder = self.create_tempdir()
    for name in 'quickstart', 'my-run.2', 'chess_seed3':
      folder.mkdir(name).create_file('metrics.csv', 'steps,entropy\n1,2\n')
    runs = results.load([
        os.path.join(folder.full_path, name)
        for name in ('quickstart', 'my-run.2', 'chess_seed3')])
    self.assertEqual(
        {name: run.seed for name, (run,) in runs.items()},
        {'quickstart': 0, 'my-run.2': 0, 'chess': 3})

  def test_refuses(self):
    folder = self.create_tempdir()
    with self.assertRaisesRegex(curves.CurveError, 'expected the metrics.csv'):
      results.load([folder.mkdir('empty').full_path])
    twice = []
    for name in 'relations', 'relations_seed0', 'relations_seed1':
      run_dir = folder.mkdir(name)
      run_dir.create_file('metrics.csv', 'steps\n1\n')
      twice.append(run_dir.full_path)
    with self.assertRaisesRegex(results.ResultError, 'same variant and seed'):
      results.load(twice)
    config_lib.save(
        config_lib.Config(seed=1), os.path.join(twice[2], 'config.json'))
    with self.assertRaisesRegex(
        results.ResultError, 'relations_seed0 has no config.json'):
      results.load(twice[1:])

  def test_points_are_evaluations_with_steps_and_interval(self):
    success = {'all': {'rate': .5, 'interval': [.4, .7]}}
    evaluations = (
        {}, {'evaluation': {'steps': 30, 'success': success}},
        {'seen': {'steps': 30, 'success': success}},
        # As by versions that wrote less.
        {'evaluation': {'success': success}},
        {'evaluation': {'steps': 30, 'success': {'all': {'rate': .5}}}})
    self.assertEqual(
        results.points([
            finished.run(success_rate=[.1])._replace(evaluations=found)
            for found in evaluations]),
        [results.Point(30, .5, .4, .7)])

  def test_refuses_what_is_no_evaluation(self):
    for seed, text in enumerate((
        '{', '[]', '{"success": {}}', '{"success": {"all": {"rate": "0.5"}}}')):
      run_dir = self.create_tempdir(f'immovable_seed{seed}')
      run_dir.create_file('metrics.csv', 'steps\n1\n')
      run_dir.create_file('tuned.json', text)
      with self.assertRaisesRegex(
          results.ResultError, 'tuned.json has no success rate'):
        results.load([run_dir.full_path])


if __name__ == '__main__':
  absltest.main()
