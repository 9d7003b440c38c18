"""Many GridLU boards at once, as a Gymnasium vector environment in NumPy.

environments = gymnasium.make_vec('GridLU-Relations-v0', num_envs=1024)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridlu import environment
from gridlu import gym  # Its error says how to install Gymnasium.
from gridlu import rendering
from gridlu import schema
from gridlu import world

# isort: split
from gymnasium import error
from gymnasium import spaces
from gymnasium import vector
from gymnasium.vector import utils

Observations = dict[str, Any]


class VectorGridLU(vector.VectorEnv[Observations, np.ndarray, np.ndarray]):
  """`gridlu.gym.GridLUEnv`, many times.

  On equal boards `step` does exactly what `step` of
  `gymnasium.vector.SyncVectorEnv` does, with Gymnasium's modes of starting the
  next episode. But one generator draws the episodes of all boards, so the same
  seed gives other episodes.

  Attributes:
    instructions: The instructions that episodes are drawn from.
    instruction: int32 [N], each board's index in `instructions`.
  """

  def __init__(
      self, num_envs: int = 1, max_episode_steps: int | None = None,
      task: str = 'relations', instructions: Sequence[str] | None = None,
      physics: str | Mapping[str, Any] | world.Physics = 'normal',
      rewarded: bool | None = None, render_mode: str | None = None,
      solved_starts: bool = False, images: bool = True, tokens: bool = False,
      autoreset_mode: str | vector.AutoresetMode = (
          vector.AutoresetMode.NEXT_STEP)):
    """Makes boards; `reset` starts their episodes.

    Args:
      num_envs: The number of boards, N.
      max_episode_steps: Steps of an episode; None for the task's.
      task: The task's name; `GridLUEnv` has this and the next five arguments.
      instructions: Those to draw from.
      physics: Which blocks can be moved.
      rewarded: Whether there is a reward.
      render_mode: Whether `render` returns pictures.
      solved_starts: Whether episodes may begin in goal states.
      images: Whether observations have an 'image', uint8 [N, 56, 56, 3], or
        else a 'board', uint8 [N, 27] (see `world.pack`). Drawing images takes
        most of the time.
      tokens: Whether 'instruction' is int64 [N, L], rows of `gym.token_rows`,
        or a tuple of texts.
      autoreset_mode: When a board's next episode starts.
    """
    schema.count(num_envs, 'num_envs')
    gym.check_render_mode(render_mode)
    for name, value in ('images', images), ('tokens', tokens):
      environment.check_bool(name, value)
    self.num_envs = num_envs
    self.render_mode = render_mode
    try:
      self._mode = vector.AutoresetMode(autoreset_mode)
    except ValueError:
      raise ValueError(
          f'autoreset_mode is {autoreset_mode!r:.100}: expected one of '
          f'{", ".join(repr(mode.value) for mode in vector.AutoresetMode)}.'
      ) from None
    self.metadata = {**gym.GridLUEnv.metadata, 'autoreset_mode': self._mode}
    self._setup = environment.set_up(
        task, max_episode_steps, instructions, physics, rewarded, solved_starts)
    self.instructions = self._setup.instructions
    self._images = images
    self._tokens = None
    if tokens:
      rows = gym.token_rows(self._setup.task)
      self._tokens = np.stack([rows[text] for text in self._setup.texts])
    self.single_observation_space = spaces.Dict({
        'image' if images else 'board': (
            gym.image_space() if images else
            spaces.Box(0, 255, [world.PACKED_SIZE], np.uint8)),
        'instruction': (
            gym.token_space(self._setup.task) if tokens else
            gym.text_space(self._setup.task))})
    self.single_action_space = spaces.Discrete(len(world.Action))
    self.observation_space = utils.batch_space(
        self.single_observation_space, num_envs)
    self.action_space = utils.batch_space(self.single_action_space, num_envs)
    self._supply: environment.Supply | None = None
    self.instruction = np.zeros(num_envs, np.int32)
    self._states = world.unpack(
        np.zeros([num_envs, world.PACKED_SIZE], np.uint8))
    self._num_steps = np.zeros(num_envs, np.int64)
    self._ended = np.zeros(num_envs, bool)

  @property
  def states(self) -> world.State:
    """Copies of the boards, with batch dimensions [N]."""
    return world.State(*(np.array(x) for x in self._states))

  def reset(self, *, seed: int | None = None,
            options: dict[str, Any] | None = None
            ) -> tuple[Observations, dict[str, Any]]:
    """Starts episodes; without a seed it goes on with the last generator.

    Args:
      seed: The seed of the generator that draws the episodes of all boards.
      options: 'reset_mask', bool [N], says on which boards; default: all.
    """
    self._check_open()
    if options is not None and not isinstance(options, Mapping):
      raise ValueError(f'options is {options!r}: expected a dict, such as '
                       "{'reset_mask': terminated | truncated}, or None.")
    mask = np.asarray((options or {}).get(
        'reset_mask', np.ones(self.num_envs, bool)))
    if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
      raise ValueError(f'reset_mask is {mask!r}: expected bool '
                       f'[{self.num_envs}] that is not all False.')
    if self._supply is None and not mask.all():
      raise RuntimeError('The other boards would have no episode: call reset() '
                         'without a reset_mask first.')
    super().reset(seed=seed)
    if self._supply is None or seed is not None:
      self._supply = environment.Supply(self._setup, seed, self.num_envs)
    self._start(mask)
    return self._observations(), self._info(
        'is_success', self._satisfied() & mask, mask)

  def _check_open(self) -> None:
    if self.closed:
      raise error.ClosedEnvironmentError(
          'close() has ended these environments: make new ones.')

  def _start(self, mask: np.ndarray) -> None:
    """Starts episodes on the boards of a mask."""
    assert self._supply is not None
    drawn = self._supply.take()  # For every board, also those not in the mask.
    self.instruction = np.where(mask, drawn.instruction, self.instruction)
    self._states = world.State(*(
        np.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        for new, old in zip(drawn.state, self._states)))
    self._num_steps[mask] = 0
    self._ended[mask] = False

  def _satisfied(self) -> np.ndarray:
    return self._setup.task.satisfied(
        self._setup.codes[self.instruction], self._states)

  def _observations(self) -> Observations:
    if self._images:
      seen = {'image': rendering.render(self._states)}
    else:
      seen = {'board': world.pack(self._states)}
    if self._tokens is not None:
      return seen | {'instruction': self._tokens[self.instruction]}
    return seen | {'instruction': tuple(
        self._setup.texts[i] for i in self.instruction)}

  def _info(self, name: str, values: Any,
            mask: np.ndarray | None = None) -> dict[str, Any]:
    """Returns an `info` of Gymnasium's vector environments.

    It has a value for each board and, by the same name with an underscore, the
    mask of the boards whose values count; None for all boards.
    """
    return {name: values, f'_{name}': (
        np.ones(self.num_envs, bool) if mask is None else mask)}

  def step(
      self, actions: np.ndarray
  ) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Takes an action on each board: int [N], from 0 to 5 (`world.Action`)."""
    self._check_open()
    if self._supply is None:
      raise RuntimeError('There is no episode yet: call reset() first.')
    actions = np.asarray(actions)
    if actions.dtype.kind not in 'iu' or actions.shape != (self.num_envs,):
      raise ValueError(
          f'actions are {actions.dtype} {list(actions.shape)}: expected whole '
          f'numbers [{self.num_envs}], one for each board.')
    if actions.min() < 0 or actions.max() >= len(world.Action):
      raise ValueError(
          f'actions are from {actions.min()} to {actions.max()}: expected from '
          f'0 to {len(world.Action) - 1} (see world.Action).')
    starting = self._ended
    if self._mode == vector.AutoresetMode.DISABLED and starting.any():
      raise RuntimeError('An episode has ended: start the next one by reset('
                         "options={'reset_mask': terminated | truncated}).")
    self._states = world.step(self._states, actions, self._setup.physics)
    self._num_steps += 1
    self._ended = self._num_steps == self._setup.episode_length
    if starting.any():  # Mode NEXT_STEP passes over the actions of these.
      self._start(starting)
    satisfied = self._satisfied()
    rewards = np.zeros(self.num_envs)
    if self._setup.rewarded:
      rewards += satisfied & ~starting
    truncated, infos = self._ended.copy(), {}
    if self._mode == vector.AutoresetMode.SAME_STEP and truncated.any():
      final = np.full(self.num_envs, None, object)
      for i, observation in enumerate(utils.iterate(
          self.observation_space, self._observations())):
        final[i] = observation if truncated[i] else None
      infos = self._info('final_obs', final, truncated) | self._info(
          'final_info', self._info(
              'is_success', satisfied & truncated, truncated), truncated)
      self._start(truncated)
      satisfied = self._satisfied()
    return (self._observations(), rewards, np.zeros(self.num_envs, bool),
            truncated, infos | self._info('is_success', satisfied))

  def render(self) -> tuple[np.ndarray, ...] | None:
    """Returns a picture of each board, as `GridLUEnv.render` does."""
    self._check_open()
    if self.render_mode is None:
      return None
    return tuple(
        gym.picture(self._setup.task, world.State(*fields),
                    self.instructions[i])
        for i, *fields in zip(self.instruction, *self.states))
