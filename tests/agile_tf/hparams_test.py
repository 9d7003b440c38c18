"""Tests of the program that prints the paper's table beside a run's."""

from absl.testing import absltest

from agile_tf import config as config_lib
from agile_tf import hparams
from agile_tf.recipe import settings
from agile_tf.reproduction import comparison
from tests.gridlu import programs


class ProgramTest(absltest.TestCase):

  def test_prints_the_tables_of_the_flags(self):
    flagfile = self.create_tempfile(content=(
        '# A comment.\n--policy_epsilon=1e-5\n--reward_prediction\n'))
    result = programs.call(hparams, f'--flagfile={flagfile.full_path}')
    self.assertEqual(result.returncode, 0, result.stderr)
    self.assertEqual(
        result.stdout, comparison.table_text(config_lib.Config(
            policy_epsilon=1e-5, reward_prediction=True),
            settings.Recipe()) + '\n')
    self.assertEmpty(result.stderr)

  def test_refuses_what_launch_refuses(self):
    result = programs.call(hparams, '--imitation_cost=2')
    self.assertIn('--imitation_cost=2.0 needs', result.stderr)
    self.assertEqual((result.returncode, result.stdout), (1, ''))
