"""Worlds: what AGILE needs to know about an environment.

AGILE can be trained on any `dm_env` environment whose observations are
`{'image': uint8 [H, W, 3], 'instruction': str}`. `from_environment` makes a
`World` of it and of a file of goal examples (`gridlu.goal_dataset` documents
the format). The built-in world is GridLU. It offers more: observations are
states of 27 bytes instead of images, and TensorFlow compiles its rules.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import importlib
import inspect
import os
import pkgutil
import sys
from typing import Any
import weakref

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import rollouts
from agile_tf.agent.fast import convolutions
import gridlu
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import tasks
from gridlu import world as board

xnp = tf.experimental.numpy


class WorldError(program.UserError):
  """A world, or goal examples, that AGILE cannot be trained on."""


class World:
  """An environment as the agent sees it; its images are its observations.

  With a ground truth, the environment's reward is 1 in goal states, and else 0.
  Without it only AGILE can be trained.
  """
  observation_shape: tuple[int, ...]  # Of what buffers store, in uint8.
  compiled: 'GridLUWorld | None' = None  # Itself, if TensorFlow has its rules.

  def __init__(self, make_environment: Callable[[int], dm_env.Environment],
               grammar: instructions_lib.Grammar,
               image_shape: tuple[int, int, int], num_actions: int,
               goal_examples: str, has_ground_truth: bool):
    """Takes what makes an environment, and the path of goal examples."""
    self.grammar = grammar
    self.image_shape = image_shape
    self.num_actions = num_actions
    self.has_ground_truth = has_ground_truth
    self.observation_shape = image_shape
    self.goal_examples = goal_examples  # A path; '' where they are generated.
    self._make_environment = make_environment
    self._made: weakref.WeakValueDictionary[int, dm_env.Environment] = (
        weakref.WeakValueDictionary())  # Environments in use, by id().

  def make_environment(self, seed: int) -> dm_env.Environment:
    """Makes an environment from the seed of its episodes."""
    environment = self._make_environment(seed)
    if id(environment) in self._made:
      raise WorldError(
          'The function that makes environments returned the same object '
          f'twice, {environment!r:.200}; expected a new one each time, because '
          'each worker plays episodes of its own.')
    self._made[id(environment)] = environment
    return environment

  def observe(self, environment: Any, timestep: dm_env.TimeStep) -> np.ndarray:
    """Returns the observation of an environment's last timestep."""
    del environment
    return timestep.observation['image']

  def checked(self, environment: Any, timestep: Any, place: str,
              instruction: str | None = None) -> np.ndarray:
    """Checks a time step, or raises a WorldError; returns its observation.

    `place` is the method that returned it; for `step` also where in the
    episode, whose `instruction` must stay the same.
    """
    def require(right: bool, name: str, value: Any, expected: str) -> None:
      if not right:
        shown = ' '.join(repr(value).split())[:100]
        if isinstance(value, np.ndarray) and value.ndim:
          shown = f'{value.dtype} {list(value.shape)}'
        raise WorldError(f"In the environment's {place}: {name} is {shown}; "
                         f'expected {expected}.')

    step = dm_env.StepType
    require(isinstance(timestep, dm_env.TimeStep), 'what it returned', timestep,
            'a dm_env.TimeStep, as dm_env.restart, dm_env.transition and '
            'dm_env.termination make it')
    kinds = {'reset()': [step.FIRST], 'set_state()': [step.FIRST, step.MID]
            }.get(place, [step.MID, step.LAST])
    kind, observation = timestep.step_type, timestep.observation
    require(kind in kinds, 'step_type', kind,
            ' or '.join(each.name for each in kinds))
    if kind == step.LAST:
      place += ', its last'
    require(isinstance(observation, Mapping), 'observation', observation,
            "a dict with the keys 'image' and 'instruction'")
    for name in 'image', 'instruction':
      require(name in observation, 'observation', list(observation),
              f'{name!r} among its keys')
    if instruction is not None:
      text = str(observation['instruction'])
      require(text == instruction, 'instruction', text,
              f'that of the whole episode, {instruction!r}')
      discount = timestep.discount
      require(discount is not None and 0 <= discount <= 1, 'discount', discount,
              'a number from 0 to 1')
      require(not self.has_ground_truth or timestep.reward in (0, 1), 'reward',
              timestep.reward, '1 in a goal state and else 0, as the world has '
              'a ground truth')
    image = self.observe(environment, timestep)
    require(getattr(image, 'dtype', None) == np.uint8 and
            image.shape == self.observation_shape, 'image', image,
            f'uint8 {list(self.observation_shape)}, as observation_spec() says')
    return image

  def images(self, observations: tf.Tensor) -> tf.Tensor | convolutions.Tiled:
    """From uint8 [N, *observation_shape] to float32 [N, H, W, 3] in [0, 1]."""
    return tf.cast(observations, tf.float32) / 255

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    """Renders uint8 [N, *observation_shape] as uint8 [N, H, W, 3]."""
    return observations

  def truth(self, rollout: rollouts.Rollout) -> np.ndarray | None:
    """Returns which of s_1 ... s_T are goal states, bool [T, W].

    Values of masked steps have no meaning. None if nobody knows.
    """
    if self.has_ground_truth:
      return rollout.true_rewards > 0
    return self.check(rollout.instructions, rollout.observations[1:])

  def check(self, texts: Sequence[str], observations: np.ndarray
           ) -> np.ndarray | None:
    """Returns which states [T, W, ...] are goal states, bool [T, W], or None.

    This is for worlds without a ground truth, and never for training.
    """
    del texts, observations
    return None


class GoalExamples:
  """The goal examples: pairs of an instruction and one of its goal states."""

  def __init__(self, dataset: goal_dataset.GoalDataset, world: World):
    """Encodes goal examples; WorldError if they do not fit the world."""
    try:
      # int32 [instructions, slots]
      self.codes = world.grammar.encode(dataset.instructions)
    except ValueError as error:
      raise WorldError(
          f'The goal examples do not fit this world: {error}') from error
    self.dataset = dataset
    self.observations = dataset.observations  # uint8 [N, ...]

  def __len__(self) -> int:
    return len(self.dataset.instruction)

  def sample(self, rng: np.random.Generator, count: int) -> rollouts.Pairs:
    """Draws pairs uniformly with replacement."""
    rows = rng.integers(len(self), size=count)
    return rollouts.Pairs(
        self.codes[self.dataset.instruction[rows]], self.observations[rows])


def from_environment(
    make_environment: Callable[[int], dm_env.Environment],
    goal_examples: str,
    instructions: Sequence[str],
    parse: Callable[[str], Any] = instructions_lib.chain,
    has_ground_truth: bool = False,
) -> World:
  """Returns a world made of any dm_env environment.

  Args:
    make_environment: Makes one from a seed; its images are at least 24 x 24.
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
        f'make_environment is {make_environment!r}; expected a function that '
        'makes an environment of a seed.')
  if isinstance(instructions, str):
    raise WorldError(
        f'instructions is the string {instructions!r}; expected a list.')
  environment = make_environment(0)
  observation_spec = environment.observation_spec()
  action_spec = environment.action_spec()
  environment.close()
  image = getattr(observation_spec, 'get', lambda _: None)('image')
  if (image is None or 'instruction' not in observation_spec or
      image.dtype != np.uint8 or len(image.shape) != 3 or
      image.shape[2] != 3 or min(image.shape[:2]) < 24):
    raise WorldError(
        "The environment's observation_spec() must be {'image': uint8 array "
        "[H, W, 3] with H and W at least 24, 'instruction': string}; it is "
        f'{observation_spec}.')
  if not hasattr(action_spec, 'num_values'):
    raise WorldError(
        "The environment's action_spec() must be a dm_env "
        f'DiscreteArray; it is {action_spec}.')
  try:
    grammar = instructions_lib.Grammar(instructions, parse)
  except ValueError as error:
    raise WorldError(
        f"The world's instructions are not valid: {error}") from error
  return World(make_environment, grammar, image.shape, action_spec.num_values,
               goal_examples, has_ground_truth)


# Cached because every rollout parses the instructions of its workers again.
_parse = functools.lru_cache(maxsize=1024)(language.parse)
_TILES = rendering.TILES.astype(np.float32) / 255


class GridLUWorld(World):
  """A GridLU task (sections 3.3 and 3.4), whose rules TensorFlow compiles.

  Observations are whole states, uint8 [27].
  """

  def __init__(self, task: str = 'relations',
               instructions: Sequence[language.Instruction] | None = None,
               physics: board.Physics = board.NORMAL,
               episode_length: int | None = None, truncate: bool = False,
               known: Sequence[language.Instruction] | None = None,
               solved_starts: bool = False):
    """Takes arguments of `gridlu.GridLU`.

    The networks can read the instructions that are `known`, by default those
    of episodes and goal examples.
    """
    kind = tasks.find(task)
    if instructions is None:
      instructions = kind.instructions()
    length = episode_length or kind.episode_length
    super().__init__(
        lambda seed: gridlu.GridLU(
            task=task, seed=seed, episode_length=length,
            instructions=instructions, physics=physics, truncate=truncate,
            solved_starts=solved_starts),
        instructions_lib.Grammar(
            [str(instruction) for instruction in known or instructions],
            lambda text: language.parse(text).tree, kind.tokens),
        (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3),
        num_actions=len(board.Action) - 1,  # Without NOOP (appendix H).
        goal_examples='', has_ground_truth=kind.has_ground_truth)
    self.observation_shape = (board.PACKED_SIZE,)
    self.compiled = self
    self.episode_length = length
    self.final_discount = 1.0 if truncate else 0.0  # Of an episode's last step.
    self._kind = kind
    self._physics = physics

  def observe(self, environment: Any, timestep: dm_env.TimeStep) -> np.ndarray:
    return board.pack(environment.state)

  def images(self, observations: tf.Tensor) -> convolutions.Tiled:
    return convolutions.Tiled(rendering.tile_indices(
        board.unpack(observations, xp=xnp), xp=xnp), _TILES)

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    return rendering.render(board.unpack(observations))

  def step(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """From uint8 [W, 27] and int32 [W] actions to the next observations."""
    state = board.unpack(observations, xp=xnp)
    return board.pack(
        board.step(state, actions, self._physics, xp=xnp), xp=xnp)

  def truth_codes(self, texts: Sequence[str]) -> np.ndarray:
    """Encodes N instructions for `satisfied`, int32 [N, K]."""
    return self._kind.encode([_parse(text) for text in texts])

  def satisfied(self, codes: tf.Tensor, observations: tf.Tensor) -> tf.Tensor:
    """Returns the ground truth, bool [..., W]; False in a task without one."""
    if not self.has_ground_truth:
      return tf.zeros(observations.shape[:-1], tf.bool)
    return self._kind.satisfied(
        codes, board.unpack(observations, xp=xnp), xp=xnp)

  def check(self, texts: Sequence[str], observations: np.ndarray) -> np.ndarray:
    return self._kind.satisfied(
        self.truth_codes(texts), board.unpack(observations))


def load(name: str) -> World:
  """Returns the world that a user's 'package.module:function' makes.

  Errors of its module go to the user, with their traceback.
  """
  if os.getcwd() not in sys.path:  # As it is for `python -m`.
    sys.path.insert(0, os.getcwd())
  module, _, path = name.partition(':')

  def wrong(problem: Any) -> WorldError:
    return WorldError(
        f'World {name!r} cannot be loaded ({problem}). Expected '
        f'a GridLU task ({", ".join(tasks.TASKS)}), or '
        '"package.module:function", a function that takes no arguments and '
        'returns an agile_tf.worlds.World, such as '
        'agile_tf.worlds.from_environment makes. Its module is in this '
        'directory, installed, or on PYTHONPATH.')

  if not all(map(str.isidentifier, f'{module}.{path}'.split('.'))):
    raise wrong('that is not the name of a function in a module')
  try:
    importlib.import_module(module)
  except ModuleNotFoundError as error:
    if not f'{module}.'.startswith(f'{error.name}.'):
      raise
    raise wrong(error) from error
  try:
    function = pkgutil.resolve_name(name)
    inspect.signature(function).bind()
  except (AttributeError, TypeError, ValueError) as error:
    raise wrong(error) from error
  world = function()
  if not isinstance(world, World):
    raise WorldError(
        f'World {name!r} returned {type(world).__name__}; expected an '
        'agile_tf.worlds.World (see agile_tf.worlds.from_environment).')
  return world
