"""Tests for the published curves, against numbers read off by hand."""

from absl.testing import parameterized
import numpy as np

from agile_tf.reproduction import experiments
from agile_tf.reproduction import paper
from gridlu import relations
from gridlu import world


def _all_curves():
  return [(name, column) for name in experiments.VARIANTS for column in (
      'success_rate', 'reward_model_accuracy', 'false_positives',
      'false_negatives', 'entropy') if paper.curve(name, column) is not None]


class CurvesTest(parameterized.TestCase):

  # Figure 4 (left, middle) at 50, 100 and 200 million steps.
  @parameterized.parameters(
      ('relations_a3c', .044, .182, .622),
      ('relations_a3c_rp', .914, .985, .996),
      ('relations', .330, .668, .937),
      ('relations_rho50', .708, .957, .956),
      ('relations_rho100', .608, .903, .889),
      ('relations_lstm', .304, .579, .811),
      ('relations_lstm_a3c_rp', .219, .623, .956))
  def test_success_rates_are_those_of_the_papers_figures(self, name, *rates):
    curve = paper.curve(name, 'success_rate')
    np.testing.assert_allclose(
        np.interp([50e6, 100e6, 200e6], curve.steps, curve.mean), rates,
        atol=.012)

  # Figure 4 (right) and 8 at 100 million steps, in percent.
  @parameterized.parameters(
      ('relations_rho100', 91.0, 4.5, 4.5), ('relations_rho75', 94.6, 2.9, 2.6),
      ('relations_rho50', 96.7, 2.4, .93), ('relations', 75.0, 24.9, .09))
  def test_reward_model_rates_are_those_of_the_papers_figures(
      self, name, *percent):
    columns = ('reward_model_accuracy', 'false_positives', 'false_negatives')
    for column, expected in zip(columns, percent):
      curve = paper.curve(name, column)
      self.assertAlmostEqual(
          100 * np.interp(100e6, curve.steps, curve.mean), expected, delta=.4)

  def test_curves_are_rates_of_known_variants(self):
    for name, column in _all_curves():
      curve = paper.curve(name, column)
      self.assertBetween(curve.mean.min(), 0, 1)
      self.assertBetween(curve.mean.max(), 0, 1)
      self.assertTrue((curve.band >= 0).all())
      self.assertTrue((np.diff(curve.steps) > 0).all())
    self.assertLen(_all_curves(), 7 + 3 * 4)

  # The last number is half of the width at the first average, in percent.
  @parameterized.parameters(
      ('relations', 'success_rate', 20e6, 22.2e6, None),
      ('relations_a3c', 'success_rate', 12e6, 15.8e6, .33),
      ('relations_rho50', 'reward_model_accuracy', 16e6, 20e6, None),
      ('relations', 'false_positives', 20e6, 22.4e6, None))
  def test_curves_begin_with_their_first_average(
      self, name, column, step, window, percent):
    curve = paper.curve(name, column)
    self.assertAlmostEqual(curve.steps[0], step, delta=1e4)
    self.assertNotEqual(curve.mean[0], curve.mean[1])
    self.assertAlmostEqual(curve.window, window, delta=5e4)
    if percent:
      self.assertAlmostEqual(100 * curve.band[0], percent, places=2)

  @parameterized.parameters('relations_rho100', 'relations_rho75',
                            'relations_rho50', 'relations')
  def test_the_first_averages_are_of_1000_episodes_of_five_runs(self, name):
    for column in ('reward_model_accuracy', 'false_positives',
                   'false_negatives'):
      count = 5 * 1000 * 30 * paper.curve(name, column).mean[0]
      # The curves have four decimals of a percent: 0.075 states.
      self.assertAlmostEqual(count, round(count), delta=.076)

  def test_points_change_less_than_fresh_episodes_would(self):
    curve = paper.curve('relations_a3c_rp', 'success_rate')
    rates = curve.mean[-61:]
    fresh = np.sqrt(2 * rates.mean() * (1 - rates.mean()) / (5 * 1000))
    self.assertLess(np.diff(rates).std(), .65 * fresh)

  def test_a3c_begins_as_a_random_policy_without_solved_starts(self):
    rng = np.random.default_rng(0)
    drawn = relations.instances(rng, 20_000)
    codes = relations.encode(relations.all_instructions())[drawn.instruction]
    state, solved = drawn.state, relations.satisfied(codes, drawn.state)
    for _ in range(30):
      state = world.step(state, rng.integers(5, size=20_000))
    ends = relations.satisfied(codes, state)
    published = paper.curve('relations_a3c', 'success_rate')
    self.assertAlmostEqual(
        ends[~solved].mean(), published.mean[0], delta=published.band[0])
    self.assertGreater(
        ends.mean(), published.mean[0] + 5 * published.band[0])

  def test_data_efficiency_is_that_of_the_papers_figure(self):
    sizes = paper.data_efficiency()
    self.assertEqual(tuple(sizes), experiments.DATA_SIZES)
    self.assertEqual(
        [sizes[n] for n in (512, 8192, 131072)], [.1304, .6258, .9942])
