"""Tests for actors: what index t means, and two actors that do the same."""

import functools
import json
from unittest import mock

from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import actors
from agile_tf.agent import programs as programs_lib
from agile_tf.training import building
from agile_tf.worlds import checks

_EPISODE, _LENGTH, _WIDTH = 6, 3, 4


class Countdown(dm_env.Environment):
  """Ends after as many steps as its instruction says; rewards its last one."""

  def __init__(self, lengths):
    self._lengths = iter(lengths)

  def _observation(self):
    image = np.full([24, 24, 3], self._left, np.uint8)
    return {'image': image, 'instruction': f'wait {self._length}'}

  def reset(self):
    self._length = self._left = next(self._lengths)
    return dm_env.restart(self._observation())

  def step(self, action):
    self._left -= 1
    if self._left:
      return dm_env.transition(0.0, self._observation(), 0.5)
    return dm_env.termination(1.0, self._observation())

  def observation_spec(self):
    return {'image': specs.BoundedArray((24, 24, 3), np.uint8, 0, 255),
            'instruction': specs.StringArray(())}

  def action_spec(self):
    return specs.DiscreteArray(2)


@functools.cache
def _gridlu():
  """One world and policy for all tests, which compile for them once."""
  # Some starts are goal states, so that there is some reward.
  world = worlds.GridLUWorld(episode_length=_EPISODE, solved_starts=True)
  policy, _ = building.make_networks('nmn', world)
  return world, policy, programs_lib.PolicyPrograms(policy, world)


def _gridlu_actors(delayed=(False,) * _WIDTH, greedy=False, **episodes):
  """An actor of each kind with the same seeds, and policy parameters."""
  world, policy, programs = _gridlu()
  if episodes:
    # The length of episodes, and how they end, are not in the programs.
    world = worlds.GridLUWorld(**episodes, solved_starts=True)
    compiled, programs = programs, programs_lib.PolicyPrograms(policy, world)
    programs.play, programs.act = compiled.play, compiled.act
  # Larger than the initial ones, so that actions depend on what is seen.
  theta = tf.constant(2 * policy.initial(3))
  both = [
      kind(programs, [world.make_environment(seed) for seed in range(_WIDTH)],
           [np.random.default_rng(seed) for seed in range(_WIDTH)], _LENGTH,
           delayed, greedy)
      for kind in (actors.CompiledActor, actors.EnvironmentActor)]
  return both, theta


class SavedCountdown(Countdown):
  """Has a state from its first episode on."""

  def get_state(self):
    return [self._length, self._left]

  def set_state(self, state):
    self._length, self._left = state
    return dm_env.transition(0.0, self._observation(), 0.5)


@functools.cache
def _countdown():
  """One world, program and policy's parameters for all tests."""
  world = worlds.from_environment(
      lambda seed: Countdown([2, 5, 1]), 'none.npz',
      [f'wait {n}' for n in range(1, 6)])
  policy, _ = building.make_networks('nmn', world)
  return (programs_lib.PolicyPrograms(policy, world),
          tf.constant(policy.initial(0)))


def _checked(environment):
  """Returns the environment as a world makes it."""
  return checks.CheckedEnvironment(environment, (24, 24, 3), False)


def _countdown_actor(environment):
  """An actor of one worker, and the policy's parameters."""
  programs, theta = _countdown()
  return actors.EnvironmentActor(
      programs, [_checked(environment)], [np.random.default_rng(0)], _LENGTH,
      [False]), theta


class ActorsTest(parameterized.TestCase):

  def _assert_equal(self, one, other):
    self.assertEqual(one.instructions, other.instructions)
    for name in 'actions', 'truth':
      np.testing.assert_array_equal(*(
          rollout.played(np.asarray(getattr(rollout, name)))
          if getattr(rollout, name) is not None else None
          for rollout in (one, other)))
    for name in one._fields:
      if name not in ('instructions', 'activations', 'actions', 'truth'):
        np.testing.assert_array_equal(
            getattr(one, name), getattr(other, name), name)

  @parameterized.parameters(
      dict(delayed=(False,) * _WIDTH, greedy=False),
      dict(delayed=(False, True, False, True), greedy=False),
      dict(delayed=(False,) * _WIDTH, greedy=True),
      dict(delayed=(False, True, False, True), episode_length=5),
      dict(delayed=(False, True, False, True), episode_length=5,
           truncate=True),
      dict(episode_length=2, truncate=True))
  def test_compiled_rollouts_equal_stepped_ones(self, **changes):
    (compiled, stepped), theta = _gridlu_actors(**changes)
    actions, rewards = set(), set()
    for _ in range(6):
      one, other = compiled.play(theta), stepped.play(theta)
      self._assert_equal(one, other)
      actions |= set(one.actions.ravel())
      rewards |= set(one.true_rewards.ravel())
    self.assertGreater(len(actions), 1)
    self.assertEqual(rewards, {0, 1})

  def test_greedy_takes_the_likeliest_action(self):
    _, policy, _ = _gridlu()
    for greedy in True, False:
      (actor, _), theta = _gridlu_actors(greedy=greedy)
      rollout = actor.play(theta)
      output, _ = policy.at(theta)(
          rollout.observations[:-1].reshape([-1, 27]),
          np.tile(rollout.codes, [_LENGTH, 1]))
      logits = output.logits.numpy()
      likeliest = logits.argmax(axis=1).reshape([_LENGTH, _WIDTH])
      self.assertEqual((rollout.actions == likeliest).all(), greedy)

  def test_noise_is_gumbel(self):
    (actor, _), _ = _gridlu_actors()
    noise = np.stack([actor._noise() for _ in range(2000)])
    self.assertAlmostEqual(noise.mean(), np.euler_gamma, delta=.02)
    self.assertAlmostEqual(noise.std(), np.pi / 6**.5, delta=.02)
    np.testing.assert_allclose(  # Each number is drawn by itself.
        np.corrcoef(noise.reshape(len(noise), -1).T), np.eye(noise[0].size),
        atol=.12)

  def test_the_gradient_gets_what_acting_computed(self):
    _, policy, _ = _gridlu()
    (actor, _), theta = _gridlu_actors()
    rollout = actor.play(theta)
    for t in range(_LENGTH):
      _, activations = policy.at(theta)(
          tf.constant(rollout.observations[t]), tf.constant(rollout.codes))
      for one, other in zip(rollout.activations, activations, strict=True):
        np.testing.assert_allclose(one[t], other, rtol=1e-3, atol=1e-4)

  def test_both_actors_restore_their_episodes(self):
    for index in range(2):
      actors, theta = _gridlu_actors((False, True, False, True))
      actor = actors[index]
      for _ in range(3):
        actor.play(theta)
      saved = actor.state()
      expected = [actor.play(theta) for _ in range(4)]
      restored = _gridlu_actors()[0][index]
      restored.load(saved)
      for rollout in expected:
        self._assert_equal(rollout, restored.play(theta))

  def test_environments_are_saved_from_their_first_episode_on(self):
    programs, theta = _countdown()

    def make_actor():
      return actors.EnvironmentActor(
          programs, [_checked(SavedCountdown([5, 2, 1]))],
          [np.random.default_rng(0)], _LENGTH, [False])

    actor = make_actor()
    for steps in (3, 2):  # An episode of five.
      saved = actor.state()
      rollout = actor.play(theta)
      self.assertEqual(rollout.steps, steps)
      restored = make_actor()
      restored.load(saved)
      self._assert_equal(rollout, restored.play(theta))

  def test_without_a_state_a_resumed_run_draws_other_episodes(self):
    programs, theta = _countdown()
    actor, _ = _countdown_actor(Countdown([5, 2, 1]))
    actor.play(theta)
    saved = actor.state()
    seeds = []
    with mock.patch.object(
        programs.world, '_make_environment',
        lambda seed: seeds.append(seed) or Countdown([1])):
      for _ in range(2):
        restored, _ = _countdown_actor(closed := Countdown([5, 2, 1]))
        with mock.patch.object(closed, 'close') as close:
          restored.load(saved)
        close.assert_called_once_with()
    self.assertEqual(seeds[0], seeds[1])
    self.assertNotEqual(seeds[0], 0)

  def _idle(self, environments):
    """Returns an actor without networks, which takes action 0 always."""
    world = worlds.from_environment(
        lambda seed: Countdown([]), 'none.npz', ['wait 2', 'wait 3', 'wait 5'])
    width = len(environments)
    return actors.EnvironmentActor(
        mock.Mock(world=world, act=lambda *_: np.zeros([width], np.int32)),
        list(map(_checked, environments)),
        [np.random.default_rng(0)] * width, _LENGTH,
        [False] * width)

  def test_a_worlds_checker_judges_the_states_that_actions_lead_to(self):
    actor = self._idle([Countdown([5]), Countdown([2])])
    seen = []

    def check(texts, observations):
      seen.append(texts)
      return observations[..., 0, 0, 0] % 2 == 0

    with mock.patch.object(actor._world, 'check', check):
      rollout = actor.play(None)
    self.assertEqual(seen, [('wait 5', 'wait 2')])
    self.assertEqual(rollout.truth[:, 0].tolist(), [True, False, True])
    self.assertFalse(rollout.true_rewards[:, 0].any())
    self.assertIsNone(self._idle([Countdown([5])]).play(None).truth)

  def test_the_ground_truth_is_the_reward(self):
    actor = self._idle([Countdown([2])])
    actor._world.has_ground_truth = True
    rollout = actor.play(None)
    self.assertEqual(rollout.truth[:2, 0].tolist(), [False, True])

  def test_what_is_no_time_step_is_named(self):
    right = {'image': np.zeros([24, 24, 3], np.uint8), 'instruction': 'wait 2'}
    for method, results, message in (
        ('step', [({}, 0., False, False, {})], r'step 1 .* a dm_env.TimeStep'),
        ('step', [dm_env.transition(0., right), dm_env.termination(
            1., right | {'instruction': 'wait 3'})],
         'step 2 of an episode, its last: instruction is'),
        ('reset', [None], r'reset\(\): what it returned is None')):
      environment = Countdown([2])
      setattr(environment, method, mock.Mock(side_effect=results))
      with self.assertRaisesRegex(worlds.WorldError, message):
        self._idle([environment]).play(None)

  def test_a_buffer_that_environments_share_is_copied(self):
    buffer = np.zeros([24, 24, 3], np.uint8)

    class Shared(Countdown):

      def _observation(self):
        buffer[:] = self._left
        return super()._observation() | {'image': buffer}

    rollout = self._idle([Shared([5]), Shared([3])]).play(None)
    self.assertEqual(rollout.observations[:, :, 0, 0, 0].tolist(),
                     [[5, 3], [4, 2], [3, 1], [2, 0]])

  def test_an_unknown_instruction_is_the_environments(self):
    actor, theta = _countdown_actor(Countdown([9]))
    with self.assertRaisesRegex(
        worlds.WorldError, "The environment gave .*'wait 9'"):
      actor.play(theta)

  def test_a_state_that_cannot_be_saved_is_named_at_once(self):

    class Silent(SavedCountdown):

      def set_state(self, state):
        super().set_state(state)

    for kind, states, message in (
        (SavedCountdown, [np.int64(3)], 'as JSON .*int64'),
        # The key is '0' in JSON.
        (SavedCountdown, [{0: 1}], 'as JSON .*keys that are no strings'),
        (SavedCountdown, [[2, 2], [2, 1]], 'episode would differ'),
        (Silent, [[2, 2]] * 2, 'what it returned is None'),
        (Countdown, [3], r'no set_state\(\)')):
      environment = kind([2])
      environment.get_state = iter(states).__next__
      actor, theta = _countdown_actor(environment)
      with self.assertRaisesRegex(worlds.WorldError, message):
        actor.play(theta)

  def test_an_environment_that_does_not_take_its_state_is_named(self):

    class Renamed(SavedCountdown):

      def set_state(self, state):
        return super().set_state(state['lengths'])

    actor, theta = _countdown_actor(SavedCountdown([5]))
    actor.play(theta)
    saved = json.loads(json.dumps(actor.state()))
    other, _ = _countdown_actor(Renamed([5]))
    with self.assertRaisesRegex(
        worlds.WorldError, r'set_state\(\) does not take .*\(TypeError: list'):
      other.load(saved)

  def test_a_rollout_ends_with_an_episode_of_any_length(self):
    actor, theta = _countdown_actor(Countdown([2, 5, 1]))
    steps, lefts, discounts, rewards = [], [], [], []
    act = self.enter_context(mock.patch.object(
        actor._programs, 'act', wraps=actor._programs.act))
    for _ in range(4):
      rollout = actor.play(theta)
      steps.append(rollout.steps)
      lefts.append(rollout.observations[:, 0, 0, 0, 0].tolist())
      discounts.append(rollout.discounts[:, 0].tolist())
      rewards.append(rollout.true_rewards[:, 0].tolist())
    self.assertEqual(steps, [2, 3, 2, 1])
    self.assertEqual(act.call_count, 8)
    self.assertEqual(lefts, [[2, 1, 0, 0], [5, 4, 3, 2], [2, 1, 0, 0],
                             [1, 0, 0, 0]])
    self.assertEqual(discounts, [[.5, 0, 1], [.5, .5, .5], [.5, 0, 1],
                                 [0, 1, 1]])
    self.assertEqual(rewards, [[0, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]])
    codes, observations = rollout.pairs()
    self.assertLen(codes, 1)
    self.assertEqual(observations.shape, (1, 24, 24, 3))
