"""Tests for reading the curves of runs."""

from absl.testing import absltest
import numpy as np

from agile_tf.reproduction import curves
from gridlu import program


class CurvesTest(absltest.TestCase):

  def test_reads_a_run_without_an_unfinished_row(self):
    folder = self.create_tempdir()
    folder.create_file(
        'metrics.csv', 'steps,success_rate\n10,\n20,0.25\n30,0.')
    curve = curves.read(folder.full_path)
    np.testing.assert_array_equal(curve['steps'], [10, 20])
    np.testing.assert_array_equal(curve['success_rate'], [np.nan, .25])

  def test_a_row_that_no_run_writes_is_named(self):
    for text, problem in (
        ('steps,x\n10,1\n20,abc\n', "line 3: x is 'abc'; expected a number"),
        ('steps,x\nnan,1\n', "line 2: steps is 'nan'"),
        ('steps,x\n,1\n', "line 2: steps is ''"),
        ('steps,x\n-1,1\n', "line 2: steps is '-1'"),
        ('steps,success_rate\n5,1\n10,-7\n',
         "line 3: success_rate is '-7'; expected a number from 0 to 1"),
        ('steps,false_positives\n10,inf\n', "false_positives is 'inf'"),
        ('steps,x\n20,1\n10,1\n', 'step 10 comes after step 20'),
        ('x\n1\n', 'does not name a column "steps"')):
      folder = self.create_tempdir()
      folder.create_file('metrics.csv', text)
      with self.assertRaisesRegex(program.UserError, f'metrics.csv.*{problem}'):
        curves.read(folder.full_path)

  def test_best_passes_over_what_is_missing(self):
    steps = np.array([10., 20., 30.])
    for rates, expected in (([.9, .5, .2], .9), ([np.nan, .5, .25], .5),
                            (np.full(3, np.nan), np.nan)):
      np.testing.assert_allclose(expected, curves.best(
          {'steps': steps, 'success_rate': np.array(rates)}))
    self.assertTrue(np.isnan(curves.best({'steps': steps})))

  def test_best_is_not_the_luckiest_row(self):
    rng = np.random.default_rng(0)
    steps = 1e4 * np.arange(1, 50_001)
    rates = rng.binomial(333, .13, 50_000) / 333
    self.assertGreater(rates.max(), .2)
    np.testing.assert_allclose(
        curves.best({'steps': steps, 'success_rate': rates}),
        rates.reshape(100, 500).mean(axis=1).max())

  def test_averages_are_over_the_steps_that_a_row_is_of(self):
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(1, 9, 50)).astype(float)
    curve = {'steps': steps, 'x': rng.uniform(size=50)}
    each = np.repeat(curve['x'], np.diff(steps, prepend=0).astype(int))
    edges = np.arange(0, steps[-1] + 30, 7)
    np.testing.assert_allclose(
        curves.averaged(curve, 'x', edges[:-1], edges[1:]),
        [each[int(a):int(b)].mean() if len(each) - a > (b - a) / 2 else np.nan
         for a, b in zip(edges[:-1], edges[1:])])
    np.testing.assert_allclose(
        curves.averaged(curve, 'x', edges - 100, edges, .99),
        [each[int(end) - 100:int(end)].mean()
         if 100 <= end <= steps[-1] else np.nan for end in edges])

  def test_a_moving_average_may_lack_a_hundredth_of_its_steps(self):
    steps, values = np.array([1., 100, 150]), np.array([np.nan, .5, 1])
    ends = np.array([99., 100.5, 150])
    np.testing.assert_allclose(
        curves.averaged({'steps': steps, 'x': values}, 'x', ends - 100, ends,
                        .99), [np.nan, (99 * .5 + .5) / 99.5, .75])
    self.assertTrue(np.isnan(curves.averaged(
        {'steps': steps}, 'x', ends - 10, ends)).all())

  def test_tables_that_no_run_writes_are_refused(self):
    folder = self.create_tempdir()
    self.assertEmpty(curves.read(folder.full_path)['steps'])
    for content, problem in (
        ('a,b\n1,2\n', 'does not name a column "steps"'),
        ('steps,entropy\n1,many\n', "metrics.csv cannot be read .*'many'")):
      folder.create_file('metrics.csv', content)
      with self.assertRaisesRegex(program.UserError, problem):
        curves.read(folder.full_path)
