"""Records episodes as animated GIFs.

`save_gif` writes any images. A program that plays episodes calls
`files.check_output` at its start, collects states in a `Recording`, and saves
it at its end.
"""

import collections
from collections.abc import Sequence
import contextlib
import os
from typing import BinaryIO

import numpy as np
from PIL import Image

from gridlu import files
from gridlu import program
from gridlu import rendering
from gridlu import world

RECORDED_EPISODES = 20  # How many episodes a `Recording` keeps by default.
_STEP_SECONDS = .5
_END_SECONDS = 2.
# Of a frame, or of equal frames in a row, which become one: a GIF counts
# hundredths of seconds in 16 bits.
_LONGEST_SECONDS = 600.


def save_gif(path: str | os.PathLike | BinaryIO, images: np.ndarray,
             captions: Sequence[str] | None = None,
             seconds: float | Sequence[float] = _STEP_SECONDS,
             scale: int = 4) -> None:
  """Writes an animated GIF that loops forever.

  Args:
    path: The .gif file to write or replace, or an open file.
    images: uint8 [N, H, W, 3], an image for each frame. Equal frames in a row
      become one frame that lasts longer.
    captions: A text below each image, wrapped to its width; None for no text.
    seconds: How long a frame lasts: one number for all, or one for each. GIF
      counts hundredths, and many programs show no frame for less than .02.
    scale: Enlarges each pixel to a square of this many pixels on a side.
  """
  images = rendering.checked(images, captions)
  count = len(images)
  times = np.asarray(seconds, np.float64)
  if times.ndim == 0:
    times = np.full(count, times)
  if times.shape != (count,):
    raise ValueError(f'seconds has the shape {times.shape} for {count} images: '
                     'expected one number, or one for each.')
  wrong = ~((times >= .01) & (times <= _LONGEST_SECONDS))
  if wrong.any():
    raise ValueError(f'seconds has {times[wrong][0]}: expected .01 to '
                     f'{_LONGEST_SECONDS:g}.')
  frames = [
      rendering.contact_sheet(
          images[i:i + 1], None if captions is None else captions[i:i + 1],
          scale=scale)
      for i in range(count)]
  lasted = 0.0
  for i, time in enumerate(times):
    if i and np.array_equal(frames[i], frames[i - 1]):
      time += lasted
    lasted = time
    if lasted > _LONGEST_SECONDS:
      raise ValueError(
          f'the equal frames up to images[{i}] last {lasted:g} seconds: '
          f'expected up to {_LONGEST_SECONDS:g}.')
  # Captions differ in their numbers of lines; a GIF's frames have one size.
  height = max(len(frame) for frame in frames)
  pictures = [
      Image.fromarray(rendering.pad(frame, height, frame.shape[1]))
      for frame in frames]
  with (files.replacing(os.fspath(path), 'wb')
        if isinstance(path, (str, os.PathLike)) else
        contextlib.nullcontext(path)) as file:
    pictures[0].save(
        file, format='GIF', save_all=True, append_images=pictures[1:], loop=0,
        duration=[int(x) for x in np.round(1000 * times)])


class Recording:
  """Collects episodes, with a caption for each state, to save as a GIF."""

  def __init__(self, episodes: int = RECORDED_EPISODES):
    """Keeps this many of the last episodes that have at least one step."""
    self._episodes: collections.deque[list[tuple[np.ndarray, str]]] = (
        collections.deque(maxlen=episodes))

  def begin(self) -> None:
    """Begins an episode."""
    if self._episodes and len(self._episodes[-1]) < 2:
      self._episodes.pop()
    self._episodes.append([])

  def add(self, state: world.State, caption: str) -> None:
    """Adds a state, without batch dimensions, to the episode."""
    self._episodes[-1].append((world.pack(state), caption))

  def save(self, path: str | os.PathLike) -> str:
    """Writes the GIF unless nothing was played; says in words what it wrote."""
    episodes = [episode for episode in self._episodes if len(episode) > 1]
    if not episodes:
      return f'{os.fspath(path)} was not written: no step was made.'
    frames = [frame for episode in episodes for frame in episode]
    seconds = [
        _END_SECONDS if frame is episode[-1] else _STEP_SECONDS
        for episode in episodes for frame in episode]
    images = rendering.render(
        world.unpack(np.stack([packed for packed, _ in frames])))
    try:
      save_gif(path, images, [caption for _, caption in frames], seconds)
    except OSError as error:
      raise program.UserError(
          f'{os.fspath(path)} cannot be written ({error}).') from error
    return (f'{os.fspath(path)}: {len(frames)} states of {len(episodes)} '
            f'episode{"s" if len(episodes) > 1 else ""}')
