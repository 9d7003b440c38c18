"""GridLU as Gymnasium environments, for `pip install -e '.[gym]'`.

    environment = gymnasium.make('GridLU-Relations-v0')
    environment = gymnasium.make('GridLU-Arrangements-v0')

Further arguments of `make` are those of `GridLUEnv`. Where Gymnasium does not
know these names, because `gridlu` was not imported, write
'gridlu.gym:GridLU-Relations-v0'. The README has what to mind with `make_vec`.
"""

from collections.abc import Iterator, Sequence
import functools
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs import registration
import numpy as np

from gridlu import environment
from gridlu import language
from gridlu import rendering
from gridlu import tasks
from gridlu import world

Observation = dict[str, Any]  # As `environment.GridLU` has them.

_SCALE = 8  # `render` enlarges each pixel to a square of so many on a side.


@functools.cache
def _caption_lines(task: tasks.Task) -> int:
  """Returns the lines of a task's longest caption: pictures have one size."""
  return rendering.caption_lines(
      list(map(str, task.instructions())), _SCALE * rendering.IMAGE_SIZE)


class GridLUEnv(gymnasium.Env[Observation, Any]):
  """`gridlu.GridLU` with Gymnasium's interface.

  Observations and actions are the same, and `reset(seed=...)` starts the same
  episodes as a `gridlu.GridLU` with that seed. `info['is_success']` says
  whether the state satisfies the instruction; an episode succeeds if its last
  one does.
  """

  metadata: dict[str, Any] = {'render_modes': ['rgb_array'], 'render_fps': 4}

  def __init__(
      self, task: str = 'relations', episode_length: int | None = None,
      instructions: Sequence[str | language.Instruction] | None = None,
      physics: world.Physics = world.NORMAL, truncate: bool = False,
      rewarded: bool | None = None, render_mode: str | None = None,
      solved_starts: bool = False):
    """Takes those of `gridlu.GridLU`; `render` needs the mode 'rgb_array'."""
    if render_mode not in (None, *self.metadata['render_modes']):
      raise ValueError(f"render_mode is {render_mode!r}: expected 'rgb_array' "
                       'or None.')
    self._arguments: dict[str, Any] = dict(
        task=task, episode_length=episode_length, instructions=instructions,
        physics=physics, truncate=truncate, rewarded=rewarded,
        solved_starts=solved_starts)
    self._environment = environment.GridLU(**self._arguments)
    self._truncate = truncate
    self.render_mode = render_mode
    self._image: np.ndarray | None = None  # Of the current state.
    self._ended = True
    # Of all the task's instructions: the space is the same for every list.
    self.task = tasks.find(task)
    texts = [str(i) for i in self.task.instructions()]
    shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
    self.observation_space = spaces.Dict({
        'image': spaces.Box(0, 255, shape, np.uint8),
        'instruction': spaces.Text(
            min_length=min(map(len, texts)), max_length=max(map(len, texts)),
            charset=''.join(sorted(set(''.join(texts))))),
    })
    self.action_space = spaces.Discrete(len(world.Action))

  @property
  def instruction(self) -> language.Instruction:
    """The episode's instruction."""
    return self._environment.instruction

  @property
  def state(self) -> world.State:
    """A copy of the board, without batch dimensions."""
    return self._environment.state

  def reset(self, *, seed: int | None = None,
            options: dict[str, Any] | None = None
            ) -> tuple[Observation, dict[str, Any]]:
    """Starts an episode; without a seed it goes on with the last one."""
    super().reset(seed=seed)
    if seed is not None:
      self._environment = environment.GridLU(seed=seed, **self._arguments)
    observation = self._environment.reset().observation
    self._image = observation['image']
    self._ended = False
    return observation, {'is_success': self._environment.success}

  def step(
      self, action: int
  ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
    """Takes an action, from 0 to 5 (see `world.Action`)."""
    if self._ended:
      raise RuntimeError('No episode is under way: call reset() first.')
    step = self._environment.step(action)
    self._image = step.observation['image']
    self._ended = step.last()
    return (step.observation, step.reward, self._ended and not self._truncate,
            self._ended and self._truncate,
            {'is_success': self._environment.success})

  def render(self) -> np.ndarray | None:
    """Returns the image with its text below, uint8 [height, 464, 3]."""
    if self.render_mode is None:
      return None
    if self._image is None:
      raise RuntimeError('There is no episode yet: call reset() first.')
    return rendering.contact_sheet(
        self._image[None], [str(self.instruction)], scale=_SCALE,
        lines=_caption_lines(self.task))


class TokenInstruction(
    gymnasium.ObservationWrapper, gymnasium.utils.RecordConstructorArgs):
  """Gives the instruction as the numbers of its tokens instead of as text.

  `observation['instruction']` is int64 [L], for the L tokens of the task's
  longest instruction: their places in `tokens`, from 1, in the order of the
  text and without brackets, Color, Shape and SCENE. Zeros fill the rest. For
  learners that take one array, wrap this in
  `gymnasium.wrappers.FlattenObservation`.
  """

  def __init__(self, env: gymnasium.Env):
    gymnasium.utils.RecordConstructorArgs.__init__(self)
    gymnasium.ObservationWrapper.__init__(self, env)
    inner = env.unwrapped
    if not isinstance(inner, GridLUEnv):
      raise ValueError(f'{inner} is no GridLU environment: expected a '
                       'GridLUEnv, such as gymnasium.make makes.')
    task = inner.task
    self.tokens = task.tokens
    numbers = {token: i for i, token in enumerate(self.tokens, 1)}
    sentences = {str(instruction): [
        numbers[token] for token in _in_order(instruction.tree)]
        for instruction in task.instructions()}
    length = max(map(len, sentences.values()))
    self._rows = {
        text: np.array(row + [0] * (length - len(row)), np.int64)
        for text, row in sentences.items()}
    self.observation_space = spaces.Dict({
        'image': inner.observation_space['image'],
        'instruction': spaces.Box(0, len(self.tokens), [length], np.int64)})

  def observation(self, observation: Observation) -> dict[str, np.ndarray]:
    return {**observation,
            'instruction': self._rows[observation['instruction']].copy()}


def _in_order(tree: language.Tree) -> Iterator[str]:
  """Yields the tokens of a tree in the order of its text."""
  for part in tree:
    if isinstance(part, str):
      yield part
    else:
      yield from _in_order(part)


def register() -> None:
  """Registers an environment for each task, also for one added later."""
  for name, task in tasks.TASKS.items():
    if task.gym_id not in registration.registry:
      registration.register(
          id=task.gym_id, entry_point='gridlu.gym:GridLUEnv',
          kwargs={'task': name})


register()
