"""Runs the programs of docs/reward_with_any_learner.md for some steps."""

import contextlib
import importlib.util
import os
import pathlib
import re

from absl.testing import absltest
import numpy as np

import agile_tf

_GUIDE = pathlib.Path(__file__).parents[3] / 'docs' / (
    'reward_with_any_learner.md')


class GuideTest(absltest.TestCase):

  def _run(self, number, steps, fewer):
    """Runs a program of the guide with fewer steps; returns its names."""
    programs = re.findall(
        r'guide_test.py runs this. -->\n```python\n(.*?)```',
        _GUIDE.read_text(encoding='utf-8'), re.DOTALL)
    shorter = programs[number].replace(steps, fewer)
    self.assertNotEqual(shorter, programs[number])
    names = {}
    folder = self.create_tempdir().full_path
    with contextlib.chdir(folder):
      exec(compile(shorter, str(_GUIDE), 'exec'), names)
    names['saved'] = os.path.join(folder, 'reward_model')
    return names

  def test_the_loop_learns_and_saves(self):
    names = self._run(0, 'range(1000)', 'range(3)')
    learner = names['learner']
    self.assertEqual((learner.added, learner.updates), (3 * 15 * 16, 3))
    self.assertGreater(np.abs(names['weights']).max(), 0)
    np.testing.assert_allclose(
        agile_tf.load_reward_model(names['saved'])(
            names['images'], names['texts']),
        learner.probabilities(names['images'], names['texts']), atol=1e-4)

  def test_stable_baselines3_learns_and_saves(self):
    if not importlib.util.find_spec('stable_baselines3'):
      self.skipTest('Stable-Baselines3 is not installed.')
    names = self._run(1, '1_200_000', '1920')
    learner = names['learner']
    # Random play, and two rollouts of PPO.
    self.assertEqual(learner.added, 375 * 16 + 1920)
    self.assertEqual(names['model'].num_timesteps, 1920)
    self.assertTrue(os.path.isdir(names['saved']))
