"""Tests for curves: what is read, and what is refused."""

from absl.testing import absltest
import numpy as np

from agile_tf import curves


class CurvesTest(absltest.TestCase):

  def test_reads_a_file_and_a_run(self):
    folder = self.create_tempdir()
    file = folder.create_file(
        'metrics.csv', 'steps,success_rate,entropy\n10,,1.5\n20,0.25,1\n')
    for path in folder.full_path, file.full_path:
      curve = curves.read(path)
      np.testing.assert_array_equal(curve['steps'], [10, 20])
      np.testing.assert_array_equal(curve['success_rate'], [np.nan, .25])
      np.testing.assert_array_equal(curve['entropy'], [1.5, 1])

  def test_best(self):
    steps = np.array([10., 20, 30])
    self.assertEqual(
        curves.best({'steps': steps, 'success_rate': np.array(
            [np.nan, .5, .25])}), (20, .5))
    self.assertIsNone(curves.best(
        {'steps': steps, 'success_rate': np.full(3, np.nan)}))
    self.assertIsNone(curves.best({'steps': steps}))

  def test_refuses(self):
    folder = self.create_tempdir()
    with self.assertRaisesRegex(curves.CurveError, 'There is no .*metrics.csv'):
      curves.read(folder.full_path)
    for content, problem in (
        ('', 'does not name a column "steps"'),
        ('a,b\n1,2\n', 'does not name a column "steps"'),
        ('steps,entropy\n1,many\n', "could not convert string .*'many'"),
    ):
      path = folder.create_file('file.csv', content).full_path
      with self.assertRaisesRegex(curves.CurveError, problem):
        curves.read(path)


if __name__ == '__main__':
  absltest.main()
