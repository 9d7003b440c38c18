"""Tests for choosing a checkpoint by its modelled reward."""

import glob
import os
from unittest import mock

import numpy as np

from agile_tf import choose
from agile_tf import config as config_lib
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from tests.agile_tf import tiny
from tests.gridlu import programs


class ChooseTest(tiny.SavedRunTest):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    start = checkpoints.load(cls.run_dir)
    # Policies that act differently, and reward models that disagree.
    for step in (8, 16):
      checkpoints.save(cls.run_dir, step, start._replace(
          arrays={name: step * value if '/w' in name else value
                  for name, value in start.arrays.items()},
          values={**start.values, 'steps': step}), keep=10)

  def test_chooses_by_modelled_reward(self):
    steps = checkpoints.steps(self.run_dir)
    rows = choose.compare([self.run_dir], 8, 0)
    self.assertEqual(steps, [0, 8, 16])
    self.assertCountEqual([row.step for row in rows], steps)
    rewards = [row.modelled_reward for row in rows]
    self.assertEqual(rewards, sorted(rewards, reverse=True))
    for row in rows:
      episodes = list(trained.load(self.run_dir, row.step).play(8, 0, False))
      self.assertEqual(
          row.modelled_reward, np.mean([e.decisions for e in episodes]))
      self.assertEqual(
          row.success['rate'], np.mean([e.truth[-1] for e in episodes]))
      self.assertRegex(
          choose.table(rows),
          f'{row.step} +{100 * row.modelled_reward:.1f} % +'
          f'{100 * row.success["rate"]:.1f} %   ')
    with self.assertRaisesRegex(config_lib.ConfigError, 'nowhere'):
      choose.compare([self.run_dir, 'nowhere'], 8, 0)
    with mock.patch.object(choose.machine, 'prepare'):
      printed = programs.call(
          choose, self.run_dir, '--episodes=8', '--seed=0').stdout
    self.assertIn(choose.table(rows), printed)
    self.assertIn(f'--checkpoint={rows[0].step}', printed)
    self.assertEqual(programs.call(choose).returncode, 1)
    with (mock.patch.object(choose.machine, 'prepare'),
          mock.patch.object(choose, 'compare', return_value=rows) as compare):
      programs.call(choose, self.run_dir)
    # Other episodes than those that agile_tf.evaluate reports.
    self.assertNotIn(compare.call_args.args[2],
                     choose.options.define_episodes.__defaults__)

  def test_a_checkpoint_that_cannot_be_loaded_is_left_out(self):
    path, = glob.glob(os.path.join(self.run_dir, 'checkpoints', '*8*'))
    self.enter_context(mock.patch.object(
        checkpoints, 'steps', return_value=[0, 8, 16]))
    os.rename(path, f'{path}.away')
    self.addCleanup(os.rename, f'{path}.away', path)
    with self.assertLogs(level='WARNING') as logs:
      rows = choose.compare([self.run_dir], 8, 0)
    self.assertCountEqual([row.step for row in rows], [0, 16])
    self.assertIn('Left out: ', '\n'.join(logs.output))

  def test_a_run_without_a_reward_model_is_named_before_any_is_played(self):
    other = tiny.save_for(type(self), reward='environment')
    with (mock.patch.object(trained.Trained, 'play') as play,
          self.assertRaisesRegex(config_lib.ConfigError, 'no reward model')):
      choose.compare([self.run_dir, other], 2, 0)
    play.assert_not_called()
