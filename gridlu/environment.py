"""GridLU as a `dm_env` environment (appendix D and section 3.3)."""

from collections.abc import Sequence
import operator
from typing import Any, NamedTuple
import zlib

import dm_env
from dm_env import specs
import numpy as np

from gridlu import instances
from gridlu import language
from gridlu import rendering
from gridlu import tasks
from gridlu import world

# Instances are drawn this many at a time and served one by one.
_BLOCK = 256


class Setup(NamedTuple):
  """What an environment plays by (see `set_up`)."""
  task: tasks.Task
  instructions: tuple[language.Instruction, ...]  # [N]
  texts: tuple[str, ...]  # [N], the instructions as strings.
  codes: np.ndarray  # int32 [N, code size], the instructions encoded.
  episode_length: int  # Steps.
  physics: world.Physics
  rewarded: bool


def set_up(
    task: str, episode_length: int | None,
    instructions: Sequence[str | language.Instruction] | None,
    physics: world.Physics, rewarded: bool | None) -> Setup:
  """Checks the arguments that environments have in common.

  Args:
    task: As for `GridLU`, like all the others.
    episode_length: None for the paper's.
    instructions: None for all of the task's.
    physics: What can be moved.
    rewarded: None for the task's own way.

  Returns:
    The arguments with nothing left open.

  Raises:
    ValueError: An argument is not as described.
  """
  found = tasks.find(task)
  if episode_length is None:
    episode_length = found.episode_length
  if not hasattr(episode_length, '__index__') or episode_length < 1:
    raise ValueError(f'episode_length is {episode_length!r}: expected a '
                     "whole number from 1 up, or None for the paper's.")
  if not isinstance(physics, world.Physics):
    raise ValueError(f'physics is {physics!r}: expected a world.Physics, '
                     'such as world.IMMOVABLE_RED_RECTS.')
  if isinstance(instructions, str):
    raise ValueError(f'instructions is the string {instructions!r}: expected '
                     'a list of instructions; put it into one.')
  if instructions is None:
    parsed = found.instructions()
  else:
    parsed = tuple(
        language.parse(i) if isinstance(i, str) else i for i in instructions)
  if not parsed:
    raise ValueError('instructions is empty: expected at least one, or None '
                     "for all of the task's.")
  return Setup(
      found, parsed, tuple(str(i) for i in parsed), found.encode(parsed),
      operator.index(episode_length), physics,
      found.has_ground_truth if rewarded is None else rewarded)


class Supply:
  """Draws instances a block at a time and serves them in order."""

  def __init__(self, setup: Setup, seed: int | None, block: int):
    """Draws the first block.

    Args:
      setup: What to draw instances of.
      seed: Determines all that is drawn; None for a fresh start each time.
      block: How many to draw at a time.
    """
    self._setup = setup
    self._size = block
    self._rng = np.random.default_rng(seed)
    self._draw()

  def _draw(self) -> None:
    """Draws the next block, remembering where the generator stood."""
    self._start = self._rng.bit_generator.state
    self._block = self._setup.task.instances(
        self._rng, self._size, self._setup.instructions)
    self._served = 0

  def take(self, count: int) -> instances.Instances:
    """Serves the next instances.

    Args:
      count: How many, always the same: the block is a multiple of it.

    Returns:
      Views of them; the batch dimensions are [count].
    """
    if self._served == self._size:
      self._draw()
    chosen = slice(self._served, self._served + count)
    self._served += count
    return instances.Instances(
        self._block.instruction[chosen],
        world.State(*(x[chosen] for x in self._block.state)))

  def get_state(self) -> dict[str, Any]:
    """Returns what decides all that will be served, as JSON can hold it."""
    # Where the generator stood before the block.
    return {'generator': self._start, 'served': self._served}

  def set_state(self, state: dict[str, Any]) -> None:
    """Goes back to where `get_state` was called."""
    self._rng.bit_generator.state = state['generator']
    self._draw()
    self._served = state['served']


class GridLU(dm_env.Environment):
  """One GridLU board and the instruction to carry out on it.

  An observation is `{'image': uint8 [56, 56, 3], 'instruction': str}`; an
  action is a number from 0 to 5 (see `world.Action`). The reward in
  GridLU-Relations is the ground truth: 1.0 if the state that the action leads
  to satisfies the instruction, else 0.0. GridLU-Arrangements gives none, 0.0,
  unless it is asked to. An episode runs its full length whether or not the goal
  is reached on the way, 30 steps in Relations (31 time steps, the first one
  included) and 45 in Arrangements; success is the ground truth of its last
  state.
  """

  def __init__(
      self, task: str = 'relations', seed: int | None = None,
      episode_length: int | None = None,
      instructions: Sequence[str | language.Instruction] | None = None,
      physics: world.Physics = world.NORMAL, truncate: bool = False,
      rewarded: bool | None = None):
    """Makes an environment.

    Args:
      task: A name in `tasks.TASKS`.
      seed: Determines all that the environment draws; None for a fresh start
        each time.
      episode_length: Steps of an episode; None for the paper's (30 or 45).
      instructions: The instructions to draw from, as strings or instructions;
        None for all of the task's.
      physics: What can be moved.
      truncate: Whether the end of an episode counts as a truncation (discount
        1: a learner bootstraps from the last state) rather than a termination
        (discount 0).
      rewarded: Whether the reward is that of the ground truth, or always 0;
        None for the task's own way. The paper has no ground truth for
        Arrangements: ours is there to evaluate, not to train.

    Raises:
      ValueError: An argument is not as described.
    """
    self._setup = set_up(task, episode_length, instructions, physics, rewarded)
    self._truncate = truncate
    self._supply = Supply(self._setup, seed, _BLOCK)
    # The episode that is under way; no state before the first reset.
    self._state: world.State | None = None
    self._index = 0
    self._num_steps = 0
    self._ended = True

  @property
  def state(self) -> world.State:
    """The board, without batch dimensions. What it is made of is a copy."""
    return world.State(*(np.array(x) for x in self._current_state()))

  @property
  def instruction(self) -> language.Instruction:
    """The instruction of the episode."""
    self._current_state()
    return self._setup.instructions[self._index]

  @property
  def instructions(self) -> tuple[language.Instruction, ...]:
    """The instructions that episodes draw from."""
    return self._setup.instructions

  @property
  def physics(self) -> world.Physics:
    """What can be moved."""
    return self._setup.physics

  @property
  def episode_length(self) -> int:
    """Steps of an episode."""
    return self._setup.episode_length

  def _current_state(self) -> world.State:
    if self._state is None:
      raise RuntimeError('There is no episode yet: call reset() first.')
    return self._state

  def _observation(self) -> dict[str, Any]:
    return {'image': rendering.render(self._current_state()),
            'instruction': self._setup.texts[self._index]}

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode with the next instance; see the base class."""
    instruction, state = self._supply.take(1)
    self._index = int(instruction[0])
    self._state = world.State(*(x[0] for x in state))
    self._num_steps = 0
    self._ended = False
    return dm_env.restart(self._observation())

  def step(self, action) -> dm_env.TimeStep:
    """Acts; after an episode's last step, starts the next one.

    Args:
      action: From 0 to 5 (see `world.Action`); of no effect if this starts an
        episode.

    Returns:
      The time step; see the base class.

    Raises:
      ValueError: There is no such action.
    """
    if self._ended:
      return self.reset()
    try:
      number = operator.index(action)
    except TypeError:
      number = -1
    if not 0 <= number < len(world.Action):
      raise ValueError(f'action is {action!r}: expected a whole number from 0 '
                       f'to {len(world.Action) - 1} (see world.Action).')
    setup = self._setup
    self._state = world.step(self._current_state(), number, setup.physics)
    self._num_steps += 1
    reward = 0.0
    if setup.rewarded:
      reward = float(
          setup.task.satisfied(setup.codes[self._index], self._state))
    observation = self._observation()
    if self._num_steps < setup.episode_length:
      return dm_env.transition(reward, observation)
    self._ended = True
    if self._truncate:
      return dm_env.truncation(reward, observation)
    return dm_env.termination(reward, observation)

  def observation_spec(self) -> dict[str, specs.Array]:
    """Returns the specs of the image and of the instruction."""
    shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
    return {
        'image': specs.BoundedArray(shape, np.uint8, 0, 255, name='image'),
        'instruction': specs.StringArray((), name='instruction'),
    }

  def action_spec(self) -> specs.DiscreteArray:
    """Returns the spec of the six actions."""
    return specs.DiscreteArray(len(world.Action), np.int32, name='action')

  def reward_spec(self) -> specs.BoundedArray:
    """Returns the spec of the reward, 0 or 1."""
    return specs.BoundedArray((), float, 0, 1, name='reward')

  def _checksum(self) -> int:
    """Returns a number that tells lists of instructions apart."""
    return zlib.crc32('\n'.join(self._setup.texts).encode())

  def get_state(self) -> dict[str, Any]:
    """Returns all that decides how the environment goes on.

    Returns:
      A dict that JSON can hold, for `set_state` of an environment made with
      the same arguments (the seed apart).
    """
    return {
        **self._supply.get_state(),
        'board': (None if self._state is None else
                  [int(x) for x in world.pack(self._state)]),
        'instruction': self._index,
        'instructions': self._checksum(),
        'num_steps': self._num_steps,
        'ended': self._ended,
    }

  def set_state(self, state: dict[str, Any]) -> dm_env.TimeStep:
    """Goes back to where `get_state` was called.

    Args:
      state: What `get_state` returned.

    Returns:
      The time step of the state, with a reward of 0; without an observation
      if there has been no episode yet.

    Raises:
      ValueError: It comes from an environment with other instructions.
    """
    if state['instructions'] != self._checksum():
      raise ValueError(
          f'the state has {state["instructions"]} as checksum of the '
          f'instructions, this environment {self._checksum()}: make it with '
          'the same instructions in the same order.')
    self._supply.set_state(state)
    board = state['board']
    self._state = None if board is None else world.unpack(
        np.array(board, np.uint8))
    self._index = state['instruction']
    self._num_steps = state['num_steps']
    self._ended = state['ended']
    if self._state is None:
      return dm_env.restart(None)
    if self._ended:
      return dm_env.termination(0.0, self._observation())
    return dm_env.transition(0.0, self._observation())
