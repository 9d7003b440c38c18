"""Tests for gridlu.environment."""

import json
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import numpy as np

import gridlu
from gridlu import environment as environment_lib
from gridlu import language
from gridlu import rendering
from gridlu import tasks
from gridlu import world
from tests.gridlu import boards


class ContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return gridlu.GridLU(seed=0)

  def make_action_sequence(self):
    rng = np.random.default_rng(0)
    for _ in range(100):
      yield np.int32(rng.integers(6))


class ArrangementsContractTest(ContractTest):

  def make_object_under_test(self):
    return gridlu.GridLU(task='arrangements', seed=0)


def _play(environment, num_steps, seed=0):
  """Plays at random; returns all that there was to see."""
  rng = np.random.default_rng(seed)
  seen = []
  for _ in range(num_steps):
    step = environment.step(int(rng.integers(6)))
    seen.append((step.step_type, step.reward, step.discount,
                 step.observation['instruction'],
                 step.observation['image'].tobytes()))
  return seen


class GridLUTest(parameterized.TestCase):

  @parameterized.parameters((0, ()), (1, (4,)), (2, tuple(range(1, 10))))
  def test_episodes_follow_rules_and_ground_truth(self, seed, immovable):
    environment = gridlu.GridLU(
        seed=seed, physics=world.Physics(immovable),
        instructions=language.relations_instructions()[:150])
    rng = np.random.default_rng(0)
    carried = rewarded = 0
    for _ in range(20):
      step = environment.reset()
      for _ in range(30):
        self.assertFalse(step.last())
        before = environment.state
        action = rng.choice([0, 1, 2, 3, 4, 4, 5])
        environment.state.blocks[:] = 0  # A copy.
        step = environment.step(action)
        # What each field is, by the scalar rules.
        expected = boards.scalar_step(before, action, immovable)
        boards.assert_equal(environment.state, expected)
        np.testing.assert_array_equal(
            step.observation['image'], rendering.render(environment.state))
        self.assertEqual(step.observation['instruction'],
                         str(environment.instruction))
        self.assertEqual(step.reward, float(
            boards.scalar_satisfied(environment.instruction, expected)))
        carried += expected.carrying
        rewarded += step.reward
      self.assertTrue(step.last())
      self.assertEqual(step.discount, 0)
    self.assertTrue(environment.step(0).first())
    self.assertEqual(carried > 0, len(immovable) < 9)
    self.assertGreater(rewarded, 0)

  def test_starts_that_are_solved_can_be_left_out(self):
    some = ["SameLocation(AGENT, Color('red', SCENE))",
            "NorthFrom(AGENT, Shape('rect', SCENE))",
            "WestFrom(Color('red', SCENE), Shape('rect', SCENE))"]
    every, unsolved = (
        gridlu.GridLU(seed=7, instructions=some, solved_starts=solved)
        for solved in (True, False))
    solved = 0
    for i in range(1000):  # In several blocks of instances.
      unsolved.reset()
      self.assertFalse(unsolved.success)
      every.reset()
      while every.success:
        solved += 1
        every.reset()
      if i < 200:  # The others stay as they were, and in order.
        self.assertEqual(unsolved.instruction, every.instruction)
        np.testing.assert_array_equal(
            unsolved.state.blocks, every.state.blocks)
    self.assertGreater(solved, 30)

  def test_instructions_whose_starts_are_all_solved_are_refused(self):
    task = tasks.find('relations')
    always = task._replace(satisfied=lambda codes, state, xp=np: np.ones(
        np.shape(state.carrying), bool))
    with mock.patch.dict(tasks.TASKS, relations=always):
      gridlu.GridLU(seed=0, solved_starts=True)
      with (mock.patch.object(environment_lib, '_ROUNDS', 3),
            self.assertRaisesRegex(
                ValueError, 'too few of 768 starts .* solved_starts=True')):
        gridlu.GridLU(seed=0)

  @parameterized.product(
      num_steps=(0, 1, 31 * 3 + 7, 31 * 256 - 1, 31 * 256 + 1),
      solved_starts=(True, False))
  def test_a_restored_environment_goes_on_the_same(
      self, num_steps, solved_starts):
    kwargs = dict(instructions=language.relations_instructions()[:20],
                  solved_starts=solved_starts)
    environment = gridlu.GridLU(seed=2, **kwargs)
    if num_steps:  # Resets stand for the episodes before the last.
      for _ in range(-(-num_steps // 31)):
        environment.reset()
      _play(environment, (num_steps - 1) % 31)
    saved = json.loads(json.dumps(environment.get_state()))
    restored = gridlu.GridLU(seed=3, **kwargs)
    _play(restored, 10)
    restored.set_state(saved)
    self.assertEqual(restored.get_state(), environment.get_state())
    if num_steps:
      self.assertEqual(restored.instruction, environment.instruction)
    expected = _play(environment, 31 * 2, seed=1)
    self.assertEqual(_play(restored, 31 * 2, seed=1), expected)
    # And on into blocks of instances drawn after the state was saved.
    for _ in range(300):
      a, b = environment.reset(), restored.reset()
      self.assertEqual(a.observation['instruction'],
                       b.observation['instruction'])
      np.testing.assert_array_equal(environment.state.blocks,
                                    restored.state.blocks)

  @parameterized.parameters(True, False)
  def test_restoring_a_state_returns_its_time_step(self, truncate):
    environment, other = (
        gridlu.GridLU(seed=i, episode_length=3, truncate=truncate)
        for i in range(2))
    for i in range(6):
      step = environment.step(world.Action.NOOP)
      self.assertEqual(
          step.discount, (None, 1, 1, float(truncate))[i % 4], i)
      restored = other.set_state(environment.get_state())
      self.assertEqual(restored.step_type, step.step_type)
      self.assertEqual(restored.discount, step.discount)
      self.assertEqual(restored.reward, None if step.first() else 0.0)
      np.testing.assert_array_equal(
          restored.observation['image'], step.observation['image'])

  @parameterized.parameters(None, False, True)
  def test_arrangements_reward_nothing_unless_asked(self, rewarded):
    environment = gridlu.GridLU(
        task='arrangements', seed=0, rewarded=rewarded,
        instructions=['Connected(AGENT, SCENE)'])
    rewards = []
    for _ in range(300):  # Some starts are goals.
      environment.reset()
      rewards.append(environment.step(world.Action.NOOP).reward)
      self.assertEqual(rewards[-1], bool(rewarded) and environment.success)
    self.assertEqual(any(rewards), bool(rewarded))

  @parameterized.named_parameters(
      ('task', dict(task='chess'),
       r"'chess': expected one of \('relations', 'put_down', 'arrangements'"),
      ('length', dict(episode_length=0), 'steps of an episode is 0'),
      ('empty', dict(instructions=[]), 'instructions is empty'),
      ('string', dict(instructions='NorthFrom'), 'into a list'),
      ('no_list', dict(instructions=3), 'instructions is 3: expected a list'),
      ('task_list', dict(task=['relations']), r"task is \['relations'\]"),
      ('seed', dict(seed=-1), 'non-negative'),
      ('bad_instruction', dict(instructions=['NorthFrom(x']), 'at the caret'),
      ('other_task', dict(instructions=['Snake(AGENT, SCENE)']),
       'expected an instruction of relations'),
      ('physics', dict(physics='immovable'), "physics is 'immovable'"),
      ('physics_word', dict(physics={'imovable': [4]}), 'physics is {'),
      ('physics_code', dict(physics={'immovable': 4}), 'immovable is 4: .*tup'),
      ('word', dict(instructions=[{'word': 'Nort', 'left': 0, 'right': 0}]),
       r"instructions\[0\] is \{'word': 'Nort'.*expected a"),
      ('starts', dict(solved_starts='false'),
       "solved_starts is 'false': expected True or False"),
      ('reward', dict(rewarded=1), 'rewarded is 1: expected True or False'),
      ('end', dict(truncate='no'), "truncate is 'no': expected True or False"),
  )
  def test_bad_arguments_are_named(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      gridlu.GridLU(**kwargs)

  @parameterized.parameters(
      ('generator', None), ('served', -1), ('served', 257), ('served', 'x'),
      ('board', []), ('board', [10] * 27), ('board', [0] * 25 + [25, 0]),
      ('board', 'x'), ('instruction', 990), ('instruction', -1),
      ('num_steps', -1), ('num_steps', None), ('ended', 0))
  def test_states_of_another_form_are_refused(self, name, value):
    environment = gridlu.GridLU(seed=0)
    environment.reset()
    state = environment.get_state()
    with self.assertRaisesRegex(ValueError, f'^{name}'):
      environment.set_state(state | {name: value})
    self.assertEqual(environment.get_state(), state)
    del state[name]
    with self.assertRaisesRegex(ValueError, f'lacks {name}'):
      environment.set_state(state)

  def test_a_state_beyond_the_end_of_an_episode_ends_it(self):
    long, short = (gridlu.GridLU(seed=0, episode_length=n) for n in (30, 10))
    _play(long, 20)
    short.set_state(long.get_state())
    self.assertTrue(short.step(0).last())

  @parameterized.parameters(-1, 6, 1.5, 'UP', None)
  def test_bad_actions_are_named(self, action):
    environment = gridlu.GridLU(seed=0)
    environment.reset()
    with self.assertRaisesRegex(ValueError, 'expected a whole number from 0'):
      environment.step(action)
