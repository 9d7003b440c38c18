"""Tests for gridlu.vectorized."""

from absl.testing import parameterized
import numpy as np
import pytest

from gridlu import relations
from gridlu import world

gymnasium = pytest.importorskip('gymnasium')

from gymnasium import vector  # noqa: E402

from gridlu import vectorized  # noqa: E402
import gridlu.gym  # noqa: E402

# Interacts more often than at random, so that much is carried.
_ACTIONS = [0, 1, 2, 3, 4, 4, 5]


class _Same(gridlu.gym.GridLUEnv):
  """Begins its episodes on the board that it has in the vectorized ones."""

  def __init__(self, many, board, **arguments):
    super().__init__(**arguments)
    self._board = many, board

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    many, i = self._board
    inner = self._environment
    inner._index = int(many.instruction[i])
    inner._state = world.State(*(x[i] for x in many.states))
    return inner._time_step(0.).observation, self._info()


class VectorGridLUTest(parameterized.TestCase):

  def _assert_same(self, actual, expected):
    """Compares what Gymnasium's environments return."""
    if isinstance(expected, dict):
      self.assertEqual(set(actual), set(expected))
      for key, value in expected.items():
        self._assert_same(actual[key], value)
    elif isinstance(expected, (tuple, list)) or (
        isinstance(expected, np.ndarray) and expected.dtype.hasobject):
      for a, b in zip(actual, expected, strict=True):
        self._assert_same(a, b)
    else:
      np.testing.assert_array_equal(actual, expected)
      if isinstance(expected, np.ndarray):
        self.assertEqual(actual.dtype, expected.dtype)

  @parameterized.product(
      mode=list(vector.AutoresetMode), task=('relations', 'arrangements'),
      tokens=(False, True))
  def test_plays_as_gymnasiums_own(self, mode, task, tokens):
    count, length = 6, 7
    arguments = dict(physics='immovable_red_rects', rewarded=True,
                     render_mode='rgb_array', solved_starts=True)
    many = gymnasium.make_vec(
        f'GridLU-{task.capitalize()}-v0', num_envs=count,
        max_episode_steps=length, autoreset_mode=mode, tokens=tokens,
        **arguments)

    def one(board):
      environment = gymnasium.wrappers.TimeLimit(
          _Same(many, board, task=task, **arguments), length)
      return gridlu.gym.TokenInstruction(environment) if tokens else environment

    single = vector.SyncVectorEnv(
        [lambda i=i: one(i) for i in range(count)], autoreset_mode=mode)
    self.assertEqual(many.observation_space, single.observation_space)
    self.assertEqual(many.action_space, single.action_space)
    rng = np.random.default_rng(0)
    self._assert_same(many.reset(seed=1), single.reset())
    rewarded = carried = 0
    for step in range(1, 120):
      actions = rng.choice(_ACTIONS, count)
      result = many.step(actions)
      self._assert_same(result, single.step(actions))
      self.assertIn(result[0], many.observation_space)
      rewarded += result[1].sum()
      carried += many.states.carrying.sum()
      ended = result[3]
      if mode == vector.AutoresetMode.DISABLED and (ended.any() or step == 3):
        # At different times, from the third step on.
        mask = ended | (np.arange(count) < (step == 3))
        self._assert_same(
            many.reset(options={'reset_mask': mask.copy()}),
            single.reset(options={'reset_mask': mask.copy()}))
    self._assert_same(many.render(), single.render())
    self.assertGreater(carried, 0)
    if task == 'relations':
      self.assertGreater(rewarded, 0)

  @parameterized.parameters(1, 3, 300)
  def test_starts_are_the_instances_in_order(self, count):
    some = [str(i) for i in relations.all_instructions()[:50]]
    many = vectorized.VectorGridLU(
        count, instructions=some, images=False, solved_starts=True)
    rounds = max(1, 256 // count)
    rng = np.random.default_rng(4)
    for block in range(2):
      drawn = relations.instances(rng, rounds * count, many.instructions)
      for i in range(rounds):
        chosen = slice(i * count, (i + 1) * count)
        many.reset(seed=None if block or i else 4)
        np.testing.assert_array_equal(
            many.instruction, drawn.instruction[chosen])
        for a, b in zip(many.states, drawn.state):
          np.testing.assert_array_equal(a, b[chosen])

  def test_boards_are_packed_states(self):
    many = vectorized.VectorGridLU(300, images=False)
    found = many.reset(seed=0)[0]['board']
    np.testing.assert_array_equal(found, world.pack(many.states))
    found = many.step([world.Action.INTERACT] * 300)[0]['board']
    self.assertTrue(many.states.carrying.any())
    np.testing.assert_array_equal(found, world.pack(many.states))

  def test_a_seed_decides_the_starts(self):
    def starts(seed):
      many = vectorized.VectorGridLU(3, images=False)
      return [many.reset(seed=seed)[0]['board'].tobytes(),
              many.reset()[0]['board'].tobytes()]

    self.assertEqual(starts(1), starts(1))
    self.assertNotEqual(starts(1), starts(2))
    self.assertNotEqual(starts(None), starts(None))

  def test_arrangements_reward_nothing_unless_asked(self):
    for rewarded in (None, False, True):
      many = vectorized.VectorGridLU(
          300, task='arrangements', rewarded=rewarded, images=False,
          instructions=['Connected(AGENT, SCENE)'])
      many.reset(seed=0)
      total = np.sum(many.step([world.Action.NOOP] * 300)[1])
      self.assertEqual(total > 0, bool(rewarded))  # Some starts are goals.

  @parameterized.named_parameters(
      ('none', dict(num_envs=0), 'num_envs is 0'),
      ('half', dict(num_envs=2.5), 'num_envs is 2.5: expected a whole number'),
      ('text', dict(num_envs='3'), "num_envs is '3': expected a whole number"),
      ('nothing', dict(num_envs=None), 'num_envs is None: expected a whole'),
      ('truth', dict(num_envs=True), 'num_envs is True: expected a whole'),
      ('steps', dict(max_episode_steps=True), 'steps of an episode is True'),
      ('mode', dict(autoreset_mode='Never'),
       "autoreset_mode is 'Never': expected one of 'NextStep', 'SameStep'"),
      ('render', dict(render_mode='human'), "render_mode is 'human'"),
      ('starts', dict(solved_starts='no'), "solved_starts is 'no': expected"),
      ('images', dict(images='no'), "images is 'no': expected True or False"),
      ('tokens', dict(tokens=None), 'tokens is None: expected True or False'),
  )
  def test_bad_arguments_are_named(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      vectorized.VectorGridLU(**kwargs)

  @parameterized.named_parameters(
      ('low', [0, -1], 'from -1 to 0'),
      ('high', [0, 6], 'from 0 to 6'),
      ('too_few', [0], r'actions are int64 \[1\]'),
      ('too_many_dimensions', [[0, 0]], r'actions are int64 \[1, 2\]'),
      ('fraction', [0., 1.], 'actions are float64'),
      ('truth', [True, False], 'actions are bool'),
  )
  def test_bad_actions_are_named(self, actions, message):
    many = vectorized.VectorGridLU(2, images=False)
    with self.assertRaisesRegex(RuntimeError, r'call reset\(\) first'):
      many.step([0, 0])
    many.reset(seed=0)
    with self.assertRaisesRegex(ValueError, message):
      many.step(actions)

  def test_options_that_are_no_dict_are_named(self):
    many = vectorized.VectorGridLU(2, images=False)
    for options in 'abc', ['reset_mask'], 0:
      with self.assertRaisesRegex(ValueError, 'options is .*: expected a dict'):
        many.reset(seed=0, options=options)
    many.reset(seed=0, options={})

  def test_nothing_goes_on_after_close(self):
    many = vectorized.VectorGridLU(2, images=False)
    many.reset(seed=0)
    many.close()
    many.close()
    for use in lambda: many.step([0, 0]), many.reset, many.render:
      with self.assertRaisesRegex(
          gymnasium.error.ClosedEnvironmentError, 'make new ones'):
        use()

  def test_boards_that_start_are_named(self):
    many = vectorized.VectorGridLU(
        2, max_episode_steps=1, autoreset_mode='Disabled')
    with self.assertRaisesRegex(RuntimeError, 'other boards .* no episode'):
      many.reset(options={'reset_mask': [True, False]})
    many.reset(seed=0)
    with self.assertRaisesRegex(ValueError, 'reset_mask is .*not all False'):
      many.reset(options={'reset_mask': np.zeros(2, bool)})
    many.step([0, 0])
    with self.assertRaisesRegex(RuntimeError, 'An episode has ended'):
      many.step([0, 0])
