"""Worlds of the `dm_env` environments that users bring.

AGILE can be trained on any `dm_env` environment whose observations are
`{'image': uint8 [H, W, 3], 'instruction': str}`. `from_environment` makes a
world of it and of a file of goal examples (`gridlu.goal_dataset` documents the
format). `gymnasium_worlds` does this for Gymnasium environments.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import inspect
import os
import sys
from typing import Any

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf import named
from agile_tf.agent import image_sizes
from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent.worlds import WorldError
from agile_tf.worlds import checks
from gridlu import program
from gridlu import tasks

_MOST_ACTIONS = 100_000  # The policy has 100 weights for each.


class EnvironmentWorld:
  """A `worlds.World` of environments that are stepped in Python.

  Its images are its observations. A subclass may have a checker: see
  `worlds.World.check`.
  """
  compiled = None

  def __init__(self, make_environment: Callable[[int], dm_env.Environment],
               grammar: instructions_lib.Grammar,
               image_shape: tuple[int, int, int], num_actions: int,
               goal_examples: str, has_ground_truth: bool):
    """Takes attributes of `worlds.World`, and what makes an environment.

    `make_environment` is a function of a seed.
    """
    self.grammar = grammar
    self.image_shape = image_shape
    self.observation_shape: tuple[int, ...] = image_shape
    self.largest_observation: tuple[int, ...] | None = None
    self.num_actions = num_actions
    self.goal_examples = goal_examples
    self.has_ground_truth = has_ground_truth
    self._make_environment = make_environment
    self._distinct = checks.Distinct()

  def make_environment(self, seed: int) -> checks.CheckedEnvironment:
    environment = _make(self._make_environment, seed)
    self._distinct.add(environment)
    with named.running("The environment's action_spec()", WorldError):
      count = _num_actions(environment.action_spec())
    if count != self.num_actions:
      raise WorldError(
          f'make_environment({seed}) returned an environment of {count} '
          f'actions; expected {self.num_actions}, because all environments of '
          'a world have the actions of the first one.')
    return checks.CheckedEnvironment(
        environment, self.image_shape, self.has_ground_truth)

  def observe(self, environment: Any, timestep: dm_env.TimeStep) -> np.ndarray:
    return timestep.observation['image']

  def images(self, observations: tf.Tensor) -> tf.Tensor:
    return tf.cast(observations, tf.float32) / 255

  def tiles(self, observations: tf.Tensor) -> None:
    return None

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    return observations

  def check(self, texts: Sequence[str], observations: np.ndarray
           ) -> np.ndarray | None:
    return None


def _make(make_environment: Callable[[int], dm_env.Environment], seed: int
         ) -> dm_env.Environment:
  """Makes an environment, or raises WorldError where it is not one."""
  try:
    inspect.signature(make_environment).bind(seed)
  except TypeError as error:
    raise WorldError(
        f'make_environment is {make_environment!r}, which cannot be called '
        f'with a seed ({error}); expected a function of one argument, such as '
        '`lambda seed: Room()` if nothing in it is drawn. A function that '
        'makes Gymnasium environments is for agile_tf.worlds.from_gymnasium.'
    ) from error
  except ValueError:
    pass  # A function that is written in C may have no signature.
  try:
    with named.loading(f'make_environment({seed})', WorldError):
      environment = make_environment(seed)
  except OverflowError as error:
    raise WorldError(
        f'make_environment({seed}): {error}. Seeds are from 0 to 2**32 - 1. '
        'Where a smaller number is needed, use seed % 2**31.') from error
  gymnasium = sys.modules.get('gymnasium')
  if gymnasium is not None and isinstance(environment, gymnasium.Env):
    raise WorldError(
        f'make_environment returned {program.shown(environment)}, a Gymnasium '
        'environment: use agile_tf.worlds.from_gymnasium, whose '
        'make_environment takes no seed.')
  missing = [name for name in (
      'reset', 'step', 'observation_spec', 'action_spec', 'close')
             if not callable(getattr(environment, name, None))]
  if missing:
    raise WorldError(
        f'make_environment returned {program.shown(environment)}, which has no '
        f'{"() and no ".join(missing)}(); expected a dm_env.Environment.')
  return environment


def from_environment(
    make_environment: Callable[[int], dm_env.Environment],
    goal_examples: str,
    instructions: Sequence[str],
    parse: Callable[[str], Any] = instructions_lib.chain,
    has_ground_truth: bool = False,
) -> EnvironmentWorld:
  """Returns a world made of any dm_env environment.

  Args:
    make_environment: Makes one from a seed, from 0 to 2**32 - 1. Its images are
      at least 24 x 24.
    goal_examples: The path of a file of instructions and images.
    instructions: See `instructions.Grammar`.
    parse: From an instruction to its tree. By default an instruction is a plain
      string of words.
    has_ground_truth: Whether the environment's reward says which states are
      goal states. AGILE never needs this.

  Raises:
    WorldError: if the environment's specs or the instructions are not valid.
  """
  if not callable(make_environment):
    raise WorldError(
        f'make_environment is {program.shown(make_environment)}; expected a '
        'function that makes an environment of a seed.')
  if not callable(parse):
    raise WorldError(
        f'parse is {program.shown(parse)}; expected a function of an '
        'instruction.')
  if not isinstance(goal_examples, str | os.PathLike):
    raise WorldError(
        f'goal_examples is {program.shown(goal_examples)}; expected the path '
        'of a file.')
  if not isinstance(has_ground_truth, bool):
    raise WorldError(
        f'has_ground_truth is {program.shown(has_ground_truth)}; expected True '
        'or False.')
  texts = _checked_instructions(instructions)
  environment = _make(make_environment, 0)
  with named.running("The environment's specs or its close()", WorldError):
    observation_spec = environment.observation_spec()
    action_spec = environment.action_spec()
    environment.close()
  image_shape = _image_shape(observation_spec)
  num_actions = _num_actions(action_spec)
  try:
    grammar = instructions_lib.Grammar(texts, parse)
  except ValueError as error:
    raise WorldError(
        f"The world's instructions are not valid: {error}") from error
  return EnvironmentWorld(
      make_environment, grammar, image_shape, num_actions,
      os.fspath(goal_examples), has_ground_truth)


def _checked_instructions(instructions: Iterable[str]) -> list[str]:
  """Returns instructions as a list, or raises WorldError."""
  if isinstance(instructions, str) or not isinstance(instructions, Iterable):
    kind = 'the string ' if isinstance(instructions, str) else ''
    raise WorldError(
        f'instructions is {kind}{program.shown(instructions)}; expected a '
        'list.')
  texts = list(instructions)
  for i, text in enumerate(texts):
    if not isinstance(text, str):
      raise WorldError(
          f'instructions[{i}] is {program.shown(text)}; expected a text.')
  return texts


def _image_shape(observation_spec: Any) -> tuple[int, int, int]:
  """Returns the shape of an environment's images, or raises WorldError."""
  parts = observation_spec if isinstance(observation_spec, Mapping) else {}
  image = parts.get('image')
  shape = getattr(image, 'shape', None)
  shape = tuple(shape) if isinstance(shape, tuple | list) else ()
  sides = shape[:2]
  if ('instruction' not in parts or
      getattr(image, 'dtype', None) != np.uint8 or len(shape) != 3 or
      shape[2] != 3 or not all(map(is_whole, sides)) or
      min(sides) < image_sizes.SMALLEST):
    raise WorldError(
        "The environment's observation_spec() must be {'image': uint8 array "
        f'[H, W, 3] with H and W at least {image_sizes.SMALLEST}, '
        f"'instruction': string}}; it is "
        f'{program.shown(observation_spec)}.')
  height, width = map(int, sides)
  return height, width, 3


def _num_actions(action_spec: Any) -> int:
  """Returns the number of an environment's actions, or raises WorldError."""
  if not hasattr(action_spec, 'num_values'):
    raise WorldError(
        "The environment's action_spec() must be a dm_env "
        f'DiscreteArray; it is {program.shown(action_spec)}.')
  count = action_spec.num_values
  if not is_whole(count) or not 1 <= count <= _MOST_ACTIONS:
    raise WorldError(
        "The environment's action_spec() has "
        f'num_values={program.shown(count)}; expected a whole number of '
        f'actions, from 1 to {_MOST_ACTIONS:,}.')
  kind = getattr(action_spec, 'dtype', None)
  if not isinstance(kind, np.dtype) or kind.kind not in 'iu':
    raise WorldError(
        f"The environment's action_spec() has dtype={program.shown(kind)}; "
        'expected a NumPy type of whole numbers, such as np.dtype(np.int32).')
  if count - 1 > np.iinfo(kind).max:
    raise WorldError(
        f"The environment's action_spec() has num_values={count} and "
        f'dtype={kind}, which has no number {count - 1}; expected a larger '
        'type, such as np.dtype(np.int32).')
  return int(count)


def is_whole(value: Any) -> bool:
  """Returns whether a value is a whole number, of Python or NumPy."""
  return isinstance(value, int | np.integer) and not isinstance(value, bool)


def without_environments(grammar: instructions_lib.Grammar,
                         image_shape: tuple[int, int, int]
                        ) -> EnvironmentWorld:
  """Returns a world for a reward model alone: nobody plays in it."""
  def refuse(seed: int) -> dm_env.Environment:
    raise WorldError('This world has no environments.')

  return EnvironmentWorld(
      refuse, grammar, image_shape, num_actions=1, goal_examples='',
      has_ground_truth=False)


def load(name: str) -> EnvironmentWorld:
  """Returns the world that a user's 'package.module:function' makes.

  A WorldError that the function raises gets the name of the world. Other
  exceptions go to the user, with their traceback.
  """
  label = f'World {name!r}'
  function = named.find(
      name, label=label, error_type=WorldError,
      expected=f'a GridLU task ({", ".join(tasks.TASKS)}), or '
      '"package.module:function", a function that takes no arguments and '
      'returns an agile_tf.worlds.EnvironmentWorld, such as '
      'agile_tf.worlds.from_environment and from_gymnasium make')
  try:
    with named.loading(f'{name.partition(":")[2]}()', WorldError):
      world = function()
  except WorldError as error:
    raise WorldError(f'{label}: {error}') from error
  if not isinstance(world, EnvironmentWorld):
    raise WorldError(
        f'{label} returned {type(world).__name__}; expected an '
        'agile_tf.worlds.EnvironmentWorld, as '
        'agile_tf.worlds.from_environment and from_gymnasium make it.')
  return world
