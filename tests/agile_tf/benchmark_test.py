"""Tests for the benchmark, and for the round that it compiles and exports."""

import json
import os
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from agile_tf import benchmark
from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import convolutions
from agile_tf.agent import gradients as gradients_lib
from agile_tf.agent import optimizers
from agile_tf.agent import rewards as rewards_lib
from agile_tf.speed import parts
from agile_tf.training import building
import gridlu
from tests.agile_tf import tiny


class BenchmarkTest(absltest.TestCase):

  @pytest.mark.slow
  def test_one_program_does_what_its_parts_do(self):
    config = tiny.config(reward_prediction=True, rollout_length=4)
    program, arguments = parts.compiled_round(config)
    actual = program(*arguments)
    (theta, _, phi, observations, codes, truth_codes, gumbel, mask, discounts,
     replayed) = arguments
    world = building.make_world(config)
    policy, discriminator = building.make_networks(config, world)
    observations, actions, satisfied, _ = actors.play_program(policy, world)(
        theta, observations, codes, truth_codes, gumbel, mask)
    np.testing.assert_array_equal(actual.observations, observations)
    np.testing.assert_array_equal(actual.actions, actions)
    np.testing.assert_array_equal(actual.satisfied, satisfied)
    rewards, _ = rewards_lib.modelled_program(
        discriminator, world, config.reward_form, config.reward_scale)(
            phi, observations, codes)
    np.testing.assert_array_equal(actual.rewards, rewards)
    gradients, _ = gradients_lib.policy_gradients_program(
        policy, world, building.policy_loss(config))(
            theta, observations, codes, actions, rewards, discounts,
            np.ones_like(discounts), config.entropy_weight, (), replayed)
    shared = optimizers.SharedParameters(
        policy.layout, theta.numpy(), building.policy_updates(config))
    norms = shared.apply(*gradients)
    np.testing.assert_allclose(actual.norms, norms, rtol=1e-3)
    np.testing.assert_allclose(
        actual.theta - theta, shared.snapshot() - theta, rtol=1e-2, atol=1e-6)

  def test_reports(self):
    result = subprocess.run(
        [sys.executable, '-m', 'agile_tf.benchmark', '--only=matrix',
         '--seconds=0.2', '--json'],
        capture_output=True, text=True, timeout=300, check=False)
    self.assertEqual(result.returncode, 0, result.stderr)
    report = json.loads(result.stdout)
    self.assertEqual(list(report), ['matrix product'])
    self.assertGreater(report['matrix product']['gflops'], 0)
    self.assertIn(f"{report['matrix product']['gflops']:,.0f} GFLOP/s",
                  benchmark.table(report))

  def test_counts_the_steps_of_an_environment(self):
    steps = []
    original = gridlu.GridLU.step

    def step(environment, action):
      steps.append(action)
      return original(environment, action)

    start = time.perf_counter()
    with mock.patch.object(gridlu.GridLU, 'step', step):
      rate = parts.environment_steps(0.1, {})['steps_per_second']
    seconds = time.perf_counter() - start
    # The first 2,000 steps are not counted; all took the whole time.
    self.assertBetween(
        rate, (len(steps) - 2000) / seconds, (len(steps) - 2000) / 0.1)

  def test_the_costs_are_of_the_arithmetic_that_is_done(self):
    self.assertEqual(benchmark.FILTERED_ROWS, convolutions._MIN_ROWS)

  def test_ceilings_are_of_the_matrix_products_rate(self):
    lockstep = 'training, lockstep'
    cost = benchmark.MEASUREMENTS[lockstep][1]
    results = {
        'matrix product': {'gflops': 80.0},
        lockstep: {'steps_per_second': 500.0},
        'discriminator update': {'milliseconds': 90.0},
        'dm_env steps': {'steps_per_second': 9.0}}
    benchmark._add_ceilings(results)
    # 80 GFLOP/s are 80,000 MFLOP/s.
    self.assertAlmostEqual(results[lockstep]['ceiling'], 80_000 / cost)
    self.assertAlmostEqual(results[lockstep]['share'], 500 * cost / 80_000)
    # An update takes 3,600 MFLOP, 45 of 90 milliseconds.
    self.assertAlmostEqual(results['discriminator update']['ceiling'], 45)
    self.assertAlmostEqual(results['discriminator update']['share'], 0.5)
    self.assertNotIn('ceiling', results['dm_env steps'])
    del results['matrix product'], results[lockstep]['ceiling']
    benchmark._add_ceilings(results)
    self.assertNotIn('ceiling', results[lockstep])

  def test_shares_are_of_the_ceiling(self):
    text = benchmark.table({
        'training, lockstep': dict(
            steps_per_second=610.0, ceiling=1000.0, share=0.61,
            compile_seconds=9.0, peak_gigabytes=2.0)})
    for part in '610 steps/s', '61%', '9 s', '2.0 GB':
      self.assertIn(part, text)

  def test_compares_checkouts_in_turn(self):
    rates = iter([100., 150., 100., 200., 100., 180., 300., 100., 100., 190.])
    asked = []

    def measured(checkout, arguments):
      asked.append((checkout, arguments[0]))
      return {'training, lockstep': {'steps_per_second': next(rates)}}

    with mock.patch.object(benchmark, '_measure_checkout', measured):
      results = benchmark.compare(['training, lockstep'], '/before', 1.0, {})
    self.assertEqual(results, {'training, lockstep': {
        'before': 100.0, 'after': 180.0, 'ratio': 1.8}})
    self.assertEqual([checkout == '/before' for checkout, _ in asked],
                     5 * [True, False])
    self.assertRegex('training, lockstep', asked[0][1].split('=')[1])
    self.assertIn('1.80', benchmark.comparison_table(results))

  def test_a_directory_that_is_no_checkout_is_named(self):
    folder = self.create_tempdir().full_path
    with (mock.patch.object(benchmark.subprocess, 'run') as run,
          self.assertRaisesRegex(
              config_lib.ConfigError, 'has no agile_tf/benchmark.py')):
      benchmark.compare(['matrix product'], folder, 1.0, {})
    run.assert_not_called()

  def test_milliseconds_are_better_when_fewer(self):
    times = iter(5 * [100., 50.])
    with mock.patch.object(
        benchmark, '_measure_checkout', side_effect=lambda *_: {
            'discriminator update': {'milliseconds': next(times)}}):
      results = benchmark.compare(['discriminator update'], 'before', 1.0, {})
    self.assertEqual(results['discriminator update']['ratio'], 2)

  def test_selects_by_name(self):
    self.assertEqual(benchmark.select(''), list(benchmark.MEASUREMENTS))
    self.assertEqual(benchmark.select('^training, lock'), [
        'matrix product', 'training, lockstep'])
    self.assertEqual(
        benchmark.select('^training, lock', always=()), ['training, lockstep'])
    for pattern, problem in (('(', 'not a regular expression'),
                             ('nonsense', 'found in none of')):
      with self.assertRaisesRegex(config_lib.ConfigError, problem):
        benchmark.select(pattern)

  def test_exports_the_round(self):
    path = os.path.join(self.create_tempdir().full_path, 'round.hlo')
    benchmark.export(path, tiny.config())
    self.assertGreater(os.path.getsize(path), 10_000)
    with self.assertRaisesRegex(config_lib.ConfigError, 'cannot be written'):
      benchmark.export('/no/such/file', tiny.config())


if __name__ == '__main__':
  absltest.main()
