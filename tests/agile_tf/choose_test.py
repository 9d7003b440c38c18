"""Tests for choosing a checkpoint by its modelled reward."""

import dataclasses
import glob
import os
from unittest import mock

import numpy as np

from agile_tf import choose
from agile_tf import config as config_lib
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from tests.agile_tf import tiny


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
    self.assertCountEqual([row['step'] for row in rows], steps)
    rewards = [row['modelled_reward'] for row in rows]
    self.assertEqual(rewards, sorted(rewards, reverse=True))
    last, = (row for row in rows if row['step'] == steps[-1])
    episodes = list(trained.load(self.run_dir).play(8, 0, False))
    self.assertEqual(
        last['modelled_reward'], np.mean([e.decisions for e in episodes]))
    self.assertEqual(last['final_modelled_reward'], last['modelled_reward'])
    self.assertEqual(
        last['success'], np.mean([e.truth[-1] for e in episodes]))
    # By another reward model than its own, an earlier policy's reward differs.
    judge = trained.load(self.run_dir)
    for row in rows:
      of_step = trained.load(self.run_dir, row['step'])
      for phi, column in ((of_step.phi, 'modelled_reward'),
                          (judge.phi, 'final_modelled_reward')):
        self.assertEqual(row[column], np.mean([
            e.decisions for e in of_step._replace(phi=phi).play(8, 0, False)]))
    self.assertTrue(any(
        row['final_modelled_reward'] != row['modelled_reward']
        for row in rows))
    self.assertIn(f'{100 * last["modelled_reward"]:.1f} %', choose.table(rows))
    with self.assertRaisesRegex(config_lib.ConfigError, 'nowhere'):
      choose.compare([self.run_dir, 'nowhere'], 8, 0)

  def test_a_checkpoint_that_cannot_be_loaded_is_left_out(self):
    path, = glob.glob(os.path.join(self.run_dir, 'checkpoints', '*8*'))
    self.enter_context(mock.patch.object(
        checkpoints, 'steps', return_value=[0, 8, 16]))
    os.rename(path, f'{path}.away')
    self.addCleanup(os.rename, f'{path}.away', path)
    with self.assertLogs(level='WARNING') as logs:
      rows = choose.compare([self.run_dir], 2, 0)
    self.assertCountEqual([row['step'] for row in rows], [0, 16])
    self.assertIn('Left out: ', '\n'.join(logs.output))

  def test_a_run_without_a_reward_model_is_named_before_any_is_played(self):
    folder = self.create_tempdir().full_path
    config_lib.save(
        dataclasses.asdict(tiny.config(reward='environment')),
        f'{folder}/config.json')
    with (mock.patch.object(trained, 'load') as load,
          self.assertRaisesRegex(config_lib.ConfigError, 'no reward model')):
      choose.compare([self.run_dir, folder], 2, 0)
    load.assert_not_called()
