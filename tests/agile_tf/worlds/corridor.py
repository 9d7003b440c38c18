"""A small Gymnasium environment for tests: a corridor with a goal."""

import gymnasium
from gymnasium import spaces
import numpy as np

SIZE = 5  # Cells of 8 x 8 pixels in a row, at the top of an image of 24 x 40.
INSTRUCTIONS = ['go left', 'go right']
LEFT, STAY, RIGHT = range(3)


def draw(place):
  """Returns the image of the agent in a place."""
  image = np.zeros([24, 8 * SIZE, 3], np.uint8)
  image[:8, 8 * place:8 * place + 8] = 255
  return image


class Corridor(gymnasium.Env):
  """The agent starts in the middle; at both ends of it the episode ends.

  The reward is 0.5 at the end that the instruction names, else 0.
  """
  action_space = spaces.Discrete(3)
  observation_space = spaces.Dict({
      'image': spaces.Box(0, 255, (24, 8 * SIZE, 3), np.uint8),
      'mission': spaces.Text(8, charset='efghilort ')})

  def __init__(self, strict=False):
    """A `strict` one cannot be stepped after the end of an episode."""
    self._strict = strict
    self._image = np.zeros([24, 8 * SIZE, 3], np.uint8)  # Always the same.
    self.seeds = []  # What reset() got.
    self.steps = 0  # In all episodes.

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.seeds.append(seed)
    self._place = SIZE // 2
    self._ended = False
    self._instruction = INSTRUCTIONS[self.np_random.integers(2)]
    return self._observe()

  def step(self, action):
    if self._ended and self._strict:
      raise RuntimeError('This episode is over.')
    self.steps += 1
    self._place = min(max(self._place + action - 1, 0), SIZE - 1)
    self._ended |= self._place in (0, SIZE - 1)
    goal = {'go left': 0, 'go right': SIZE - 1}[self._instruction]
    observation, info = self._observe()
    return (observation, 0.5 * (self._place == goal),
            self._place in (0, SIZE - 1), False, info)

  def _observe(self):
    self._image[:] = draw(self._place)
    return ({'image': self._image, 'mission': self._instruction},
            {'text': self._instruction})
