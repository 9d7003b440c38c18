"""Runs the programs of docs/reward_with_any_learner.md for some steps."""

import contextlib
import importlib.util
import os
import pathlib
import re
from unittest import mock

from absl.testing import absltest
import gymnasium
import numpy as np

import agile_tf

_GUIDE = pathlib.Path(__file__).parents[3] / 'docs' / (
    'reward_with_any_learner.md')


class GuideTest(absltest.TestCase):

  def _run(self, number, *changes):
    """Runs a changed program of the guide; returns its names."""
    programs = re.findall(
        r'guide_test.py runs this. -->\n```python\n(.*?)```',
        _GUIDE.read_text(encoding='utf-8'), re.DOTALL)
    shorter = programs[number]
    for text, other in changes:
      self.assertEqual(shorter.count(text), 1)
      shorter = shorter.replace(text, other)
    names = {}
    folder = self.create_tempdir().full_path
    with contextlib.chdir(folder):
      exec(compile(shorter, str(_GUIDE), 'exec'), names)
    names['saved'] = os.path.join(folder, 'reward_model')
    return names

  def test_an_episode_goes_on_with_its_last_state(self):

    class Ends(gymnasium.Env):
      """Ends at its third step, and cannot be stepped after that."""
      observation_space = gymnasium.spaces.Discrete(10)
      action_space = gymnasium.spaces.Discrete(2)

      def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

      def step(self, action):
        assert self.steps < 3
        self.steps += 1
        return self.steps, 1.0, self.steps == 3, False, {'n': self.steps}

    with mock.patch.dict(gymnasium.registry):
      gymnasium.register('Ends-v0', Ends)
      names = self._run(0, ('YOURS', 'Ends-v0'))
      environment = names['make_environment']()
    for _ in range(2):
      self.assertEqual(environment.reset(), (0, {}))
      steps = [environment.step(1) for _ in range(60)]
      self.assertEqual([step[0] for step in steps], [1, 2] + 58 * [3])
      self.assertEqual([step[4]['n'] for step in steps], [1, 2] + 58 * [3])
      self.assertEqual([step[2] for step in steps], 60 * [False])
      self.assertEqual([step[3] for step in steps], 59 * [False] + [True])

  def test_the_loop_learns_and_saves(self):
    names = self._run(
        1, ('range(1000)', 'range(5)'), ('START = 40', 'START = 3'),
        ('range(800 ', 'range(8 '))
    learner = names['learner']
    self.assertEqual((learner.added, learner.updates), (5 * 15 * 16, 8 + 1))
    self.assertGreater(np.abs(names['weights']).max(), 0)
    np.testing.assert_allclose(
        agile_tf.load_reward_model(names['saved'])(
            names['images'], names['texts']),
        learner.probabilities(names['images'], names['texts']), atol=1e-4)

  def test_stable_baselines3_learns_and_saves(self):
    if not importlib.util.find_spec('stable_baselines3'):
      self.skipTest('Stable-Baselines3 is not installed.')
    names = self._run(2, ('1_200_000', '1920'))
    learner = names['learner']
    # Random play, and two rollouts of PPO.
    self.assertEqual(learner.added, 375 * 16 + 1920)
    self.assertEqual(names['model'].num_timesteps, 1920)
    self.assertTrue(os.path.isdir(names['saved']))
