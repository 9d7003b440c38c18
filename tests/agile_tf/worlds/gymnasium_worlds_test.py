"""Tests for AGILE's worlds of Gymnasium environments."""


from absl.testing import absltest
from absl.testing import parameterized
import gymnasium
from gymnasium import spaces
from gymnasium.envs import registration
import numpy as np

from agile_tf import own_world
from agile_tf import worlds
from tests.agile_tf.worlds import corridor
from tests.agile_tf.worlds.corridor import Corridor

_IMAGES = [corridor.draw(place) for place in range(corridor.SIZE)]


def _is_goal(observation, reward, info):
  return reward > 0


def _world(make=Corridor, **changes):
  """Returns a world of corridors with episodes of six steps."""
  return worlds.from_gymnasium(make, 'goals.npz', **dict(
      instructions=corridor.INSTRUCTIONS, episode_length=6,
      is_goal=_is_goal) | changes)


def _play(environment, actions):
  """Begins an episode and plays these actions; returns all time steps."""
  return [environment.reset(), *map(environment.step, actions)]


def _places(timesteps):
  """Returns where the agent is in the images."""
  return [next(i for i, image in enumerate(_IMAGES)
               if np.array_equal(image, timestep.observation['image']))
          for timestep in timesteps]


def _towards_goal(timestep, sign=1):
  """Returns the action that leads to the goal, or away from it."""
  right = timestep.observation['instruction'] == 'go right'
  return corridor.STAY + sign * (1 if right else -1)


def _altered(**parts):
  """Returns a function that makes corridors with other attributes."""
  def make():
    environment = Corridor()
    for name, value in parts.items():
      setattr(environment, name, value)
    return environment

  return make


class FromGymnasiumTest(parameterized.TestCase):

  @parameterized.parameters(1, -1)
  def test_after_any_end_the_last_state_is_frozen_to_the_time_limit(
      self, sign):
    made = []
    world = _world(lambda: made.append(Corridor(strict=True)) or made[-1])
    environment = world.make_environment(0)
    first = environment.reset()
    before = made[-1].steps
    action = _towards_goal(first, sign)
    away = 2 - action
    timesteps = [first, *map(
        environment.step, [action, action, away, away, away, away])]
    end = 0 if action == corridor.LEFT else 4
    self.assertEqual(_places(timesteps), [2, 1 + end // 2, *5 * [end]])
    goal = float(sign == 1)
    self.assertEqual([each.reward for each in timesteps],
                     [None, 0, *5 * [goal]])
    self.assertEqual([each.last() for each in timesteps],
                     [False] * 6 + [True])
    self.assertEqual(made[-1].steps - before, 2)
    self.assertEqual(timesteps[-1].discount, 1)
    # The next episode is not frozen.
    self.assertEqual(_places(_play(environment, [corridor.LEFT])), [2, 1])

  def test_ends_may_be_ignored(self):
    environment = _world(ignore_ends=True).make_environment(0)
    first = environment.reset()
    action = _towards_goal(first)
    timesteps = [first, *map(environment.step, [
        action, action, action, 2 - action, 2 - action, corridor.STAY])]
    end = 0 if action == corridor.LEFT else 4
    side = 1 + end // 2
    self.assertEqual(_places(timesteps), [2, side, end, end, side, 2, 2])
    self.assertEqual([each.reward for each in timesteps],
                     [None, 0, 1, 1, 0, 0, 0])
    self.assertTrue(timesteps[-1].last())

  def test_ends_that_cannot_be_ignored_are_explained(self):
    environment = _world(
        lambda: Corridor(strict=True), ignore_ends=True).make_environment(0)
    environment.reset()
    environment.step(corridor.LEFT)
    environment.step(corridor.LEFT)
    with self.assertRaisesRegex(RuntimeError, 'is over') as caught:
      environment.step(corridor.LEFT)
    self.assertIn('leave ignore_ends out', caught.exception.__notes__[0])

  @parameterized.product(ignore_ends=[False, True], given=[None, 5])
  def test_each_episode_has_the_steps_of_the_time_limit(
      self, ignore_ends, given):
    spec = registration.EnvSpec(
        'Corridor-v0', entry_point=Corridor, max_episode_steps=7)
    environment = _world(
        lambda: gymnasium.make(spec, disable_env_checker=True),
        episode_length=given, ignore_ends=ignore_ends).make_environment(3)
    rng = np.random.default_rng(0)
    for _ in range(20):
      timestep, steps = environment.reset(), 0
      while not timestep.last():
        timestep = environment.step(int(rng.integers(3)))
        steps += 1
      self.assertEqual(steps, given or 7)
      # A time limit is no goal and no failure: returns bootstrap.
      self.assertEqual(timestep.discount, 1)

  def test_the_seed_determines_all_episodes(self):
    made = []
    world = _world(lambda: made.append(Corridor()) or made[-1])

    def texts(seed):
      environment = world.make_environment(seed)
      return [environment.reset().observation['instruction']
              for _ in range(20)]

    self.assertEqual(texts(2**32 - 1), texts(2**32 - 1))
    self.assertNotEqual(texts(1), texts(2))
    self.assertEqual(made[-1].seeds, [2, *19 * [None]])
    self.assertCountEqual(set(texts(1)), corridor.INSTRUCTIONS)

  @parameterized.parameters(
      {'instruction': 'mission'}, {'instruction': ('goal', 'mission')},
      {'instruction': lambda observation, info: info['text']},
      {'image': lambda observation, info: observation['image'][:, :, ::-1]})
  def test_image_and_instruction_are_keys_or_functions(self, **sources):
    timestep = _world(**sources).make_environment(0).reset()
    self.assertIn(timestep.observation['instruction'], corridor.INSTRUCTIONS)
    self.assertEqual(_places([timestep]), [2])

  def test_actions_begin_where_the_space_says(self):
    class Numbered(gymnasium.Wrapper):
      action_space = spaces.Discrete(3, start=5)

      def step(self, action):
        assert self.action_space.contains(action), action
        return self.env.step(action - 5)

    environment = _world(lambda: Numbered(Corridor())).make_environment(0)
    self.assertEqual(_places(_play(
        environment, [corridor.RIGHT, corridor.LEFT])), [2, 3, 2])

  def test_without_a_ground_truth_there_is_no_reward(self):
    world = _world(is_goal=None)
    self.assertFalse(world.has_ground_truth)
    timesteps = _play(world.make_environment(0), [corridor.LEFT] * 3)
    self.assertEqual([each.reward for each in timesteps], [None] * 4)

  def test_wrong_arguments_are_named(self):
    for changes, message in (
        ({'make': Corridor()}, 'make_environment is .*; expected a function'),
        ({'make': lambda seed: Corridor()}, 'cannot be called without argume'),
        ({'make': lambda: None}, 'returned None; expected a gymnasium.Env'),
        ({'make': lambda: own_world.Corners(0)}, 'For a dm_env.Environment us'),
        ({'make': lambda: gymnasium.vector.SyncVectorEnv([Corridor])},
         'has many environments; expected one'),
        ({'episode_length': 0}, 'episode_length is 0; expected a whole number'),
        ({'episode_length': 6.5}, 'episode_length is 6.5'),
        ({'episode_length': None}, 'says no time limit .*episode_length='),
        ({'image': None}, 'image is None; expected a key'),
        ({'instruction': ()}, r'instruction is \(\); expected a key'),
        ({'ignore_ends': 1}, 'ignore_ends is 1; expected True or False'),
        ({'is_goal': True}, 'is_goal is True; expected a function'),
        ({'instructions': ['go up']}, "has the instruction 'go .*add one"),
        ({'image': 'rgb'}, r"reset\(\): .*no 'rgb'; it is a dict with image, "),
        ({'instruction': ('goal', 'text')}, "no 'goal' or 'text'; it is a"),
        ({'instruction': 'image'}, 'instruction is array.*expected a text'),
        ({'image': 'mission'}, 'The image is <U.*; expected|expected uint8'),
        ({'image': lambda observation, info: observation['image'][:8]},
         r'uint8 \[8, 40, 3\]; expected .*at least 24.*RGBImgObsWrapper'),
        ({'image': lambda observation, info: observation['image'] / 2},
         'image is float64')):
      with self.assertRaisesRegex(worlds.WorldError, message, msg=message):
        _world(**changes)

  def test_a_time_limit_that_ends_before_the_episode_is_named(self):
    spec = registration.EnvSpec(
        'Corridor-v0', entry_point=Corridor, max_episode_steps=5)
    with self.assertRaisesRegex(
        worlds.WorldError, 'episode_length is 6, .* after 5 steps: make it at'):
      _world(lambda: gymnasium.make(spec, disable_env_checker=True))

  def test_a_time_limit_that_is_no_number_of_steps_is_named(self):
    for limit in 'ten', float('inf'), 0, -5, 2.7:
      room = Corridor()
      room.spec = registration.EnvSpec(
          'Corridor-v0', entry_point=Corridor, max_episode_steps=limit)
      with self.assertRaisesRegex(
          worlds.WorldError, f'max_episode_steps={limit!r}; expected a whole'):
        _world(lambda room=room: room, episode_length=None)

  def test_wrong_spaces_and_results_are_named(self):
    for parts, message in (
        ({'action_space': spaces.Box(-1, 1, [2])},
         r'action_space is Box.*; expected gymnasium.spaces.Discrete'),
        ({'action_space': spaces.MultiBinary(3)}, 'MultiBinary.*; expected'),
        ({'action_space': None}, 'action_space is None; expected'),
        ({'reset': lambda seed=None: {'image': 0}},
         r'reset\(\) returned .*; expected \(observation, info\)'),
        ({'step': lambda action: (0, 0, False, {})},
         r'step\(\) returned 4 values; expected \(observation, reward, term'),
        ({'step': lambda action: ({'mission': 'go left'}, 0, False, False, {})},
         r"step\(\): The observation has no 'image'"),
        ({'step': lambda action: (
            {'image': _IMAGES[0], 'mission': 'go up'}, 0, False, False, {})},
         r"step\(\), at step 1 .*: instruction is 'go up'; expected that of"),
        ({'step': lambda action: (
            {'image': _IMAGES[0][:, 8:], 'mission': 'go left'}, 0, False,
            False, {})}, r'image is uint8 \[24, 32, 3\]; expected'),
        ({'step': lambda action: (
            {'image': _IMAGES[0], 'mission': 'go left'}, 0, 'no', False, {})},
         "returned 'no' as terminated; expected True or False"),
        ({'step': lambda action: (
            {'image': _IMAGES[0], 'mission': 'go left'}, 0, None, False, {})},
         'returned None as terminated; expected True or False'),
        ({'step': lambda action: (
            {'image': _IMAGES[0], 'mission': 'go left'}, 0, False, 7, {})},
         'returned 7 as truncated; expected True or False'),
        ({'step': lambda action: (
            {'image': _IMAGES[0], 'mission': 'go left'}, 0, False,
            np.zeros(2, bool), {})}, 'as truncated; expected True or False'),
        ({'reset': lambda seed=None: exit(3)}, r'reset\(\).* called exit\(3')):
      with self.assertRaisesRegex(worlds.WorldError, message, msg=message):
        environment = _world(_altered(**parts)).make_environment(0)
        while environment.reset().observation['instruction'] != 'go left':
          pass
        environment.step(0)

  def test_a_verdict_is_true_or_false(self):
    environment = _world(
        is_goal=lambda observation, reward, info: reward).make_environment(0)
    environment.reset()
    with self.assertRaisesRegex(
        worlds.WorldError, 'is_goal returned .*; expected True or False'):
      environment.step(0)

  def test_workers_do_not_share_an_environment(self):
    one = Corridor()
    with self.assertRaisesRegex(worlds.WorldError, 'the same object twice'):
      _world(lambda: one)

  def test_from_environment_names_the_function_for_gymnasium(self):
    for make in (lambda seed: Corridor(), Corridor):
      with self.assertRaisesRegex(
          worlds.WorldError, 'agile_tf.worlds.from_gymnasium'):
        worlds.from_environment(make, 'goals.npz', corridor.INSTRUCTIONS)


if __name__ == '__main__':
  absltest.main()
