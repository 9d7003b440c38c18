"""Worlds: what AGILE needs to know about an environment.

AGILE can be trained on any `dm_env` environment whose observations are
`{'image': uint8 [H, W, 3], 'instruction': str}`. `from_environment` makes a
`World` of it and of a file of goal examples (`gridlu.goal_dataset` documents
the format). The built-in world is GridLU. It offers more: observations are
states of 27 bytes instead of images, and TensorFlow compiles its rules.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import importlib
import inspect
import os
import sys
import types
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
import gridlu
from gridlu import environment as environment_lib
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import tasks
from gridlu import world as board

xnp = tf.experimental.numpy


class WorldError(program.UserError):
  """A world, or goal examples, that AGILE cannot be trained on."""


class CompiledWorld(NamedTuple):
  """A world's rules as TensorFlow programs; observations are whole states.

  Attributes:
    truth_codes: From N instructions to int32 [N, K], the first argument of
      `satisfied`.
    step: From uint8 [W, ...] observations and int32 [W] actions to the next
      observations.
    satisfied: The ground truth, which environments give as reward: from int32
      [W, K] and uint8 [..., W, ...] observations to bool [..., W]. None if
      there is no reward.
    episode_length: The length of every episode, in steps.
    final_discount: The discount of an episode's last step.
  """
  truth_codes: Callable[[Sequence[str]], np.ndarray]
  step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
  satisfied: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None
  episode_length: int
  final_discount: float


@dataclasses.dataclass(frozen=True)
class World:
  """An environment as the agent sees it.

  Attributes:
    make_environment: From a seed to an environment.
    grammar: Encodes its instructions.
    image_shape: [H, W, 3].
    num_actions: The policy's actions are 0 ... num_actions - 1.
    observation_shape: The shape of the observations that buffers store. Their
      type is always uint8.
    observe: From an environment and its last timestep to this observation.
    images: From observations uint8 [N, *observation_shape] to float32
      [N, H, W, 3] in [0, 1], in TensorFlow.
    load_goal_examples: From a size, a seed and the share of states with the
      agent on a block in which it carries that block, to goal examples. A world
      with a file of goal examples ignores these arguments.
    has_ground_truth: Whether the environment's reward is the ground truth: 1
      in goal states, else 0. Without it only AGILE can be trained.
    compiled: The world's rules as TensorFlow programs; None without them.
    checker: In place of a ground truth, says which states are goal states, for
      evaluation and metrics but never for training: from W instructions and
      observations uint8 [T, W, ...] to bool [T, W]. A world with neither has no
      metrics of success.
  """
  make_environment: Callable[[int], dm_env.Environment]
  grammar: instructions_lib.Grammar
  image_shape: tuple[int, int, int]
  num_actions: int
  observation_shape: tuple[int, ...]
  observe: Callable[[dm_env.Environment, dm_env.TimeStep], np.ndarray]
  images: Callable[[tf.Tensor], tf.Tensor]
  load_goal_examples: Callable[
      [int, int, float], goal_dataset.GoalDataset]
  has_ground_truth: bool
  compiled: CompiledWorld | None = None
  checker: Callable[[Sequence[str], np.ndarray], np.ndarray] | None = None

  def truth(self, rollout: rollouts.Rollout) -> np.ndarray | None:
    """Returns which of s_1 ... s_T are goal states, for metrics and evaluation.

    Returns:
      bool [T, W], from the ground truth or else from the world's checker; None
      if it has neither. Values of masked steps have no meaning.
    """
    if self.has_ground_truth:
      return rollout.true_rewards > 0
    if self.checker is not None:
      return self.checker(rollout.instructions, rollout.observations[1:])
    return None

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    """Renders uint8 [N, *observation_shape] as uint8 [N, H, W, 3]."""
    images = self.images(tf.constant(observations))
    return np.round(255 * images.numpy()).astype(np.uint8)


class GoalExamples:
  """The goal examples: pairs of an instruction and one of its goal states.

  Attributes:
    dataset: As they were given.
    codes: int32 [instructions, slots], the encoded instructions.
    observations: uint8 [N, ...].
  """

  def __init__(self, dataset: goal_dataset.GoalDataset, world: World):
    """Encodes goal examples for a world.

    Args:
      dataset: Instructions in the world's grammar, with states or images in the
        form of the world's observations.
      world: The world that they are for.

    Raises:
      WorldError: if they do not fit the world.
    """
    observations = (
        dataset.images if dataset.states is None else dataset.states)
    assert observations is not None  # GoalDataset requires one of the two.
    if observations.shape[1:] != world.observation_shape:
      raise WorldError(
          'A goal example has the shape '
          f'{list(observations.shape[1:])}; this world needs uint8 '
          f'{list(world.observation_shape)}. Write a file with observations of '
          'this world (gridlu/goal_dataset.py documents the format).')
    try:
      self.codes = world.grammar.encode(dataset.instructions)
    except ValueError as error:
      raise WorldError(
          f'The goal examples do not fit this world: {error}') from error
    self.dataset = dataset
    self.observations = observations

  def __len__(self) -> int:
    return len(self.dataset.instruction)

  def sample(self, rng: np.random.Generator,
             count: int) -> replay.Pairs:
    """Draws pairs uniformly with replacement.

    Returns:
      `count` pairs.
    """
    rows = rng.integers(len(self), size=count)
    return replay.Pairs(
        self.codes[self.dataset.instruction[rows]], self.observations[rows])


def _scale(images: tf.Tensor) -> tf.Tensor:
  return tf.cast(images, tf.float32) / 255


def from_environment(
    make_environment: Callable[[int], dm_env.Environment],
    goal_examples: str,
    instructions: Sequence[str],
    parse: Callable[[str], Any] = instructions_lib.chain,
    has_ground_truth: bool = False,
) -> World:
  """Returns a world made of any dm_env environment.

  Args:
    make_environment: From a seed to an environment with the observations
      `{'image': uint8 [H, W, 3], 'instruction': str}`, H and W at least 24.
    goal_examples: The path of a file of instructions and images, whose format
      `gridlu.goal_dataset` documents.
    instructions: All instructions, or enough of them to contain every token and
      every position of their trees.
    parse: From an instruction to its tree (see `agile_tf.agent.instructions`).
      By default an instruction is a plain string of words.
    has_ground_truth: Whether the environment's reward says which states are
      goal states. AGILE never needs this.

  Raises:
    WorldError: if the environment's specs or the instructions are not valid.
  """
  environment = make_environment(0)
  observation_spec = environment.observation_spec()
  action_spec = environment.action_spec()
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
  return World(
      make_environment=make_environment,
      grammar=grammar,
      image_shape=image.shape,
      num_actions=action_spec.num_values,
      observation_shape=image.shape,
      observe=lambda environment, timestep: timestep.observation['image'],
      images=_scale,
      load_goal_examples=lambda *unused: goal_dataset.load(
          goal_examples, image.shape),
      has_ground_truth=has_ground_truth)


# Cached because every rollout parses the instructions of its workers again.
_parse = functools.lru_cache(maxsize=1024)(language.parse)


def gridlu_world(
    task: str = 'relations',
    instructions: Sequence[language.Instruction] | None = None,
    physics: board.Physics = board.NORMAL,
    episode_length: int | None = None,
    truncate: bool = False,
    known: Sequence[language.Instruction] | None = None,
    draw: environment_lib.Draw | None = None,
    solved_starts: bool = False,
) -> World:
  """Returns the world of a GridLU task (sections 3.3 and 3.4 for the paper's).

  Args:
    task: A name in `gridlu.tasks.TASKS`.
    instructions: The instructions of episodes and goal examples; default: all
      instructions of the task.
    physics: Which blocks the agent can carry.
    episode_length: In steps; default: the task's.
    truncate: Whether the end of an episode is a truncation, where returns
      bootstrap, instead of a termination.
    known: The instructions that the networks can read; default: `instructions`.
    draw: Draws the episodes' instances; default: the task's.
    solved_starts: Whether an episode may begin in a goal state.
  """
  kind = tasks.find(task)
  if instructions is None:
    instructions = kind.instructions()
  if known is None:
    known = instructions
  if episode_length is None:
    episode_length = kind.episode_length

  def make_environment(seed: int) -> dm_env.Environment:
    return gridlu.GridLU(
        task=task, seed=seed, episode_length=episode_length,
        instructions=instructions, physics=physics, truncate=truncate,
        draw=draw, solved_starts=solved_starts)

  def truth_codes(texts: Sequence[str]) -> np.ndarray:
    return kind.encode([_parse(text) for text in texts])

  tiles_table = rendering.TILES.astype(np.float32) / 255

  def step(packed: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    state = board.unpack(packed, xp=xnp)
    return board.pack(board.step(state, action, physics, xp=xnp), xp=xnp)

  def images(packed: tf.Tensor) -> tf.Tensor:
    # Made of tiles, into which the networks' first convolution cuts an image: a
    # compiled program then neither joins nor cuts them.
    tiles = tf.gather(tiles_table, rendering.tile_indices(
        board.unpack(packed, xp=xnp), xp=xnp))
    return tf.reshape(
        tf.transpose(tiles, [0, 1, 3, 2, 4, 5]),
        [-1, rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3])

  def satisfied(codes: tf.Tensor, packed: tf.Tensor) -> tf.Tensor:
    return kind.satisfied(codes, board.unpack(packed, xp=xnp), xp=xnp)

  def checker(texts: Sequence[str], packed: np.ndarray) -> np.ndarray:
    return kind.satisfied(truth_codes(texts), board.unpack(packed))

  return World(
      make_environment=make_environment,
      grammar=instructions_lib.Grammar(
          [str(instruction) for instruction in known],
          lambda text: language.parse(text).tree, kind.tokens),
      image_shape=(rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3),
      num_actions=len(board.Action) - 1,  # Without NOOP (appendix G).
      observation_shape=(board.PACKED_SIZE,),
      observe=lambda environment, _: board.pack(environment.state),
      images=images,
      load_goal_examples=lambda size, seed, carrying: goal_dataset.generate(
          task, size, seed, instructions, carrying),
      has_ground_truth=kind.has_ground_truth,
      compiled=CompiledWorld(
          truth_codes, step, satisfied if kind.has_ground_truth else None,
          episode_length, final_discount=1.0 if truncate else 0.0),
      checker=None if kind.has_ground_truth else checker)


_LONGEST_NAME = 200  # Python imports nested packages by recursion.


def _import(name: str) -> types.ModuleType:
  """Imports a user's module, also from the current directory.

  Errors of the module itself go to the user, with their traceback.

  Raises:
    ValueError: if there is no such module.
  """
  if os.getcwd() not in sys.path:  # As it is for `python -m`.
    sys.path.insert(0, os.getcwd())
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if f'{name}.'.startswith(f'{error.name}.'):
      raise ValueError(str(error)) from error
    raise


def load(name: str) -> World:
  """Returns the world that a user's function makes.

  Args:
    name: The function, as 'package.module:function'.

  Raises:
    WorldError: if there is no such function, or it returns something else.
  """
  module_name, _, function_name = name.partition(':')
  try:
    if len(name) > _LONGEST_NAME:
      raise ValueError('the name is too long')
    if not all(map(str.isidentifier,
                   [*module_name.split('.'), function_name])):
      raise ValueError('that is not the name of a function in a module')
    module = _import(module_name)
    function = getattr(module, function_name)
    inspect.signature(function).bind()
  except (AttributeError, TypeError, ValueError) as error:
    raise WorldError(
        f'World {name[:_LONGEST_NAME]!r} cannot be loaded ({error}). Expected '
        f'a GridLU task ({", ".join(tasks.TASKS)}), or '
        '"package.module:function", a function that takes no arguments and '
        'returns an agile_tf.worlds.World, such as '
        'agile_tf.worlds.from_environment makes. Its module is in this '
        'directory, installed, or on PYTHONPATH.') from error
  world = function()
  if not isinstance(world, World):
    raise WorldError(
        f'World {name!r} returned {type(world).__name__}; expected an '
        'agile_tf.worlds.World (see agile_tf.worlds.from_environment).')
  return world
