"""GridLU as Gymnasium environments, for `pip install -e '.[gym]'`.

    environment = gymnasium.make('GridLU-Relations-v0')
    environments = gymnasium.make_vec('GridLU-Relations-v0', num_envs=1024)

Further arguments are those of `GridLUEnv` and `vectorized.VectorGridLU`. Where
Gymnasium does not know these names, because `gridlu` was not imported, write
'gridlu.gym:GridLU-Relations-v0'.
"""

from collections.abc import Mapping, Sequence
import functools
import re
import sys
from typing import Any

import numpy as np

from gridlu import environment
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import tasks
from gridlu import world

try:
  import gymnasium
  from gymnasium import error
  from gymnasium import spaces
  from gymnasium.envs import registration
except ImportError as problem:
  raise ImportError(
      f'gridlu.gym needs Gymnasium ({problem}). {program.installing("gym")}'
      ) from problem

Observation = dict[str, Any]  # `environment.GridLU` says what it has.

_SCALE = 8  # `render` enlarges each pixel to a square of so many on a side.


@functools.cache
def _caption_lines(task: tasks.Task) -> int:
  """Returns how many lines a task's longest caption has.

  With so many lines for every caption, pictures have one size.
  """
  width = _SCALE * rendering.IMAGE_SIZE
  return max(len(rendering.wrap(str(i), width)) for i in task.instructions())


def image_space() -> spaces.Box:
  """Returns the space of a board's image."""
  shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
  return spaces.Box(0, 255, shape, np.uint8)


def text_space(task: tasks.Task) -> spaces.Text:
  """Returns the space of all the task's instructions.

  It is the same for an environment whose episodes have only some of them.
  """
  texts = [str(i) for i in task.instructions()]
  return spaces.Text(
      min_length=min(map(len, texts)), max_length=max(map(len, texts)),
      charset=''.join(sorted(set(''.join(texts)))))


def token_space(task: tasks.Task) -> spaces.Box:
  """Returns the space of the rows of `token_rows`."""
  rows = np.stack([*_token_rows(task).values()])
  return spaces.Box(0, len(task.tokens), rows.shape[1:], np.int64)


def token_rows(task: tasks.Task) -> dict[str, np.ndarray]:
  """Returns all instructions as numbers, by their texts.

  Each row is int64 [L]: the places of its tokens in `Task.tokens`, from 1, in
  the order of the text and without brackets, Color, Shape and SCENE, and then
  zeros. L is the number of tokens of the task's longest instruction.
  """
  return {text: row.copy() for text, row in _token_rows(task).items()}


@functools.cache
def _token_rows(task: tasks.Task) -> dict[str, np.ndarray]:
  """Makes the rows of `token_rows`; all environments share them unchanged."""
  rows = {
      str(each): [1 + task.tokens.index(word)
                  for word in re.findall(r'\w+', str(each))
                  if word in task.tokens]
      for each in task.instructions()}
  length = max(map(len, rows.values()))
  return {text: np.array(row + [0] * (length - len(row)), np.int64)
          for text, row in rows.items()}


class GridLUEnv(gymnasium.Env[Observation, Any]):
  """`gridlu.GridLU` with Gymnasium's interface.

  Observations and actions are the same, and `reset(seed=...)` starts the same
  episodes as a `gridlu.GridLU` with that seed. `info['is_success']` says
  whether the state satisfies the instruction; an episode succeeds if its last
  one does. Episodes have no end of their own: `gymnasium.make` truncates them
  after `max_episode_steps`, which is the task's length by default.
  """

  metadata: dict[str, Any] = {'render_modes': ['rgb_array'], 'render_fps': 4}

  def __init__(
      self, task: str = 'relations',
      instructions: Sequence[str] | None = None,
      physics: str | Mapping[str, Any] | world.Physics = 'normal',
      rewarded: bool | None = None, render_mode: str | None = None,
      solved_starts: bool = False):
    """Takes arguments of `gridlu.GridLU`.

    Gymnasium may save arguments as JSON and read them back: instructions and
    physics may be what JSON makes of them. `render` returns a picture if
    `render_mode` is 'rgb_array'.
    """
    check_render_mode(render_mode)
    self._arguments: dict[str, Any] = dict(
        task=task, episode_length=sys.maxsize, instructions=instructions,
        physics=physics, rewarded=rewarded, solved_starts=solved_starts)
    self._environment = environment.GridLU(**self._arguments)
    # The caller may have given an iterator, which can be read only once.
    self._arguments['instructions'] = self._environment.instructions
    self.render_mode = render_mode
    self._closed = False
    self.task = self._environment.task
    # Whether the reward is the ground truth.
    self.rewarded = self._environment.rewarded
    self.observation_space = spaces.Dict({
        'image': image_space(), 'instruction': text_space(self.task)})
    self.action_space = spaces.Discrete(len(world.Action))

  @property
  def instruction(self) -> language.Instruction:
    return self._environment.instruction

  @property
  def state(self) -> world.State:
    """A copy of the board, without batch dimensions."""
    return self._environment.state

  def reset(self, *, seed: int | None = None,
            options: dict[str, Any] | None = None
            ) -> tuple[Observation, dict[str, Any]]:
    """Starts an episode.

    Without a seed the generator goes on; until the first seed is given, it has
    a random one. `options` are ignored.
    """
    self._check_open()
    super().reset(seed=seed)
    if seed is not None:
      self._environment = environment.GridLU(seed=seed, **self._arguments)
    return self._environment.reset().observation, self._info()

  def close(self) -> None:
    """Ends the environment: it takes no more steps."""
    self._closed = True
    super().close()

  def _check_open(self) -> None:
    if self._closed:
      raise error.ClosedEnvironmentError(
          'close() has ended this environment: make a new one.')

  def _info(self) -> dict[str, Any]:
    return {'is_success': self._environment.success}

  def step(
      self, action: int
  ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
    """Takes an action, from 0 to 5 (see `world.Action`)."""
    self._check_open()
    _ = self.state  # It raises an error if there is no episode yet.
    step = self._environment.step(action)
    return step.observation, step.reward, False, False, self._info()

  def render(self) -> np.ndarray | None:
    """Returns the image with the instruction below, uint8 [height, 464, 3].

    All pictures of a task have the same size.
    """
    self._check_open()
    if self.render_mode is None:
      return None
    return picture(self.task, self.state, self.instruction)


def check_render_mode(mode: str | None) -> None:
  """Raises ValueError if there is no such mode."""
  if mode not in (None, *GridLUEnv.metadata['render_modes']):
    raise ValueError(
        f"render_mode is {mode!r}: expected 'rgb_array' or None.")


def picture(task: tasks.Task, state: world.State,
            instruction: language.Instruction) -> np.ndarray:
  """Draws a board with its instruction; see `GridLUEnv.render`."""
  return rendering.contact_sheet(
      rendering.render(state)[None], [str(instruction)], scale=_SCALE,
      lines=_caption_lines(task))


def unwrapped(env: Any) -> GridLUEnv:
  """Returns the environment within wrappers, or raises a ValueError."""
  if isinstance(env, gymnasium.vector.VectorEnv):
    raise ValueError(
        f'{env} has many environments: expected one. Wrap each of them, as '
        "gymnasium.make_vec(..., vectorization_mode='sync', wrappers=[...]) "
        'does.')
  inner = getattr(env, 'unwrapped', env)
  if not isinstance(inner, GridLUEnv):
    raise ValueError(f'{inner!r} is no GridLU environment: expected a '
                     'GridLUEnv, such as gymnasium.make makes.')
  return inner


class TokenInstruction(
    gymnasium.ObservationWrapper, gymnasium.utils.RecordConstructorArgs):
  """Gives the instruction as the numbers of its tokens instead of as text.

  `observation['instruction']` is int64 [L], a row of `token_rows`. For learners
  that take one array, wrap this in `gymnasium.wrappers.FlattenObservation`.
  """

  def __init__(self, env: gymnasium.Env):
    task = unwrapped(env).task
    gymnasium.utils.RecordConstructorArgs.__init__(self)
    gymnasium.ObservationWrapper.__init__(self, env)
    self.tokens = task.tokens
    self._rows = _token_rows(task)
    assert isinstance(env.observation_space, spaces.Dict)
    self.observation_space = spaces.Dict({
        **env.observation_space, 'instruction': token_space(task)})

  def observation(self, observation: Observation) -> dict[str, np.ndarray]:
    return {**observation,
            'instruction': self._rows[observation['instruction']].copy()}


def register() -> None:
  """Registers an environment for each task; call it again after adding one."""
  for name, task in tasks.TASKS.items():
    if task.gym_id not in registration.registry:
      registration.register(
          id=task.gym_id, entry_point='gridlu.gym:GridLUEnv',
          vector_entry_point='gridlu.vectorized:VectorGridLU',
          max_episode_steps=task.episode_length, kwargs={'task': name})


register()
