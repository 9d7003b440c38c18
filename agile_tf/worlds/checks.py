"""Checks of what users' environments return, so that a mistake has a name.

`CheckedEnvironment` stands between an environment and AGILE. Each error is a
`WorldError` that says which method returned what, and what was expected.
"""

from collections.abc import Iterator, Mapping
import contextlib
import functools
import json
import threading
from typing import Any
import weakref

import dm_env
import numpy as np

from agile_tf import named
from agile_tf.agent import worlds
from gridlu import program

_STEP = dm_env.StepType
_LARGEST = float(np.finfo(np.float32).max)
# A state of an environment may be made of these.
_JSON = ('dicts with strings as keys, lists, strings, numbers of Python, '
         'booleans and None')
_running = functools.partial(named.running, error_type=worlds.WorldError)


class Distinct:
  """Raises WorldError where an environment is made that is already in use.

  Environments of some classes, such as those with __slots__, take no weak
  references; these are not compared.
  """

  def __init__(self) -> None:
    self._made: weakref.WeakValueDictionary[int, Any] = (
        weakref.WeakValueDictionary())  # Environments in use, by id().

  def add(self, environment: Any) -> None:
    if id(environment) in self._made:
      raise worlds.WorldError(
          'The function that makes environments returned the same object '
          f'twice, {program.shown(environment)}; expected a new one each time, '
          'because each worker plays episodes of its own.')
    with contextlib.suppress(TypeError):
      self._made[id(environment)] = environment


class CheckedEnvironment(dm_env.Environment):
  """An environment whose time steps and states are checked.

  It takes actions as whole numbers and gives them to the environment in the
  type of its action_spec().
  """

  def __init__(self, environment: Any, image_shape: tuple[int, int, int],
               has_ground_truth: bool):
    """Wraps an environment; its images have this shape.

    With a ground truth, rewards must be 0 or 1.
    """
    self._environment = environment
    self._image_shape = image_shape
    self._has_ground_truth = has_ground_truth
    self._action_type = environment.action_spec().dtype.type
    self._thread = threading.get_ident()  # The thread that makes environments.
    self._instruction = ''  # The episode's instruction.
    self._steps = 0  # The steps of the episode so far.
    self._saving_is_checked = False  # It is checked at the first reset.

  @property
  def can_be_saved(self) -> bool:
    """Whether the environment has get_state() and set_state()."""
    # `_check_saving` refuses one that has only get_state().
    return hasattr(self._environment, 'get_state')

  def observation_spec(self) -> Any:
    return self._environment.observation_spec()

  def action_spec(self) -> Any:
    return self._environment.action_spec()

  def reset(self) -> dm_env.TimeStep:
    self._steps = 0
    with self._calling('reset()'):
      timestep = self._environment.reset()
    self._check(timestep, 'reset()', [_STEP.FIRST])
    self._instruction = str(timestep.observation['instruction'])
    if not self._saving_is_checked:
      self._check_saving()
      self._saving_is_checked = True
    return timestep

  def step(self, action: int) -> dm_env.TimeStep:
    self._steps += 1
    with self._calling('step()'):
      timestep = self._environment.step(self._action_type(action))
    self._check(timestep, f'step(), at step {self._steps} of an episode',
                [_STEP.MID, _STEP.LAST], later=True)
    return timestep

  def get_state(self) -> Any:
    """Returns the environment's state and the steps of its episode, as JSON."""
    with self._calling('get_state()'):
      state = self._environment.get_state()
    try:
      if not _same_keys(state, json.loads(json.dumps(state))):
        raise ValueError('it has keys that are no strings')
    except (TypeError, ValueError, RecursionError) as error:
      raise worlds.WorldError(
          f"The environment's get_state() returned {program.shown(state)}, "
          f'which is no JSON ({error}): expected {_JSON}.') from error
    return {'environment': state, 'steps': self._steps}

  def set_state(self, state: Any) -> dm_env.TimeStep:
    """Restores what `get_state` returned; returns its time step."""
    try:
      with _running("The environment's set_state()"):
        timestep = self._environment.set_state(state['environment'])
    except worlds.WorldError:
      raise
    except Exception as error:
      raise worlds.WorldError(
          "The environment's set_state() does not take what its get_state() "
          f'returned when the run was saved ({type(error).__name__}: {error}). '
          'If the world has been changed since, change it back or start a new '
          'run in another --run_dir. The checkpoint is left as it is.'
      ) from error
    self._check(timestep, 'set_state()', [_STEP.FIRST, _STEP.MID])
    self._instruction = str(timestep.observation['instruction'])
    self._steps = state['steps']
    return timestep

  def close(self) -> None:
    with self._calling('close()'):
      self._environment.close()

  @contextlib.contextmanager
  def _calling(self, method: str) -> Iterator[None]:
    """Says of an error in a method whether another thread made the environment.

    Several policy threads play the environments that the main thread makes. An
    OSError becomes a RuntimeError, because `program.main` would take it for a
    problem with the program's own output or disk.
    """
    try:
      with _running(f"The environment's {method}"):
        try:
          yield
        except OSError as error:
          raise RuntimeError(
              f"The environment's {method} raised {type(error).__name__}: "
              f'{error}') from error
    except Exception as error:
      if threading.get_ident() != self._thread:
        error.add_note(
            'The main thread made this environment, and another thread called '
            f'its {method}. If that is the cause, as it may be for a SQLite '
            'connection or an OpenGL context, use --policy_threads=1, with '
            'which one thread makes, steps and closes all environments.')
      raise

  def _check(self, timestep: Any, place: str,
             step_types: list[dm_env.StepType], later: bool = False) -> None:
    """Checks a time step that a method, `place`, returned.

    In a `later` one, after the first of an episode, the instruction must be the
    episode's, and discount and reward are checked too.
    """
    def require(right: bool, name: str, value: Any, expected: str) -> None:
      if not right:
        shown = program.shown(value)
        if isinstance(value, np.ndarray) and value.ndim:
          shown = f'{value.dtype} {list(value.shape)}'
        raise worlds.WorldError(
            f"In the environment's {place}: {name} is {shown}; expected "
            f'{expected}.')

    require(isinstance(timestep, dm_env.TimeStep), 'what it returned', timestep,
            'a dm_env.TimeStep, as dm_env.restart, dm_env.transition and '
            'dm_env.termination make it')
    step_type, observation = timestep.step_type, timestep.observation
    is_one = not isinstance(step_type, np.ndarray) and step_type in step_types
    require(is_one, 'step_type', step_type,
            ' or '.join(each.name for each in step_types))
    if step_type == _STEP.LAST:
      place += ', its last'
    require(isinstance(observation, Mapping), 'observation', observation,
            "a dict with the keys 'image' and 'instruction'")
    for name in 'image', 'instruction':
      require(name in observation, 'observation', list(observation),
              f'{name!r} among its keys')
    text = observation['instruction']
    require(_is_text(text), 'instruction', text, 'a text')
    if later:
      text = str(text)
      require(text == self._instruction, 'instruction', text,
              f'that of the whole episode, {self._instruction!r}')
      require(_is_number(timestep.discount, 0, 1), 'discount',
              timestep.discount, 'a number from 0 to 1')
      if not self._has_ground_truth:
        require(timestep.reward is None or _is_number(
            timestep.reward, -_LARGEST, _LARGEST), 'reward', timestep.reward,
                'a finite number or None')
      else:
        require(_is_number(timestep.reward) and timestep.reward in (0, 1),
                'reward', timestep.reward, '1 in a goal state and else 0, as '
                'the world has a ground truth')
    image, shape = observation['image'], list(self._image_shape)
    require(getattr(image, 'dtype', None) == np.uint8 and
            list(image.shape) == shape, 'image', image,
            f'uint8 {shape}, as observation_spec() says')

  def _check_saving(self) -> None:
    """Raises WorldError if a state is not restored as it was saved."""
    environment = self._environment
    if not self.can_be_saved:
      return
    if not hasattr(environment, 'set_state'):
      raise worlds.WorldError(
          'The environment has get_state() but no set_state(): add it, or '
          'remove both.')
    try:
      with _running("The environment's get_state() or set_state()"):
        state = environment.get_state()
        saved = json.dumps(state, sort_keys=True)
        if not _same_keys(state, json.loads(saved)):
          raise ValueError('it has keys that are no strings')
        timestep = environment.set_state(json.loads(saved))
        saved_again = json.dumps(environment.get_state(), sort_keys=True)
    except worlds.WorldError:
      raise
    except Exception as error:
      raise worlds.WorldError(
          "The environment's set_state() does not take what its get_state() "
          f'returned, as JSON ({type(error).__name__}: {error}): expected '
          f'{_JSON}.') from error
    self._check(timestep, 'set_state()', [_STEP.FIRST, _STEP.MID])
    if saved_again != saved:
      raise worlds.WorldError(
          "After set_state(), the environment's get_state() returns another "
          'state, so a resumed episode would differ: set_state() must restore '
          'all of it and draw no random number afterwards.')


def _same_keys(state: Any, loaded: Any) -> bool:
  """Returns whether all keys in a state are as JSON gives them back."""
  if isinstance(state, dict):
    return state.keys() == loaded.keys() and all(
        _same_keys(state[key], loaded[key]) for key in state)
  if isinstance(state, list | tuple):
    return all(map(_same_keys, state, loaded))
  return True


def _is_text(value: Any) -> bool:
  """Returns whether a value is a text, of Python or NumPy."""
  if isinstance(value, str):
    return True
  # NumPy's texts are arrays without dimensions.
  return (getattr(value, 'shape', None) == () and value.dtype.kind in 'UO' and
          isinstance(value.item(), str))


def _is_number(value: Any, low: float = -np.inf, high: float = np.inf) -> bool:
  """Returns whether a value is one number, and within limits."""
  try:
    array = np.asarray(value)
    # It is compared as Python's float: some limits are too large for float16.
    return (array.ndim == 0 and array.dtype.kind in 'biuf' and
            low <= float(array) <= high)
  except (TypeError, ValueError):
    return False
