"""Runs the programs of docs/reward_with_any_learner.md for some steps."""

import contextlib
import importlib.util
import os
import pathlib
import re
import sys
from unittest import mock

from absl.testing import absltest
import gymnasium
import numpy as np

import agile_tf

_DOCS = pathlib.Path(__file__).parents[3] / 'docs'
_GUIDE = _DOCS / 'reward_with_any_learner.md'
# The programs, in the order of the page.
_PICTURED, _ROOM, _GRIDLU, _LOOP = range(4)


class _Ends(gymnasium.Env):
  """Ends at its third step with a reward, and cannot be stepped after that."""
  metadata = {'render_modes': ['rgb_array'], 'render_fps': 4}
  observation_space = gymnasium.spaces.Discrete(10)
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self, render_mode=None):
    self.render_mode = render_mode

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._steps = 0
    return 0, {}

  def step(self, action):
    assert self._steps < 3
    self._steps += 1
    ended = self._steps == 3
    return self._steps, float(ended), ended, False, {'n': self._steps}

  def render(self):
    return np.full([24, 24, 3], self._steps, np.uint8)


def _programs(guide):
  """Returns the programs of a guide that its test runs."""
  return re.findall(r'guide_test.py runs this. -->\n```python\n(.*?)```',
                    guide.read_text(encoding='utf-8'), re.DOTALL)


class GuideTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = self.create_tempdir().full_path

  def _run(self, number, *changes):
    """Runs a changed program of the guide; returns its names."""
    shorter = _programs(_GUIDE)[number]
    for text, other in changes:
      self.assertEqual(shorter.count(text), 1)
      shorter = shorter.replace(text, other)
    names = {'__name__': '__main__'}
    with contextlib.chdir(self._folder):
      exec(compile(shorter, str(_GUIDE), 'exec'), names)
    return names

  def _room(self):
    """Writes the room of the guide to Gymnasium, which a program imports."""
    room, = _programs(_DOCS / 'gymnasium_world.md')
    pathlib.Path(self._folder, 'my_room.py').write_text(room, encoding='utf-8')
    self.enter_context(mock.patch.object(sys, 'path', [
        self._folder, *sys.path]))
    self.addCleanup(sys.modules.pop, 'my_room', None)

  def _needs_stable_baselines3(self):
    if not importlib.util.find_spec('stable_baselines3'):
      self.skipTest('Stable-Baselines3 is not installed.')

  def test_an_episode_goes_on_with_its_last_state(self):
    source = re.search(r'class GoOn.*?\n\n\n', _programs(_GUIDE)[_ROOM],
                       re.DOTALL).group()
    names = {'gymnasium': gymnasium}
    exec(source, names)
    environment = gymnasium.wrappers.TimeLimit(
        names['GoOn'](_Ends()), max_episode_steps=60)
    for _ in range(2):
      self.assertEqual(environment.reset(), (0, {}))
      steps = [environment.step(1) for _ in range(60)]
      self.assertEqual([step[0] for step in steps], [1, 2] + 58 * [3])
      self.assertEqual([step[1] for step in steps], [0, 0] + 58 * [1])
      self.assertEqual([step[2] for step in steps], 60 * [False])
      self.assertEqual([step[3] for step in steps], 59 * [False] + [True])
      self.assertEqual([step[4]['n'] for step in steps], [1, 2] + 58 * [3])
      self.assertEqual(
          [step[4]['is_success'] for step in steps], 2 * [False] + 58 * [True])

  def test_pictures_are_of_the_states_after_steps(self):
    rated = []

    def model(images, texts):
      self.assertEqual(texts, 2 * ['reach three'])
      rated.append(images[:, 0, 0, 0].tolist())
      return np.ones(len(images))

    with mock.patch.dict(gymnasium.registry):
      gymnasium.register('Ends-v0', _Ends)
      names = self._run(_PICTURED, ('YOURS', 'Ends-v0'))
      environments = gymnasium.vector.SyncVectorEnv(
          2 * [names['make_pictured']],
          autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    environments = agile_tf.LearnedVectorReward(
        environments, model,
        image=lambda observation, info: info['picture'],
        instruction=lambda observation, info: 'reach three')
    environments.reset()
    for _ in range(5):
      environments.step(np.zeros(2, int))
    self.assertEqual(rated, [[1, 1], [2, 2], [3, 3], [1, 1], [2, 2]])

  def test_the_loop_learns_and_saves(self):
    names = self._run(
        _LOOP, ('range(1000)', 'range(5)'), ('START = 40', 'START = 3'),
        ('range(800 ', 'range(8 '))
    learner = names['learner']
    self.assertEqual((learner.added, learner.updates), (5 * 15 * 16, 8 + 1))
    self.assertGreater(np.abs(names['weights']).max(), 0)
    np.testing.assert_allclose(
        agile_tf.load_reward_model(os.path.join(self._folder, 'reward_model'))(
            names['images'], names['texts']),
        learner.probabilities(names['images'], names['texts']), atol=1e-4)

  def test_stable_baselines3_learns_an_environment_that_is_not_gridlu(self):
    self._needs_stable_baselines3()
    self._room()
    # D need not know its goals here.
    names = self._run(
        _ROOM, ('write_goals(2000)', 'write_goals(200)'),
        ('range(100, 3_001, 100)', 'range(1)'), ('> 0.9', '>= 0'),
        ('< 0.1', '<= 1'), ('800_000', '1920'),
        ('range(1000)', 'range(3)'), ('interval(successes, 1000)',
                                      'interval(successes, 3)'))
    learner, model = names['learner'], names['model']
    # Random play, and two rollouts of PPO; the evaluation adds no states.
    self.assertEqual(learner.added, 6_000 // 64 * 64 + 1920)
    self.assertEqual(model.num_timesteps, 1920)
    folder = pathlib.Path(self._folder, names['FOLDER'])
    observation = names['observation']
    self.assertEqual(
        type(model).load(folder / 'policy').predict(
            observation, deterministic=True)[0],
        model.predict(observation, deterministic=True)[0])
    texts = [names['INSTRUCTIONS'][observation['mission']]]
    np.testing.assert_allclose(
        agile_tf.load_reward_model(folder / 'reward_model')(
            observation['image'][None], texts),
        learner.probabilities(observation['image'][None], texts), atol=1e-4)

  def test_stable_baselines3_learns_gridlu_and_saves(self):
    self._needs_stable_baselines3()
    names = self._run(_GRIDLU, ('1_200_000', '1920'))
    learner = names['learner']
    # Random play, and two rollouts of PPO.
    self.assertEqual(learner.added, 375 * 16 + 1920)
    self.assertEqual(names['model'].num_timesteps, 1920)
    self.assertTrue(os.path.isdir(os.path.join(self._folder, 'reward_model')))
