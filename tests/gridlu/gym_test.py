"""Tests for gridlu.gym."""

import subprocess
import sys
from unittest import mock
import warnings

from absl.testing import parameterized
import numpy as np
import pytest

import gridlu
from gridlu import language
from gridlu import tasks
from gridlu import world
from tests.gridlu import corners

gymnasium = pytest.importorskip('gymnasium')

from gymnasium.envs import registration  # noqa: E402
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
    for module, name in ('gridlu', ''), ('sys', 'gridlu.gym:'):
      code = (f'import gymnasium, {module}; '
              f'gymnasium.make("{name}GridLU-Relations-v0").reset(seed=0)')
      subprocess.run([sys.executable, '-c', code], check=True)

  def test_a_new_task_is_registered_once(self):
    self.enter_context(mock.patch.dict(gymnasium.registry))
    self.enter_context(mock.patch.dict(
        tasks.TASKS, corners=tasks.from_module(corners)))
    gridlu.gym.register()
    spec = gymnasium.registry['GridLU-Corners-v0']
    gridlu.gym.register()
    self.assertIs(gymnasium.registry['GridLU-Corners-v0'], spec)
    environment = gymnasium.make('GridLU-Corners-v0')
    observation, _ = environment.reset(seed=0)
    self.assertRegex(observation['instruction'], '^InCorner')
    self.assertIn(observation, environment.observation_space)

  @parameterized.parameters(*_NAMES)
  def test_plays_as_gridlu(self, task):
    arguments = dict(rewarded=True, solved_starts=True)
    environment = gymnasium.make(_NAMES[task], **arguments)
    expected = gridlu.GridLU(task, seed=7, **arguments)
    rng = np.random.default_rng(0)
    starts, successes = 0, 0
    for episode in range(20):
      observation, info = environment.reset(
          seed=None if episode else 7)
      step = expected.reset()
      self.assertEqual(info, {'is_success': expected.success})
      starts += expected.success
      truncated = False
      while not step.last():
        self.assertFalse(truncated)
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
        self.assertEqual(info, {'is_success': bool(gridlu.satisfied(
            expected.instruction, expected.state))})
        self.assertFalse(terminated)
        successes += info['is_success']
      self.assertTrue(truncated)
    if task == 'relations':
      self.assertGreater(starts, 0)
      self.assertGreater(successes, 0)
    self.assertEqual(environment.unwrapped.instruction, expected.instruction)
    np.testing.assert_array_equal(environment.unwrapped.state.blocks,
                                  expected.state.blocks)

  @parameterized.parameters(
      {'physics': world.IMMOVABLE_RED_RECTS},
      {'physics': 'immovable_red_rects', 'solved_starts': True,
       'rewarded': False, 'render_mode': 'rgb_array'},
      {'instructions': ["SameLocation(AGENT, Color('red', SCENE))"],
       'max_episode_steps': 3},
      {'instructions': language.relations_instructions()[::9]})
  def test_a_spec_survives_json(self, **arguments):
    first = gymnasium.make('GridLU-Relations-v0', **arguments)
    if 'instructions' in arguments:
      first = gridlu.gym.TokenInstruction(first)
    second = gymnasium.make(
        registration.EnvSpec.from_json(first.spec.to_json()))
    self.assertEqual(second.spec.to_json(), first.spec.to_json())
    for environment in first, second:
      environment.reset(seed=3)
    truncated = False
    while not truncated:
      actual, expected = second.step(4), first.step(4)
      truncated = expected[3]
      for key, value in expected[0].items():
        np.testing.assert_array_equal(actual[0][key], value)
      self.assertEqual(actual[1:], expected[1:])
    self.assertEqual(second.unwrapped._environment.physics,
                     first.unwrapped._environment.physics)

  def test_pictures_are_of_the_board(self):
    environment = gridlu.gym.GridLUEnv(render_mode='rgb_array')
    observation, _ = environment.reset(seed=0)
    picture = environment.render()
    observation['image'][:] = 0
    np.testing.assert_array_equal(environment.render(), picture)

  def test_space_has_every_instruction(self):
    for task, instructions in (
        ('relations', language.relations_instructions()),
        ('arrangements', language.arrangements_instructions())):
      environment = gymnasium.make(
          _NAMES[task], instructions=[str(instructions[0])])
      space = environment.observation_space['instruction']
      for instruction in instructions:
        self.assertIn(str(instruction), space)

  @parameterized.parameters(*_NAMES.values())
  def test_renders_pictures_for_a_person(self, name):
    environment = gymnasium.make(name, render_mode='rgb_array')
    shapes, captions = set(), set()
    for episode in range(20):
      environment.reset(seed=None if episode else 0)
      observation, *_ = environment.step(1)
      picture = environment.render()
      shapes.add(picture.shape)
      np.testing.assert_array_equal(
          picture[8:8 + 448:8, 8:8 + 448:8], observation['image'])
      caption = picture[8 + 448:]
      self.assertTrue(np.any(caption < 128))  # Black on white.
      captions.add((observation['instruction'], caption.tobytes()))
    for column in zip(*captions):  # One caption for each text.
      self.assertLen(set(column), len(captions))
    (height, width, _), = shapes
    self.assertEqual((height % 2, width % 2), (0, 0))  # Video codecs ask this.

  @parameterized.parameters('sync', 'async')
  def test_vectorised_environments_have_instructions(self, mode):
    # Gymnasium's memory that processes share has no texts.
    kwargs = {'shared_memory': False} if mode == 'async' else {}
    environments = gymnasium.make_vec(
        'GridLU-Relations-v0', num_envs=2, vectorization_mode=mode,
        vector_kwargs=kwargs)
    try:
      texts = environments.reset(seed=0)[0]['instruction']
    finally:
      environments.close()
    expected = [gridlu.GridLU(seed=i).reset().observation['instruction']
                for i in range(2)]
    self.assertEqual(list(texts), expected)

  def test_each_instruction_has_its_row_of_tokens(self):
    environment = gridlu.gym.TokenInstruction(
        gymnasium.make('GridLU-Relations-v0'))
    tokens = ('', *environment.tokens)
    rows = {}
    for episode in range(200):
      observation, _ = environment.reset(seed=None if episode else 0)
      self.assertIn(observation, environment.observation_space)
      row = observation['instruction']
      rows[str(environment.unwrapped.instruction)] = tuple(row)
      text = str(environment.unwrapped.instruction)
      for word in 'Color', 'Shape', 'SCENE', '(', ')', "'", ',':
        text = text.replace(word, ' ')
      self.assertEqual(' '.join(tokens[i] for i in row).split(), text.split())
    self.assertLen(set(rows.values()), len(rows))
    np.testing.assert_array_equal(
        environment.step(1)[0]['instruction'], row)
    self.assertEqual(environment.observation_space['instruction'].shape, (5,))

  @parameterized.parameters(*_NAMES.values())
  def test_tokens_pass_gymnasiums_checker_and_flatten(self, name):
    environment = gridlu.gym.TokenInstruction(
        gymnasium.wrappers.TimeAwareObservation(
            gymnasium.make(name), flatten=False))
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      # It warns of every wrapper.
      warnings.filterwarnings('ignore', message='.*is different from the unw')
      env_checker.check_env(environment, skip_render_check=True)
    flat = gymnasium.wrappers.FlattenObservation(environment)
    observation, _ = flat.reset(seed=0)
    self.assertIn(observation, flat.observation_space)
    self.assertLen(flat.observation_space.shape, 1)

  def test_instructions_of_an_iterator_stay(self):
    environment = gridlu.gym.GridLUEnv(
        instructions=iter(["NorthFrom(AGENT, Color('red', SCENE))"]))
    for seed in None, 0:
      environment.reset(seed=seed)
      self.assertIn('NorthFrom(AGENT', str(environment.instruction))

  @parameterized.parameters(
      'from gridlu import gym', 'import gridlu.vectorized',
      'import agile_tf; agile_tf.LearnedReward')
  def test_without_gymnasium_the_command_that_installs_it_is_named(self, code):
    result = subprocess.run(
        [sys.executable, '-c', 'import sys; sys.modules["gymnasium"] = None\n'
         f'{code}'], capture_output=True, text=True, check=False)
    self.assertEqual(result.returncode, 1)
    self.assertRegex(
        result.stderr.splitlines()[-1],
        r"^ImportError: gridlu.gym needs Gymnasium .*install -e '\.\[gym\]'")

  @parameterized.parameters(
      gridlu.gym.GridLUEnv, lambda: gymnasium.make('GridLU-Relations-v0'),
      lambda: gridlu.gym.TokenInstruction(gridlu.gym.GridLUEnv()))
  def test_nothing_goes_on_after_close(self, make):
    environment = make()
    environment.reset(seed=0)
    environment.close()
    environment.close()
    for use in (lambda: environment.step(0), environment.reset,
                environment.unwrapped.render):
      with self.assertRaisesRegex(
          gymnasium.error.ClosedEnvironmentError, 'make a new one'):
        use()

  def test_misuse_is_named(self):
    environment = gridlu.gym.GridLUEnv(render_mode='rgb_array')
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      environment.step(0)
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      environment.render()
    environment.reset(seed=0)
    with self.assertRaisesRegex(ValueError, 'action is 6'):
      environment.step(6)
    with self.assertRaisesRegex(ValueError, "render_mode is 'human'"):
      gridlu.gym.GridLUEnv(render_mode='human')
    with self.assertRaisesRegex(ValueError, 'is no GridLU environment'):
      gridlu.gym.TokenInstruction(gymnasium.make('CartPole-v1'))
