"""A test that AGILE learns: from goal examples alone, and in minutes."""

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf

from agile_tf.evaluation import trained
from agile_tf.training import train
from tests.agile_tf import tiny


def _success(run):
  """The share of 300 episodes that end in a goal state."""
  return np.mean([
      episode.success for episode in run.play(300, seed=0, greedy=False)])


class LearningTest(absltest.TestCase):

  @pytest.mark.slow
  def test_agile_on_three_instructions_beats_a_random_policy(self):
    run_dir = self.create_tempdir().full_path
    train.train(tiny.read_plan([
        '--preset=quickstart', '--dataset_size=5000', '--steps=50000',
        '--log_steps=5000', f'--run_dir={run_dir}', '--seed=1']))
    run = trained.load(run_dir)
    # Without weights all actions are equally likely.
    random = run._replace(theta=tf.zeros_like(run.theta))
    # 300 episodes miss a difference by 0.03 (one standard deviation).
    self.assertGreater(_success(run), _success(random) + 0.15)


if __name__ == '__main__':
  absltest.main()
