"""Records episodes as animated GIFs."""

import collections
from collections.abc import Sequence
from typing import IO

import numpy as np
from PIL import Image

from gridlu import files
from gridlu import program
from gridlu import rendering
from gridlu import world

RECORDED_EPISODES = 20  # How many episodes a `Recording` keeps by default.
_STEP_SECONDS = .5
_END_SECONDS = 2.
_SCALE = 4  # Each pixel becomes a square of so many on a side.


def save_frames(file: IO[bytes], frames: Sequence[np.ndarray],
                seconds: float | Sequence[float]) -> None:
  """Writes frames, uint8 [H, W, 3] with one W, as an animated GIF.

  It loops forever. A frame lasts some seconds (one number for all, or one for
  each); equal frames in a row become one that lasts longer.
  """
  # Captions differ in their numbers of lines; a GIF's frames have one size.
  height = max(len(frame) for frame in frames)
  first, *others = (
      Image.fromarray(rendering.pad(frame, height, frame.shape[1]))
      for frame in frames)
  milliseconds = np.round(1000 * np.broadcast_to(seconds, len(frames)))
  first.save(file, format='GIF', save_all=True, append_images=others, loop=0,
             duration=[int(x) for x in milliseconds])


class Recording:
  """Collects episodes, with a caption for each state, to save as a GIF."""

  def __init__(self, episodes: int = RECORDED_EPISODES):
    """Keeps this many of the last episodes that have at least one step."""
    self._kept = episodes
    # There is room for one more: the episode in progress may have no step yet.
    self._episodes: collections.deque[list[tuple[world.State, str]]] = (
        collections.deque(maxlen=episodes + 1))

  def begin(self) -> None:
    """Begins an episode, and forgets the last one if it had no step."""
    if self._episodes and len(self._episodes[-1]) < 2:
      self._episodes.pop()
    self._episodes.append([])

  def add(self, state: world.State, caption: str) -> None:
    """Adds a state, without batch dimensions, to the episode."""
    self._episodes[-1].append((state, caption))

  def save(self, path: str) -> str:
    """Writes the GIF if a step was made; returns a message that says so."""
    episodes = [
        episode for episode in self._episodes if len(episode) > 1][-self._kept:]
    if not episodes:
      return f'{path} was not written: no step was made.'
    frames, seconds = [], []
    for episode in episodes:
      for state, caption in episode:
        frames.append(rendering.contact_sheet(
            rendering.render(state)[None], [caption], scale=_SCALE))
        seconds.append(_STEP_SECONDS)
      seconds[-1] = _END_SECONDS
    try:
      with files.replacing(path, 'wb') as file:
        save_frames(file, frames, seconds)
    except OSError as error:
      raise program.UserError(
          f'{path} cannot be written ({error}).') from error
    return (f'{path}: {len(frames)} states of {len(episodes)} '
            f'episode{"s" if len(episodes) > 1 else ""}')
