"""Tests for gridlu.gym."""

import subprocess
import sys
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

import gridlu
from gridlu import language
from gridlu import world

gymnasium = pytest.importorskip('gymnasium')

from gymnasium.utils import env_checker  # noqa: E402

import gridlu.gym  # noqa: E402

_NAMES = {'relations': 'GridLU-Relations-v0',
          'arrangements': 'GridLU-Arrangements-v0'}


class GridLUEnvTest(parameterized.TestCase):

  @parameterized.parameters(*_NAMES.values())
  def test_passes_gymnasiums_checker(self, name):
    environment = gymnasium.make(name, render_mode='rgb_array').unwrapped
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      env_checker.check_env(environment)

  def test_is_found_where_gridlu_is_imported(self):
    code = ('import gymnasium, gridlu; '
            'gymnasium.make("GridLU-Relations-v0").reset(seed=0)')
    subprocess.run([sys.executable, '-c', code], check=True)

  def test_is_found_by_its_module(self):
    environment = gymnasium.make('gridlu.gym:GridLU-Relations-v0')
    self.assertIsInstance(environment.unwrapped, gridlu.gym.GridLUEnv)

  @parameterized.product(task=tuple(_NAMES), truncate=(False, True))
  def test_plays_as_gridlu(self, task, truncate):
    environment = gymnasium.make(_NAMES[task], truncate=truncate, rewarded=True)
    expected = gridlu.GridLU(task, seed=7, rewarded=True)
    rng = np.random.default_rng(0)
    for episode in range(20):
      observation, info = environment.reset(
          seed=None if episode else 7)
      step = expected.reset()
      terminated = truncated = False
      while not step.last():
        self.assertFalse(terminated or truncated)
        action = rng.integers(6)
        observation, reward, terminated, truncated, info = environment.step(
            action)
        step = expected.step(action)
        np.testing.assert_array_equal(observation['image'],
                                      step.observation['image'])
        self.assertEqual(observation['instruction'],
                         step.observation['instruction'])
        self.assertEqual(reward, step.reward)
        self.assertIn(observation, environment.observation_space)
        self.assertEqual(info, {})
      self.assertEqual((terminated, truncated), (not truncate, truncate))
    self.assertEqual(environment.unwrapped.instruction, expected.instruction)
    np.testing.assert_array_equal(environment.unwrapped.state.blocks,
                                  expected.state.blocks)

  def test_space_has_every_instruction(self):
    for task, instructions in (
        ('relations', language.relations_instructions()),
        ('arrangements', language.arrangements_instructions())):
      environment = gymnasium.make(_NAMES[task], instructions=instructions[:1])
      space = environment.observation_space['instruction']
      for instruction in instructions:
        self.assertIn(str(instruction), space)
      lengths = {len(str(i)) for i in instructions}
      self.assertEqual((space.min_length, space.max_length),
                       (min(lengths), max(lengths)))
      self.assertEqual(space.character_set,
                       frozenset(''.join(map(str, instructions))))

  def test_arguments_arrive(self):
    text = "SameLocation(AGENT, Color('red', Shape('rect', SCENE)))"
    environment = gymnasium.make(
        'GridLU-Relations-v0', instructions=[text], episode_length=3,
        physics=world.IMMOVABLE_RED_RECTS)
    for seed in range(20):
      observation, _ = environment.reset(seed=seed)
      self.assertEqual(observation['instruction'], text)
      self.assertEqual([environment.step(4)[2] for _ in range(3)],
                       [False, False, True])
      state = environment.unwrapped.state
      self.assertFalse(state.carrying and state.blocks[*state.agent] == 4)

  def test_seeds(self):
    def starts(seed):
      environment = gymnasium.make('GridLU-Relations-v0')
      observations = [environment.reset(seed=seed)[0]]
      observations += [environment.reset()[0] for _ in range(3)]
      return [(o['instruction'], o['image'].tobytes()) for o in observations]

    self.assertEqual(starts(1), starts(1))
    self.assertNotEqual(starts(1), starts(2))
    self.assertNotEqual(starts(None), starts(None))

  def test_renders_the_observation(self):
    environment = gymnasium.make('GridLU-Relations-v0',
                                 render_mode='rgb_array')
    observation, _ = environment.reset(seed=0)
    np.testing.assert_array_equal(environment.render(), observation['image'])
    observation, *_ = environment.step(1)
    picture = environment.render()
    np.testing.assert_array_equal(picture, observation['image'])
    picture[:] = 0
    self.assertGreater(np.sum(observation['image']), 0)

  def test_vectorises(self):
    environments = gymnasium.make_vec(
        'GridLU-Relations-v0', num_envs=2, vectorization_mode='sync')
    observation, _ = environments.reset(seed=0)
    self.assertEqual(observation['image'].shape, (2, 56, 56, 3))
    self.assertLen(observation['instruction'], 2)

  def test_misuse_is_named(self):
    environment = gridlu.gym.GridLUEnv(
        episode_length=1, render_mode='rgb_array')
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      environment.step(0)
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      environment.render()
    environment.reset(seed=0)
    with self.assertRaisesRegex(ValueError, 'action is 6'):
      environment.step(6)
    environment.step(0)
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      environment.step(0)
    with self.assertRaisesRegex(ValueError, "render_mode is 'human'"):
      gridlu.gym.GridLUEnv(render_mode='human')
    with self.assertRaisesRegex(ValueError, "task is 'chess'"):
      gridlu.gym.GridLUEnv(task='chess')


if __name__ == '__main__':
  absltest.main()
