"""Tests for the benchmark."""

import json
from unittest import mock

from absl.testing import parameterized
import pytest

from agile_tf import benchmark
from agile_tf.agent.fast import convolutions
from tests.gridlu import programs


class BenchmarkTest(parameterized.TestCase):

  def test_reports(self):
    with mock.patch.object(benchmark.machine, 'prepare'):
      result = programs.call(
          benchmark, '--only=matrix', '--seconds=0.2', '--json')
    self.assertEqual(result.returncode, 0, result.stderr)
    report = json.loads(result.stdout)
    self.assertEqual(list(report), ['matrix product'])
    self.assertGreater(report['matrix product']['gflops'], 0)
    self.assertIn('gflops', benchmark.table(report))

  @pytest.mark.slow
  def test_measures_what_the_flags_say(self):
    tiny = ['--policy_workers=3', '--policy_threads=3', '--rollout_length=4',
            '--batch_size=4', '--replay_size=64', '--episode_length=8',
            '--steps_per_discriminator_update=12',
            '--reward_prediction_replay_size=8', '--instructions=Same.*AGENT',
            '--steps=900']  # Of a run that ends before it is measured.
    results = {
        name: benchmark.measure(name, ['--seconds=0.2', *tiny]) for name in (
            'matrix product', 'round of 15 workers', 'training, lockstep')}
    benchmark._add_shares(results, trains=True)
    self.assertGreater(
        results['round of 15 workers']['milliseconds'],
        results['round of 15 workers']['policy_gradients_milliseconds'])
    self.assertGreater(results['training, lockstep']['share'], 0)

  def test_the_costs_know_which_layouts_filter(self):
    for name, threads in (('15 threads', 15), ('5 threads', 5),
                          ('3 threads', 3), ('lockstep', 1)):
      alone = 15 // threads < convolutions._MIN_ROWS
      self.assertEqual(benchmark.MEASUREMENTS[f'training, {name}'][1],
                       17 + (26 if alone else 16))

  def test_shares_are_of_the_matrix_products_rate(self):
    lockstep = 'training, lockstep'
    cost = benchmark.MEASUREMENTS[lockstep][1]
    results = {
        'matrix product': {'gflops': 80.0},
        lockstep: {'steps_per_second': 500.0},
        'discriminator iteration': {'milliseconds': 95.0}}
    benchmark._add_shares(results, trains=True)
    # 80 GFLOP/s are 80,000 MFLOP/s.
    self.assertAlmostEqual(results[lockstep]['share'], 500 * cost / 80_000)
    # An iteration takes 3,800 MFLOP, 47.5 of 95 milliseconds.
    self.assertAlmostEqual(results['discriminator iteration']['share'], 0.5)
    self.assertNotIn('share', results['matrix product'])
    # Without a discriminator to train a step costs 17 MFLOP less.
    benchmark._add_shares(results, trains=False)
    self.assertAlmostEqual(
        results[lockstep]['share'], 500 * (cost - 17) / 80_000)

  @parameterized.parameters(
      ('training, lockstep', 'steps_per_second', 100., 180., 1.8),
      ('discriminator iteration', 'milliseconds', 100., 180., 1 / 1.8))
  def test_compares_checkouts_in_turn(self, name, kind, before, after, ratio):
    rates = iter([100., 150., 100., 200., 100., 180., 300., 100., 100., 190.])
    asked = []

    def measured(name, arguments, checkout):
      asked.append(checkout)
      return {kind: next(rates)}

    with mock.patch.object(benchmark, 'measure', measured):
      results = benchmark.compare([name], '/before', [])[name]
    self.assertEqual((results['before'], results['after']), (before, after))
    self.assertAlmostEqual(results['ratio'], ratio)
    self.assertEqual([checkout == '/before' for checkout in asked],
                     5 * [True, False])

  def test_wrong_flags_are_named(self):
    for arguments, message in (
        (['--only=nonsense'], 'is found in none of'),
        ([f'--against={self.create_tempdir().full_path}'],
         'has no agile_tf/benchmark.py'),
        (['--preset=arrangements_evening'], '--only=training')):
      result = programs.call(benchmark, *arguments)
      self.assertEqual(result.returncode, 1)
      self.assertIn(message, result.stderr)
