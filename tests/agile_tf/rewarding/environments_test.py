"""Tests for a reward model as the reward of environments."""

import re
import subprocess
import sys
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import gymnasium
from gymnasium.utils import env_checker
import numpy as np

import agile_tf
from agile_tf import config as config_lib
from gridlu import gym as gridlu_gym
from gridlu import rendering
from tests.agile_tf import tiny

_FORKS = """
import sys, gymnasium, agile_tf, gridlu
def make():
  return agile_tf.LearnedReward(
      gymnasium.make('GridLU-Relations-v0'), agile_tf.TRAINED)
make().reset(seed=0)
environments = gymnasium.vector.AsyncVectorEnv(
    2 * [make], shared_memory=False, context='fork')
environments.reset(seed=0)
assert environments.step([0, 1])[1].shape == (2,)
environments.close()
assert 'tensorflow' not in sys.modules
"""

_SHARED = """
import gymnasium, agile_tf, gridlu
import numpy as np
def rewards(shared_memory):
  environments = agile_tf.LearnedVectorReward(
      gymnasium.make_vec(
          'GridLU-Relations-v0', num_envs=2, vectorization_mode='async',
          vector_kwargs={'shared_memory': shared_memory, 'context': 'fork'}),
      lambda images, texts: np.ones(len(texts)))
  environments.reset(seed=0)
  try:
    return environments.step([0, 1])[1].tolist()
  finally:
    environments.close()
assert rewards(False) == [1, 1]
try:
  rewards(True)
except ValueError as error:
  assert 'is a blank text of' in str(error), error
  assert 'with shared_memory=False' in str(error), error
else:
  raise AssertionError('Nothing was refused.')
"""


class _Model:
  """Gives the probabilities that it is told to, and keeps what it saw."""

  def __init__(self, probabilities):
    self.probabilities = iter(probabilities)

  def __call__(self, images, instructions):
    self.seen = images, instructions
    return np.array([next(self.probabilities)], np.float32)


class LearnedRewardTest(absltest.TestCase):

  def test_rewards_are_decisions_on_the_state_after_the_action(self):
    model = _Model([0.2, 0.5, 0.51, 1.0] * 10)
    environment = gymnasium.wrappers.FlattenObservation(
        agile_tf.LearnedReward(gymnasium.wrappers.TransformReward(
            gridlu_gym.TokenInstruction(gymnasium.make(
                'GridLU-Relations-v0', solved_starts=True)),
            lambda reward: reward - 0.1), model))
    plain = gymnasium.make('GridLU-Relations-v0', solved_starts=True)
    true_rewards = []
    for seed, reward in enumerate([0.0, 0.0, 1.0, 1.0] * 10):
      environment.reset(seed=seed)
      plain.reset(seed=seed)
      _, decided, terminated, truncated, info = environment.step(seed % 4)
      observation, *expected = plain.step(seed % 4)
      self.assertEqual((decided, type(decided)), (reward, float))
      self.assertEqual(
          [info['environment_reward'] + 0.1, terminated, truncated],
          expected[:3])
      self.assertEqual(info['goal_probability'] > 0.5, reward)
      true_rewards.append(info['environment_reward'])
      images, texts = model.seen
      np.testing.assert_array_equal(images, observation['image'][None])
      self.assertEqual(texts, [observation['instruction']])
    self.assertLen(set(true_rewards), 2)

  def test_a_threshold_decides_what_is_rewarded(self):
    environment = agile_tf.LearnedReward(
        gymnasium.make('GridLU-Relations-v0'), _Model([0.79, 0.81]),
        reward_threshold=0.8)
    environment.reset(seed=0)
    self.assertEqual([environment.step(0)[1] for _ in range(2)], [0, 1])
    vector = agile_tf.LearnedVectorReward(
        gymnasium.make_vec('GridLU-Relations-v0', num_envs=1),
        _Model([0.79, 0.81]), reward_threshold=0.8)
    vector.reset(seed=0)
    self.assertEqual([vector.step([0])[1].item() for _ in range(2)], [0, 1])

  def test_a_runs_reward_model(self):
    run_dir = tiny.save_for(type(self))
    environment = agile_tf.LearnedReward(
        gymnasium.make('GridLU-Relations-v0'), run_dir)
    environment.reset(seed=0)
    _, reward, *_ = environment.step(0)
    board = environment.unwrapped
    probability, = agile_tf.load_reward_model(run_dir)(
        rendering.render(board.state)[None], [str(board.instruction)])
    self.assertEqual(reward, probability > 0.5)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(
        environment.spec.to_json()))
    again.reset(seed=0)
    self.assertEqual(again.step(0)[1], reward)

  def test_environments_of_a_vector_are_wrapped_one_by_one(self):
    name = 'GridLU-Relations-v0'
    model = _Model([0.2, 0.8, 0.8, 0.2])
    for vector in (gymnasium.make_vec(name, num_envs=2),
                   gymnasium.make_vec(
                       name, num_envs=2, vectorization_mode='sync')):
      for wrapper in (gridlu_gym.TokenInstruction,
                      lambda env: agile_tf.LearnedReward(env, model)):
        with self.assertRaisesRegex(
            ValueError, r"[Ww]rap each .*'sync', .*wrappers=\["):
          wrapper(vector)
    vector = gymnasium.make_vec(
        name, num_envs=2, vectorization_mode='sync',
        wrappers=[lambda env: agile_tf.LearnedReward(env, model)])
    vector.reset(seed=0)
    for rewards in [0.0, 1.0], [1.0, 0.0]:
      self.assertEqual(vector.step(np.array([0, 1]))[1].tolist(), rewards)
    with self.assertRaisesRegex(ValueError, 'None is no gymnasium.Env'):
      agile_tf.LearnedReward(None, model)

  def test_forks_use_a_runs_reward_model(self):
    # In a process of its own: a fork has no threads of its parent's TensorFlow.
    subprocess.run([sys.executable, '-c', _FORKS], check=True)

  def test_what_has_no_image_or_text_is_named(self):
    for name, arguments, message in (
        ('CartPole-v1', {}, "no 'image'; it is a ndarray.*image=..., a key"),
        ('GridLU-Relations-v0', dict(image='picture'), "no 'picture'; it is a "
         'dict with image, instruction'),
        ('GridLU-Relations-v0', dict(image=lambda *_: np.zeros([5, 5])),
         r'image is float64 \[5, 5\]: expected uint8 \[H, W, 3\]'),
        ('GridLU-Relations-v0', dict(instruction=lambda *_: 3),
         'instruction is 3: expected a text'),
        ('GridLU-Relations-v0', dict(instruction=lambda *_: ' \n'),
         'instruction is a blank text of 2 characters: expected words')):
      environment = agile_tf.LearnedReward(
          gymnasium.make(name), _Model([]), **arguments)
      environment.reset(seed=0)
      with self.assertRaisesRegex(ValueError, message):
        environment.step(0)

  def test_texts_that_shared_memory_blanks_are_named(self):
    # In a process of its own, as the forks of the test before.
    subprocess.run([sys.executable, '-c', _SHARED], check=True)

  def test_a_closed_environment_takes_no_steps(self):
    environment = agile_tf.LearnedReward(
        gymnasium.make('GridLU-Relations-v0'), _Model([]))
    environment.reset(seed=0)
    environment.close()
    with self.assertRaisesRegex(
        gymnasium.error.ClosedEnvironmentError, 'make a new one'):
      environment.step(0)

  def test_what_step_returns_wrongly_is_named(self):
    class Broken(gymnasium.Wrapper):

      def step(self, action):
        return self.change(self.env.step(action))

    environment = Broken(gymnasium.make('GridLU-Relations-v0'))
    wrapped = agile_tf.LearnedReward(environment, _Model([]))
    for change, message in (
        (lambda result: None, 'returned None: expected .observation, reward'),
        (lambda result: result[:4], 'expected .observation, reward, term'),
        (lambda result: (*result[:4], None), 'returned None as info'),
        (lambda result: (result[0], 'x', *result[2:]), "'x' as reward"),
        (lambda result: (result[0], None, *result[2:]), 'None as reward')):
      environment.change = change
      wrapped.reset(seed=0)
      with self.assertRaisesRegex(ValueError, message):
        wrapped.step(0)

  def test_wrong_arguments_are_named(self):
    environment = gymnasium.make('GridLU-Relations-v0')
    with self.assertRaisesRegex(ValueError, 'reward model that does not learn'):
      agile_tf.LearnedReward(environment, _Model([]), states_per_update=5)
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'reward_threshold=1.0: expected at least'):
      agile_tf.LearnedReward(environment, _Model([]), reward_threshold=1.0)
    with self.assertRaisesRegex(
        ValueError, 'reward_threshold is 0.9 with a RewardLearner, which has '
        r'its own: RewardLearner\(..., reward_threshold=0.9\)'):
      agile_tf.LearnedReward(environment, _Learner(), reward_threshold=0.9)
    many = gymnasium.make_vec('GridLU-Relations-v0', num_envs=2)
    for name in 'image', 'instruction':
      for wrong in 3, 0, b'x', (), ('image', 3), {'image'}:
        for wrapper, wrapped in ((agile_tf.LearnedReward, environment),
                                 (agile_tf.LearnedVectorReward, many)):
          with self.assertRaisesRegex(
              ValueError, f'^{name} is {re.escape(repr(wrong))}: expected a '
              'key of the observation, a tuple of keys, or a function'):
            wrapper(wrapped, _Model([]), **{name: wrong})
    with self.assertRaisesRegex(ValueError, 'image is None: expected a key'):
      agile_tf.LearnedVectorReward(many, _Model([]), image=None)
    with self.assertRaisesRegex(ValueError, 'no gymnasium.vector.VectorEnv'):
      agile_tf.LearnedVectorReward(environment, _Model([]))
    vector = gymnasium.make_vec('GridLU-Relations-v0', num_envs=2)
    vector.metadata = {}
    with self.assertRaisesRegex(ValueError, "autoreset_mode'. of .* is None"):
      agile_tf.LearnedVectorReward(vector, _Model([]))
    tokens = agile_tf.LearnedVectorReward(
        gymnasium.make_vec('GridLU-Relations-v0', num_envs=2, tokens=True),
        _Model([]))
    with self.assertRaisesRegex(ValueError, "options is 'all': expected a di"):
      tokens.reset(options='all')
    tokens.reset(seed=0)
    with self.assertRaisesRegex(ValueError, 'instruction is array.*a text'):
      tokens.step(np.zeros(2, int))


class _Counting(gymnasium.Env):
  """Shows how often it was stepped; episodes have 1, 2, 3, 1, ... steps.

  Every second episode is truncated. The instruction changes with the episode.
  With `numbers` it is a number, and info has the text.
  """

  def __init__(self, numbers=False):
    self._numbers = numbers
    self.observation_space = gymnasium.spaces.Dict({
        'picture': gymnasium.spaces.Box(0, 255, [24, 24, 3], np.uint8),
        'mission': gymnasium.spaces.Discrete(1000) if numbers else (
            gymnasium.spaces.Text(20, charset='episode 0123456789'))})
    self.action_space = gymnasium.spaces.Discrete(2)
    self._episode, self._offset = -1, 0

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    if seed is not None:
      self._episode, self._offset = -1, seed % 256
    self._episode += 1
    self._steps = 0
    return self._observed()

  def _observed(self):
    image = np.zeros([24, 24, 3], np.uint8)
    image[0, 0] = self._offset, self._episode, self._steps
    text = f'episode {self._episode}'
    return ({'picture': image,
             'mission': self._episode if self._numbers else text},
            {'text': text})

  def step(self, action):
    self._steps += 1
    ended = self._steps == 1 + self._episode % 3
    observation, info = self._observed()
    return (observation, 0.1 * self._steps, ended and self._episode % 2 == 0,
            ended and self._episode % 2 == 1, info)


def _rated(images, texts):
  """Returns what looks like a probability, from all that a pair has."""
  return np.array([
      (17 * int(image[0, 0] @ [5, 3, 2]) + 29 * int(text[8:])) % 101 / 100
      for image, text in zip(images, texts)], np.float32)


class _Learner:
  """Has the methods of a `RewardLearner` that the wrappers call."""
  ready = True

  def __init__(self):
    self.added, self.updated = [], []

  def rate(self, images, texts):
    probabilities = _rated(images, texts)
    return 2 * probabilities, probabilities

  def add(self, images, texts):
    self.added += [(*image[0, 0].tolist(), text)
                   for image, text in zip(images, texts)]

  def update(self):
    self.updated.append(len(self.added))
    return {'discriminator_loss': 0.5}


def _oracle(count, seed):
  """Plays one environment by hand.

  Returns:
    Of each of `count` steps the pair of state and text, the reward of the
    environment, and whether the episode ended.
  """
  environment = _Counting()
  environment.reset(seed=seed)
  steps = []
  for _ in range(count):
    observation, reward, terminated, truncated, _ = environment.step(0)
    steps.append(((*observation['picture'][0, 0].tolist(),
                   observation['mission']), reward, terminated or truncated))
    if terminated or truncated:
      environment.reset()
  return steps


def _with_resets(steps):
  """Inserts None after the end of each episode, as NEXT_STEP has it."""
  return [each for step in steps
          for each in ([step, None] if step[2] else [step])]


def _probability(pair):
  *pixels, text = pair
  return float(_rated([np.array([[pixels]])], [text])[0])


_COUNT = 25
_KEYS = dict(image='picture', instruction='mission')


class OracleTest(parameterized.TestCase):
  """Compares all wrappers with one environment that is played by hand."""

  def _check(self, expected, rewards, infos_of, learner, per_update):
    """Compares steps [T][N] with rewards [T, N] and infos."""
    states = []
    for t, row in enumerate(expected):
      for i, step in enumerate(row):
        info = infos_of(t, i)
        if step is None:
          self.assertEqual(rewards[t][i], 0)
          self.assertNotIn('goal_probability', info)
          continue
        pair, own, _ = step
        probability = _probability(pair)
        self.assertAlmostEqual(rewards[t][i], 2 * probability, places=6)
        self.assertAlmostEqual(info['goal_probability'], probability, places=6)
        self.assertAlmostEqual(info['environment_reward'], own, places=6)
        states.append(pair)
    self.assertEqual(learner.added, states)
    # Once for each so many states, at the end of the step that reached them.
    due, since, total = [], 0, 0
    for row in expected:
      count = sum(step is not None for step in row)
      total, since = total + count, since + count
      if since >= per_update:
        due.append(total)
        since = 0
    self.assertEqual(learner.updated, due)
    self.assertNotEmpty(due)

  def test_one_environment(self):
    learner = _Learner()
    environment = agile_tf.LearnedReward(
        _Counting(), learner, states_per_update=4, **_KEYS)
    environment.reset(seed=7)
    rewards, infos = [], []
    for _ in range(_COUNT):
      _, reward, terminated, truncated, info = environment.step(0)
      rewards.append([reward])
      infos.append(info)
      if terminated or truncated:
        environment.reset()
    self._check([[step] for step in _oracle(_COUNT, 7)], rewards,
                lambda t, i: infos[t], learner, 4)

  @parameterized.product(mode=[*gymnasium.vector.AutoresetMode],
                         by_function=[False, True])
  def test_many_environments(self, mode, by_function):
    learner = _Learner()
    sources = _KEYS
    if by_function:
      sources = dict(image=lambda observation, info: observation['picture'],
                     instruction=lambda observation, info: info['text'])
    vector = agile_tf.LearnedVectorReward(
        gymnasium.vector.SyncVectorEnv(3 * [_Counting], autoreset_mode=mode),
        learner, states_per_update=7, **sources)
    vector.reset(seed=[4, 5, 6])
    rewards, infos = [], []
    for _ in range(_COUNT):
      _, reward, terminated, truncated, info = vector.step(np.zeros(3, int))
      rewards.append(reward)
      infos.append(info)
      ended = terminated | truncated
      if mode == gymnasium.vector.AutoresetMode.DISABLED and ended.any():
        vector.reset(options={'reset_mask': ended})
    columns = [_oracle(_COUNT, seed) for seed in (4, 5, 6)]
    if mode == gymnasium.vector.AutoresetMode.NEXT_STEP:
      columns = [_with_resets(column)[:_COUNT] for column in columns]
      self.assertIn(None, columns[0])
    self._check([*zip(*columns)], rewards, lambda t, i: {
        name: infos[t][name][i]
        for name in ('goal_probability', 'environment_reward')
        if infos[t][f'_{name}'][i]}, learner, 7)

  def test_environments_of_stable_baselines3(self):
    try:
      from stable_baselines3.common import vec_env

      from agile_tf.rewarding import stable_baselines3 as rewarding
    except ImportError:
      self.skipTest('Stable-Baselines3 is not installed.')
    learner = _Learner()
    environments = rewarding.LearnedVecReward(
        vec_env.DummyVecEnv(3 * [lambda: _Counting(numbers=True)]), learner,
        image='picture', instruction=lambda observation, info: info['text'],
        states_per_update=7)
    environments.seed(4)
    environments.reset()
    rewards, infos = [], []
    for _ in range(_COUNT):
      _, reward, _, info = environments.step(np.zeros(3, int))
      rewards.append(reward)
      infos.append(info)
    self._check([*zip(*(_oracle(_COUNT, seed) for seed in (4, 5, 6)))],
                rewards, lambda t, i: infos[t][i], learner, 7)

  def test_an_image_that_is_overwritten_later_is_rated_as_it_was(self):
    class Overwriting(_Counting):
      def _observed(self):
        observation, info = super()._observed()
        if not hasattr(self, 'image'):
          self.image = observation['picture']
        self.image[:] = observation['picture']
        return observation | {'picture': self.image}, info

    learner = agile_tf.RewardLearner(
        (np.zeros([9, 24, 24, 3], np.uint8),
         [f'episode {i}' for i in range(9)]),
        batch_size=8, anticipated_negative_rate=0.5, replay_size=64)
    environment = agile_tf.LearnedReward(Overwriting(), learner, **_KEYS)
    environment.reset(seed=7)
    for _ in range(5):
      _, _, terminated, truncated, _ = environment.step(0)
      if terminated or truncated:
        environment.reset()
    self.assertEqual(
        learner._learner.buffer.state()['observations'][:, 0, 0].tolist(),
        [list(pair[:3]) for pair, *_ in _oracle(5, 7)])

  def test_stable_baselines3_accepts_the_wrapped_environment(self):
    try:
      from stable_baselines3.common import env_checker as checker
    except ImportError:
      self.skipTest('Stable-Baselines3 is not installed.')
    with warnings.catch_warnings():
      # It advises larger images and other spaces; its errors are assertions.
      warnings.simplefilter('ignore')
      checker.check_env(agile_tf.LearnedReward(
          _Counting(numbers=True), _rated, image='picture',
          instruction=lambda observation, info: info['text']))
      checker.check_env(agile_tf.LearnedReward(
          gridlu_gym.TokenInstruction(gymnasium.make('GridLU-Relations-v0')),
          agile_tf.TRAINED))

  def test_gymnasium_accepts_the_wrapped_environment(self):
    with warnings.catch_warnings():
      # It would rather be given the environment within.
      warnings.filterwarnings('ignore', message='.*is different from the '
                              'unwrapped version.*')
      env_checker.check_env(agile_tf.LearnedReward(
          _Counting(), _rated, **_KEYS), skip_render_check=True)
      env_checker.check_env(agile_tf.LearnedReward(
          gymnasium.make('GridLU-Relations-v0').unwrapped, agile_tf.TRAINED),
          skip_render_check=True)
