"""Worlds of the Gymnasium environments that users bring.

Most of these end an episode when the goal is reached. Such an end
would tell the policy and the discriminator the truth, which AGILE has to learn
from goal examples alone. It would also be a loss for the policy: D pays for
each state, so a policy would rather wait beside the goal than reach it and get
nothing more. So an episode has the same number of steps whatever happens in it:
after an end it goes on to the time limit with the last state frozen, or with
the environment's own steps, if these can go on.
"""

from collections.abc import Callable, Mapping, Sequence
import importlib
import inspect
from typing import Any, TYPE_CHECKING

import dm_env
from dm_env import specs
import numpy as np

from agile_tf import named
from agile_tf import readings
from agile_tf.agent import image_sizes
from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent.worlds import WorldError
from agile_tf.worlds import checks
from agile_tf.worlds import environments
from gridlu import program

if TYPE_CHECKING:
  import gymnasium

# Takes an observation, a reward and info, as step() returns them, and returns
# whether this is a goal state.
IsGoal = Callable[[Any, float, Mapping[str, Any]], bool]


class FixedLength(dm_env.Environment):
  """A Gymnasium environment as a dm_env one, with episodes of one length.

  The last step is a truncation, whose discount is 1: nothing in the state says
  that the time is over.
  """

  def __init__(self, environment: 'gymnasium.Env', seed: int,
               read: readings.Reading, episode_length: int, ignore_ends: bool,
               is_goal: IsGoal | None):
    """Takes an environment, the seed of its episodes, and how to read states.

    The other arguments are those of `from_gymnasium`.
    """
    self._environment = environment
    self._seed: int | None = seed  # None after the first reset.
    self._read = read
    self._length = episode_length
    self._ignore_ends = ignore_ends
    self._is_goal = is_goal
    # The present episode:
    self._steps = 0
    self._ended = False  # Whether the environment has ended it.
    self._observation: dict[str, Any] = {}
    # 1 in a goal state, else 0; None where `is_goal` is None.
    self._reward: float | None = None

  def reset(self) -> dm_env.TimeStep:
    seed, self._seed = self._seed, None
    observation, info = _checked(
        'reset()', self._environment.reset(seed=seed), ('observation', 'info'))
    self._steps, self._ended, self._reward = 0, False, None
    self._see('reset()', observation, info)
    return dm_env.restart(self._observation)

  def step(self, action: int) -> dm_env.TimeStep:
    self._steps += 1
    if not self._ended or self._ignore_ends:
      self._act(action)
    make = (dm_env.transition if self._steps < self._length else
            dm_env.truncation)
    return make(self._reward, self._observation)

  def _act(self, action: int) -> None:
    """Steps the environment."""
    try:
      result = self._environment.step(
          self._environment.action_space.start + action)
    except Exception as error:
      if self._ended:
        error.add_note(
            'The environment had ended this episode before, and ignore_ends '
            'says that its steps can go on. If they cannot, leave ignore_ends '
            'out: the episode then goes on with the last state frozen.')
      raise
    observation, reward, terminated, truncated, info = _checked(
        'step()', result,
        ('observation', 'reward', 'terminated', 'truncated', 'info'))
    self._see('step()', observation, info)
    for name, value in ('terminated', terminated), ('truncated', truncated):
      is_end = isinstance(value, bool | int | np.bool_ | np.integer) and (
          value in (0, 1))
      if not is_end:
        raise WorldError(
            f'step() returned {program.shown(value)} as {name}; expected True '
            'or False.')
      self._ended |= bool(value)
    if self._is_goal is not None:
      verdict = self._is_goal(observation, reward, info)
      if not isinstance(verdict, bool | np.bool_):
        raise WorldError(
            f'is_goal returned {program.shown(verdict)}; expected True or '
            'False, as `lambda observation, reward, info: reward > 0` returns.')
      self._reward = float(verdict)

  def _see(self, place: str, observation: Any, info: Mapping[str, Any]) -> None:
    """Keeps the image and the instruction of a state."""
    try:
      image, text = self._read(observation, info)
    except program.UserError as error:
      raise WorldError(f"In the environment's {place}: {error}") from error
    # It is copied: the environment may draw the next state into the array.
    self._observation = {'image': image.copy(), 'instruction': text}

  def observation_spec(self) -> dict[str, specs.Array]:
    # Only a state shows the shape of images, so this may begin an episode.
    image = (self._observation or self.reset().observation)['image']
    return {'image': specs.BoundedArray(image.shape, np.uint8, 0, 255),
            'instruction': specs.StringArray(())}

  def action_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(int(self._environment.action_space.n), np.int64)

  def close(self) -> None:
    self._environment.close()


def _checked(place: str, result: Any, parts: Sequence[str]) -> tuple:
  """Returns what a method returned, or raises WorldError."""
  if not isinstance(result, tuple) or len(result) != len(parts):
    there = f'{len(result)} values' if isinstance(result, tuple) else (
        program.shown(result))
    raise WorldError(
        f"The environment's {place} returned {there}; expected "
        f'({", ".join(parts)}), as Gymnasium has them. Environments of the '
        'older gym package need a wrapper.')
  return result


def from_gymnasium(
    make_environment: Callable[[], 'gymnasium.Env'],
    goal_examples: str,
    instructions: Sequence[str],
    episode_length: int | None = None,
    image: readings.Source = 'image',
    instruction: readings.Source = ('instruction', 'mission'),
    ignore_ends: bool = False,
    is_goal: IsGoal | None = None,
    parse: Callable[[str], Any] = instructions_lib.chain,
) -> environments.EnvironmentWorld:
  """Returns a world made of any Gymnasium environment.

  Its episodes all have the same number of steps. See this module for why the
  environment's own ends do not end them.

  Args:
    make_environment: Makes one, such as `lambda: gymnasium.make('Room-v0')`.
      Its states have an image, uint8 [H, W, 3], of at least 24 x 24 pixels, and
      an instruction, which is the same in the whole episode. Its actions are a
      `gymnasium.spaces.Discrete`. Its first reset() gets a seed below 2**31.
    goal_examples: The path of a file of instructions and images, as
      `gridlu.goal_dataset.save` writes it.
    instructions: See `instructions.Grammar`.
    episode_length: The steps of each episode. None: the environment's time
      limit, which is `max_episode_steps` of `gymnasium.make`.
    image: The key of the observation that has the image, or a function of
      observation and info that returns it.
    instruction: The same for the text. Of several keys the first one that is
      there counts.
    ignore_ends: Whether step() is called further after the environment has
      ended an episode. By default its last state is frozen.
    is_goal: The ground truth, for metrics and --reward=environment: a function
      of the observation, the reward and the info of a step that says whether
      the step led to a goal state. AGILE never needs it.
    parse: From an instruction to its tree. By default an instruction is a plain
      string of words.

  Raises:
    WorldError: if the environment or an argument is not as it has to be.
  """
  for name, value, right, expected in (
      ('make_environment', make_environment, callable(make_environment),
       "a function that makes an environment, such as `lambda: "
       "gymnasium.make('Room-v0')`"),
      ('episode_length', episode_length,
       episode_length is None or environments.is_whole(episode_length) and
       episode_length > 0, 'a whole number of steps, from 1 up'),
      ('image', image, readings.is_source(image), 'a key of the observation, '
       'or a function of observation and info'),
      ('instruction', instruction, readings.is_source(instruction), 'a key of '
       'the observation, or a function of observation and info'),
      ('ignore_ends', ignore_ends, isinstance(ignore_ends, bool),
       'True or False'),
      ('is_goal', is_goal, is_goal is None or callable(is_goal), 'a function '
       'of the observation, the reward and the info of a step, or None')):
    if not right:
      raise WorldError(f'{name} is {value!r:.200}; expected {expected}.')
  read = readings.Reading(image, instruction)
  distinct = checks.Distinct()

  def make(seed: int) -> FixedLength:
    environment = _make(make_environment)
    distinct.add(environment)
    return FixedLength(
        environment, seed % 2**31, read, _length(environment, episode_length),
        ignore_ends, is_goal)

  first = make(0)
  with named.running(
      "The environment's reset() or its close()", WorldError):
    observation = first.reset().observation
    first.close()
  _check_size(observation['image'].shape)
  world = environments.from_environment(
      make, goal_examples, instructions, parse, is_goal is not None)
  text = observation['instruction']
  try:
    world.grammar.encode([text])
  except ValueError as error:
    raise WorldError(
        f'The environment has the instruction {text!r}, which the instructions '
        f'do not cover; add one of its form to them. {error}') from error
  return world


def _make(make_environment: Callable[[], 'gymnasium.Env']) -> 'gymnasium.Env':
  """Makes an environment, or raises WorldError where it is not one."""
  # If Gymnasium is missing, this module's error says how to install it.
  importlib.import_module('gridlu.gym')
  import gymnasium
  try:
    inspect.signature(make_environment).bind()
  except TypeError as error:
    raise WorldError(
        f'make_environment is {make_environment!r}, which cannot be called '
        f'without arguments ({error}); expected a function such as `lambda: '
        "gymnasium.make('Room-v0')`. Its environment's reset() gets the seed."
    ) from error
  except ValueError:
    pass  # A function that is written in C may have no signature.
  with named.loading('make_environment()', WorldError):
    environment = make_environment()
  if isinstance(environment, gymnasium.vector.VectorEnv):
    raise WorldError(
        f'make_environment returned {environment!r:.200}, which has many '
        'environments; expected one: AGILE makes as many as it needs.')
  if not isinstance(environment, gymnasium.Env):
    raise WorldError(
        f'make_environment returned {environment!r:.200}; expected a '
        'gymnasium.Env. For a dm_env.Environment use '
        'agile_tf.worlds.from_environment.')
  space = getattr(environment, 'action_space', None)
  if not isinstance(space, gymnasium.spaces.Discrete):
    raise WorldError(
        f"The environment's action_space is {space!r:.200}; expected "
        'gymnasium.spaces.Discrete, because the policy chooses one of several '
        'actions. A gymnasium.ActionWrapper can offer some of the others.')
  return environment


def _length(environment: 'gymnasium.Env', episode_length: int | None) -> int:
  """Returns the steps of an episode, or raises WorldError."""
  limit: Any = getattr(environment.spec, 'max_episode_steps', None)
  if episode_length is None and limit is None:
    raise WorldError(
        f'The environment {environment!r:.200} says no time limit (it has no '
        'spec with max_episode_steps); name the steps of an episode by '
        'episode_length=..., or make it by gymnasium.make with '
        'max_episode_steps=...')
  if limit is not None and not (environments.is_whole(limit) and limit > 0):
    raise WorldError(
        f"The environment's spec has max_episode_steps={program.shown(limit)}; "
        'expected a whole number of at least 1.')
  if episode_length is not None and limit is not None and (
      episode_length > limit):
    raise WorldError(
        f'episode_length is {episode_length}, but the environment truncates '
        f'episodes after {limit} steps: make it at most {limit}, or make the '
        'environment with a larger max_episode_steps.')
  return int(limit if episode_length is None else episode_length)


def _check_size(shape: tuple[int, ...]) -> None:
  """Raises WorldError if the networks cannot see images of this shape."""
  if shape[2] != 3 or min(shape[:2]) < image_sizes.SMALLEST:
    raise WorldError(
        f"The environment's images are uint8 {list(shape)}; expected "
        f'[H, W, 3] with H and W at least {image_sizes.SMALLEST}. Name what '
        "has a picture by image=... (MiniGrid's `image` is none: "
        'minigrid.wrappers.RGBImgObsWrapper(environment, tile_size=8) gives '
        'one.)')
