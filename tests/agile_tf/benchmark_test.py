"""Tests for the benchmark."""

import json
from unittest import mock

from absl.testing import parameterized
import pytest

from agile_tf import benchmark
from tests.gridlu import programs


class BenchmarkTest(parameterized.TestCase):

  def test_a_report_has_what_was_measured(self):
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
    self.assertGreater(
        results['round of 15 workers']['milliseconds'],
        results['round of 15 workers']['policy_gradients_milliseconds'])
    self.assertGreater(results['training, lockstep']['steps_per_second'], 0)
    self.assertGreater(results['matrix product']['gflops'], 0)

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
