"""Tests for agile_tf.worlds.checks: a mistake in an environment has a name."""

import functools
import re
import threading
import warnings

from absl.testing import absltest
import dm_env
from dm_env import specs
import numpy as np

from agile_tf import worlds
from agile_tf.worlds import checks

_IMAGE = np.zeros([24, 24, 3], np.uint8)
_OBSERVATION = {'image': _IMAGE, 'instruction': 'wait 2'}
_FIRST = dm_env.restart(_OBSERVATION)
_MID = dm_env.transition(0.0, _OBSERVATION)
_LAST = dm_env.termination(1.0, _OBSERVATION)


class _Scripted(dm_env.Environment):
  """Returns given time steps, and remembers the actions."""

  def __init__(self, *timesteps, action_type=np.int32):
    self._timesteps = list(timesteps)
    self._action_type = action_type
    self.actions = []

  def reset(self):
    return self._timesteps.pop(0)

  def step(self, action):
    self.action_spec().validate(action)
    self.actions.append(action)
    return self._timesteps.pop(0)

  def observation_spec(self):
    return {}

  def action_spec(self):
    return specs.DiscreteArray(4, self._action_type)


def _play(*timesteps):
  """Begins an episode and steps it to the last of these time steps."""
  environment = checks.CheckedEnvironment(
      _Scripted(*timesteps), _IMAGE.shape, has_ground_truth=True)
  environment.reset()
  for _ in timesteps[1:]:
    environment.step(0)


def _deep():
  """Returns lists that are nested too deeply to be shown."""
  return functools.reduce(lambda inside, _: [inside], range(10**5), [])


class ChecksTest(absltest.TestCase):

  def test_environments_without_weak_references_are_accepted(self):
    class Slots:
      __slots__ = ()

    made = checks.Distinct()
    made.add(Slots())
    environment = _Scripted()
    made.add(environment)
    with self.assertRaisesRegex(worlds.WorldError, 'the same object twice'):
      made.add(environment)

  def test_wrong_time_steps_are_named(self):
    values = {
        'step_type': (None, 3, np.array([1, 1])),
        'observation': (None, {}, {'image': _IMAGE}, {'instruction': 'wait 2'},
                        _deep(), 10**5000),
        'image': (None, [[1], [2, 3]], _IMAGE[:1], _IMAGE / 2, _IMAGE[None]),
        'instruction': (None, b'wait 2', ['wait 2'], 'wait 1'),
        'discount': (None, -0.1, 1.5, np.nan, 'x', np.array([1., 1.])),
        'reward': (None, 0.5, -1, np.nan, 'abc', np.array([1, 0]))}
    for before, right, named, other, names in (
        ([], _FIRST, 'reset()', dm_env.StepType.LAST,
         'step_type observation image'),
        ([_FIRST], _MID, 'step(), at step 1 of an episode',
         dm_env.StepType.FIRST, ' '.join(values)),
        ([_FIRST, _MID], _LAST, 'step(), at step 2 of an episode, its last',
         dm_env.StepType.FIRST,
         'observation image instruction discount reward')):
      _play(*before, right)
      for name in names.split():
        for wrong in values[name] + (other,) * (name == 'step_type'):
          changed = (
              right._replace(observation=_OBSERVATION | {name: wrong})
              if name in _OBSERVATION else right._replace(**{name: wrong}))
          with self.assertRaisesRegex(
              worlds.WorldError, f"the environment's {re.escape(named)}: "
              f'{name} is .*; expected .*'):
            _play(*before, changed)

  def test_without_a_ground_truth_a_reward_may_be_any_finite_number(self):
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      for reward in (None, 0, -3.5, np.float32(2), np.array(1), True,
                     np.float16(1)):
        self._step(_MID._replace(reward=reward))
    for reward in ('abc', np.array([1, 0]), np.nan, np.inf, 1e300, []):
      with self.assertRaisesRegex(
          worlds.WorldError, 'reward is .*; expected a finite number or None'):
        self._step(_MID._replace(reward=reward))

  def _step(self, timestep):
    environment = checks.CheckedEnvironment(
        _Scripted(_FIRST, timestep), _IMAGE.shape, has_ground_truth=False)
    environment.reset()
    environment.step(0)

  def test_an_instruction_is_a_text(self):
    for text in 'go', np.str_('go'), np.array('go'), np.array('go', object):
      _play(_FIRST._replace(observation=_OBSERVATION | {'instruction': text}))
    for wrong in b'go', 5, np.array(5), np.array(['go']), np.array(b'go'):
      with self.assertRaisesRegex(worlds.WorldError, 'expected a text'):
        _play(_FIRST._replace(
            observation=_OBSERVATION | {'instruction': wrong}))

  def test_exit_in_any_method_is_an_error(self):
    def leave(*_):
      raise SystemExit(0)

    for method in 'reset', 'step', 'get_state', 'set_state', 'close':
      environment = _Scripted(_FIRST, _MID)
      checked = checks.CheckedEnvironment(environment, _IMAGE.shape, True)
      checked.reset()
      setattr(environment, method, leave)
      arguments = {'step': [0], 'set_state': [
          {'environment': None, 'steps': 1}]}.get(method, [])
      with self.assertRaisesRegex(
          worlds.WorldError, rf'{method}\(\) called exit\(0\)'):
        getattr(checked, method)(*arguments)

  def test_an_error_of_the_system_is_told_from_those_of_our_own_output(self):
    def fail(*_):
      raise BrokenPipeError('the simulator has died')

    environment = _Scripted(_FIRST)
    checked = checks.CheckedEnvironment(environment, _IMAGE.shape, True)
    checked.reset()
    environment.step = fail
    with self.assertRaisesRegex(
        RuntimeError, r"environment's step\(\) raised BrokenPipeError: the s"):
      checked.step(0)

  def test_a_state_that_is_no_json_later_on_is_named(self):
    environment = _Scripted(_FIRST)
    checked = checks.CheckedEnvironment(environment, _IMAGE.shape, True)
    for state in ({'visited': {1, 2}}, _deep(), {'a': [10**5000]},
                  {'a': [{3: 'x'}]}):
      environment.get_state = lambda state=state: state
      with self.assertRaisesRegex(
          worlds.WorldError, r'get_state\(\) returned .*, which is no JSON'):
        checked.get_state()

  def test_the_end_of_an_iterator_is_an_error_like_any_other(self):
    environment = _Scripted(_FIRST)
    checked = checks.CheckedEnvironment(environment, _IMAGE.shape, True)
    environment.reset = lambda: next(iter([]))
    with self.assertRaises(StopIteration):
      checked.reset()

  def test_an_error_in_another_thread_than_the_first_says_so(self):
    def fail(*_):
      raise RuntimeError('made in another thread')

    environment = _Scripted(_FIRST)
    checked = checks.CheckedEnvironment(environment, _IMAGE.shape, True)
    checked.reset()
    environment.step = fail
    errors = []

    def step():
      try:
        checked.step(0)
      except RuntimeError as error:
        errors.append(error)

    step()
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    here, there = errors
    self.assertFalse(hasattr(here, '__notes__'))
    self.assertIn('use --policy_threads=1', there.__notes__[0])
    self.assertIn('called its step()', there.__notes__[0])

  def test_actions_have_the_type_of_the_environments_spec(self):
    for action_type in np.int32, np.int64, np.uint8:
      environment = _Scripted(_FIRST, _MID, action_type=action_type)
      checked = checks.CheckedEnvironment(environment, _IMAGE.shape, False)
      checked.reset()
      checked.step(np.int32(3))
      action, = environment.actions
      self.assertEqual((action, type(action)), (3, action_type))


if __name__ == '__main__':
  absltest.main()
