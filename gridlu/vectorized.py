"""Many GridLU boards at once, by the rules of `gridlu.GridLU`, in NumPy."""

from collections.abc import Sequence
import operator
from typing import NamedTuple

import numpy as np

from gridlu import environment
from gridlu import language
from gridlu import rendering
from gridlu import world

# About this many instances are drawn at a time, or one for each board if that
# is more. `GridLU` draws as many: a single board plays like `GridLU` with the
# same seed.
_BLOCK = 256


class Step(NamedTuple):
  """The state of W boards after an action on each, or after a reset.

  The last step of an episode is also the first of the next one. `rewards`,
  `ended` and `reached` then belong to the episode that ended, and `images`,
  `states` and `instruction` to the one that starts. The instruction that
  `rewards` belongs to is in the previous `Step`.
  """
  # uint8 [W, 56, 56, 3], of `states`; None if the boards render no images.
  images: np.ndarray | None
  states: world.State  # Batch dimensions [W], read-only.
  # int32 [W], read-only: the index of each board's instruction in
  # `VectorGridLU.instructions` and `VectorGridLU.texts`.
  instruction: np.ndarray
  rewards: np.ndarray  # float32 [W], for the actions; 0 after a reset.
  ended: np.ndarray  # bool [W]: whether the actions ended an episode.
  # The states that the actions led to and that the rewards are for: `states`,
  # or the last states of the episodes that ended.
  reached: world.State


class VectorGridLU:
  """W boards of GridLU, each with an instruction.

  Rewards and instances are as in `gridlu.GridLU`. All episodes have the same
  length and start together, hence they end together. The next ones start at
  once. `texts` are the instructions as strings.
  """

  def __init__(
      self, num_boards: int, task: str = 'relations', seed: int | None = None,
      episode_length: int | None = None,
      instructions: Sequence[str | language.Instruction] | None = None,
      physics: world.Physics = world.NORMAL, rewarded: bool | None = None,
      images: bool = True, solved_starts: bool = False):
    """Takes those of `gridlu.GridLU`; `images` take most of the time."""
    if not hasattr(num_boards, '__index__') or num_boards < 1:
      raise ValueError(f'num_boards is {num_boards!r}: expected a whole number '
                       'from 1 up.')
    self.num_boards = operator.index(num_boards)
    self._setup = environment.set_up(
        task, episode_length, instructions, physics, rewarded, solved_starts)
    self.instructions = self._setup.instructions
    self.texts = self._setup.texts
    self.physics = self._setup.physics
    self.episode_length = self._setup.episode_length
    self._images = images
    rounds = max(1, _BLOCK // self.num_boards)
    self._supply = environment.Supply(
        self._setup, seed, rounds * self.num_boards)
    # The current episodes; there are no states before the first reset.
    self._states: world.State | None = None
    self._instruction = np.zeros(self.num_boards, np.int32)
    self._codes = self._setup.codes[self._instruction]
    self._num_steps = 0

  def _start(self) -> world.State:
    """Starts an episode on each board; returns its states."""
    self._instruction, states = self._supply.take(self.num_boards)
    self._codes = self._setup.codes[self._instruction]
    self._num_steps = 0
    return states

  def _step(self, states: world.State, rewards: np.ndarray, ended: bool,
            reached: world.State) -> Step:
    """Keeps the boards' new states and returns what `Step` has of them."""
    for array in (self._instruction, *states, *reached):
      # These arrays are the boards: to write into them would move blocks.
      array.flags.writeable = False
    self._states = states
    return Step(
        images=rendering.render(states) if self._images else None,
        states=states, instruction=self._instruction, rewards=rewards,
        ended=np.full(self.num_boards, ended), reached=reached)

  def reset(self) -> Step:
    """Starts an episode on each board, whether or not the last ones ended."""
    states = self._start()
    return self._step(
        states, np.zeros(self.num_boards, np.float32), False, states)

  def step(self, actions: np.ndarray) -> Step:
    """Takes actions, int [W]; at an episode's end, starts the next one."""
    if self._states is None:
      raise RuntimeError('There is no episode yet: call reset() first.')
    actions = np.asarray(actions)
    if actions.dtype.kind not in 'iu' or actions.shape != (self.num_boards,):
      raise ValueError(
          f'actions are {actions.dtype} {list(actions.shape)}: expected whole '
          f'numbers [{self.num_boards}], one for each board.')
    if actions.min() < 0 or actions.max() >= len(world.Action):
      raise ValueError(
          f'actions are from {actions.min()} to {actions.max()}: expected from '
          f'0 to {len(world.Action) - 1} (see world.Action).')
    reached = world.step(self._states, actions, self._setup.physics)
    self._num_steps += 1
    rewards = np.zeros(self.num_boards, np.float32)
    if self._setup.rewarded:
      rewards += self._setup.task.satisfied(self._codes, reached)
    ended = self._num_steps == self._setup.episode_length
    return self._step(
        self._start() if ended else reached, rewards, ended, reached)
