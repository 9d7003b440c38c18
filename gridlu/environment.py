"""GridLU as a `dm_env` environment (appendix D and section 3.3)."""

from collections.abc import Mapping, Sequence
import operator
from typing import Any, NamedTuple

import dm_env
from dm_env import specs
import numpy as np

from gridlu import language
from gridlu import rendering
from gridlu import schema
from gridlu import tasks
from gridlu import world

# About how many instances are drawn at a time, as a batch.
_BATCH = 256
# How many batches are drawn at most to fill one with unsolved starts.
_ROUNDS = 1000


class Setup(NamedTuple):
  """The checked arguments of an environment (see `set_up`)."""
  task: tasks.Task
  instructions: tuple[language.Instruction, ...]  # [N]
  texts: tuple[str, ...]  # [N], the instructions as strings.
  codes: np.ndarray  # int32 [N, code size], the instructions encoded.
  episode_length: int  # Steps.
  physics: world.Physics
  rewarded: bool
  solved_starts: bool


def set_up(
    task: str, episode_length: int | None,
    instructions: Sequence[str | language.Instruction] | None,
    physics: str | Mapping[str, Any] | world.Physics, rewarded: bool | None,
    solved_starts: bool) -> Setup:
  """Checks arguments of `GridLU` and fills in defaults for None."""
  found = tasks.find(task)
  if episode_length is None:
    episode_length = found.episode_length
  if not hasattr(episode_length, '__index__') or (
      isinstance(episode_length, bool) or episode_length < 1):
    raise ValueError(
        f'the number of steps of an episode is {episode_length!r}: expected a '
        "whole number from 1 up, or None for the task's.")
  check_bool('solved_starts', solved_starts)
  if rewarded is not None:
    check_bool('rewarded', rewarded)
  parsed = language.chosen(instructions, found.instructions())
  return Setup(
      found, parsed, tuple(str(i) for i in parsed), found.encode(parsed),
      operator.index(episode_length), world.find_physics(physics),
      found.has_ground_truth if rewarded is None else rewarded,
      solved_starts or not found.has_ground_truth)


def check_bool(name: str, value: Any) -> None:
  """Raises a ValueError unless a value is True or False.

  A text such as 'no' would count as True.
  """
  if not isinstance(value, bool | np.bool_):
    raise ValueError(f'{name} is {value!r}: expected True or False.')


def _check_board(value: Any, place: str) -> None:
  """Checks a packed state (see `world.pack`) that is a list of numbers."""
  schema.each(schema.whole(0), world.PACKED_SIZE)(value, place)
  for i, (code, limit) in enumerate(zip(value, world.PACKED_LIMITS)):
    schema.whole(0, limit - 1)(code, f'{place}[{i}]')


class Supply:
  """Draws instances in batches, and serves `count` of them at each `take`."""

  def __init__(self, setup: Setup, seed: int | None, count: int):
    self._setup = setup
    self._count = count
    # A batch serves `take` a whole number of times.
    self._size = count * max(1, _BATCH // count)
    self._rng = np.random.default_rng(seed)
    self._draw()

  def _draw_instances(self) -> world.Instances:
    setup, size = self._setup, self._size
    if setup.solved_starts:
      return setup.task.instances(self._rng, size, setup.instructions)
    parts = []
    missing = size
    for _ in range(_ROUNDS):
      drawn = setup.task.instances(self._rng, size, setup.instructions)
      kept = np.flatnonzero(~setup.task.satisfied(
          setup.codes[drawn.instruction], drawn.state))
      parts.append((drawn.instruction[kept], *(x[kept] for x in drawn.state)))
      missing -= len(kept)
      if missing <= 0:
        break
    else:
      raise ValueError(
          f'too few of {_ROUNDS * size} starts do not satisfy their '
          'instruction: use solved_starts=True, or other instructions.')
    instruction, *fields = (np.concatenate(x)[:size] for x in zip(*parts))
    return world.Instances(instruction, world.State(*fields))

  def _draw(self) -> None:
    """Draws the next batch and keeps the generator's state before it."""
    self._start = self._rng.bit_generator.state
    self._batch = self._draw_instances()
    self._served = 0

  def take(self) -> world.Instances:
    """Returns the next instances."""
    if self._served == self._size:
      self._draw()
    chosen = slice(self._served, self._served + self._count)
    self._served += self._count
    return world.Instances(
        self._batch.instruction[chosen],
        world.State(*(x[chosen] for x in self._batch.state)))

  def get_state(self) -> dict[str, Any]:
    """Returns the supply's state, which JSON can hold, for `set_state`."""
    # The generator's state is that from before the batch.
    return {'generator': self._start, 'served': self._served}

  def set_state(self, state: dict[str, Any]) -> None:
    """Restores what `get_state` returned."""
    schema.named({'generator': schema.generator,
                  'served': schema.whole(0, self._size)})(state, '')
    if state['served'] % self._count:
      raise ValueError(f"served is {state['served']}: expected a multiple of "
                       f'{self._count}')
    self._rng.bit_generator.state = state['generator']
    self._draw()
    self._served = state['served']


class GridLU(dm_env.Environment):
  """One GridLU board with an instruction, as a `dm_env` environment.

  An observation is `{'image': uint8 [56, 56, 3], 'instruction': str}`, an
  action a number from 0 to 5 (see `world.Action`). The reward is the ground
  truth: 1.0 if the state after the action satisfies the instruction, else 0.0.
  In GridLU-Arrangements it is always 0.0 unless `rewarded` is true. An episode
  does not end when the goal is reached, and succeeds if its last state
  satisfies the instruction. `instructions` are those to draw from.
  """

  def __init__(
      self, task: str = 'relations', seed: int | None = None,
      episode_length: int | None = None,
      instructions: Sequence[str | language.Instruction] | None = None,
      physics: str | Mapping[str, Any] | world.Physics = 'normal',
      truncate: bool = False, rewarded: bool | None = None,
      solved_starts: bool = False):
    """Makes an environment.

    Args:
      task: A name in `tasks.TASKS`.
      seed: Determines what the environment draws; None for a random seed.
      episode_length: Steps of an episode; None for the task's.
      instructions: Those to draw from, or their texts; None for all.
      physics: Which blocks can be moved; see `world.find_physics`.
      truncate: Whether the end of an episode is a truncation (discount 1: a
        learner bootstraps from the last state) or a termination (discount 0).
      rewarded: Whether the reward is the ground truth, or always 0; None for
        the task's default. Do not train with our checker of Arrangements.
      solved_starts: Whether an episode may begin in a state that satisfies its
        instruction. If not (as the paper's curves suggest), others are drawn
        in the place of such instances. A task without a ground truth cannot
        tell, so there the starts are as drawn.
    """
    check_bool('truncate', truncate)
    self._setup = set_up(
        task, episode_length, instructions, physics, rewarded, solved_starts)
    self.task = self._setup.task
    self.rewarded = self._setup.rewarded
    self.instructions = self._setup.instructions
    self.physics = self._setup.physics
    self.episode_length = self._setup.episode_length
    self._truncate = truncate
    self._supply = Supply(self._setup, seed, 1)
    # The current episode; there is no state before the first reset.
    self._state: world.State | None = None
    self._index = 0
    self._num_steps = 0
    self._ended = True

  @property
  def state(self) -> world.State:
    """A copy of the board, without batch dimensions."""
    return world.State(*(np.array(x) for x in self._current_state()))

  @property
  def instruction(self) -> language.Instruction:
    self._current_state()
    return self._setup.instructions[self._index]

  @property
  def instruction_index(self) -> int:
    """The index of `instruction` in `instructions`."""
    self._current_state()
    return self._index

  @property
  def success(self) -> bool:
    """Whether the state satisfies the instruction."""
    return bool(self._setup.task.satisfied(
        self._setup.codes[self._index], self._current_state()))

  def _current_state(self) -> world.State:
    if self._state is None:
      raise RuntimeError('There is no episode yet: call reset() first.')
    return self._state

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode with the next instance; see the base class."""
    instruction, state = self._supply.take()
    self._index = int(instruction[0])
    self._state = world.State(*(x[0] for x in state))
    self._num_steps = 0
    self._ended = False
    return self._time_step(0.0)

  def step(self, action) -> dm_env.TimeStep:
    """Takes an action; after an episode's last step, starts the next one."""
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
    self._ended = self._num_steps >= setup.episode_length
    return self._time_step(float(setup.rewarded and self.success))

  def _time_step(self, reward: float) -> dm_env.TimeStep:
    """Returns the current time step; an episode's first has no reward."""
    observation = {'image': rendering.render(self._current_state()),
                   'instruction': self._setup.texts[self._index]}
    if not self._num_steps:
      return dm_env.restart(observation)
    end = dm_env.truncation if self._truncate else dm_env.termination
    return (end if self._ended else dm_env.transition)(reward, observation)

  def observation_spec(self) -> dict[str, specs.Array]:
    shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
    return {
        'image': specs.BoundedArray(shape, np.uint8, 0, 255, name='image'),
        'instruction': specs.StringArray((), name='instruction'),
    }

  def action_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(len(world.Action), np.int32, name='action')

  def reward_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray((), float, 0, 1, name='reward')

  def get_state(self) -> dict[str, Any]:
    """Returns the state of episode and generator, which JSON can hold."""
    return {
        **self._supply.get_state(),
        'board': None if self._state is None else [
            int(x) for x in world.pack(self._state)],
        'instruction': self._index,
        'num_steps': self._num_steps,
        'ended': self._ended,
    }

  def set_state(self, state: dict[str, Any]) -> dm_env.TimeStep:
    """Restores what `get_state` returned, and returns its time step.

    The last reward is not saved: the time step has the reward 0. At the start
    of an episode the reward is None. Before the first reset there is no
    observation either.

    Raises:
      ValueError: `get_state` cannot have returned such a state.
    """
    setup = self._setup
    schema.named({
        'board': schema.either(schema.NOTHING, _check_board),
        'instruction': schema.whole(0, len(setup.instructions) - 1),
        'num_steps': schema.whole(0),
        'ended': schema.BOOL})(state, '')
    self._supply.set_state(state)
    board = state['board']
    self._state = None if board is None else world.unpack(
        np.array(board, np.uint8))
    self._index = state['instruction']
    self._num_steps = state['num_steps']
    self._ended = state['ended']
    if self._state is None:
      return dm_env.restart(None)
    return self._time_step(0.0)
