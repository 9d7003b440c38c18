"""Draws a recorded episode for TensorBoard: as contact sheets and as a GIF.

Unless a picture is clicked, TensorBoard shows it at most 350 pixels wide in one
of its dashboards, and 215 pixels high in the other. A sheet has about this
size, because text that is scaled there cannot be read.
"""

import io

import numpy as np
from PIL import Image

from agile_tf.training import recorder
from gridlu import recording
from gridlu import rendering

_COLUMNS, _ROWS = 5, 2  # Of a sheet.
_MOST_SHEETS = 5
_WIDTH = 56  # About the width of a state on a sheet, in pixels.
_GOAL_COLOR = (0, 160, 0)  # The frame around a state that is judged a goal.
_FRAME = 2  # Pixels of a frame, before the state is enlarged.


def _framed(images: np.ndarray, decisions: np.ndarray) -> np.ndarray:
  """Returns an episode's images, [n + 1, H, W, 3], each in a frame.

  It is green where the decision, [n], is a goal, and else white. The first
  image has no decision.
  """
  count, height, width, _ = images.shape
  framed = np.full(
      [count, height + 2 * _FRAME, width + 2 * _FRAME, 3], 255, np.uint8)
  framed[1:][decisions] = _GOAL_COLOR
  framed[:, _FRAME:-_FRAME, _FRAME:-_FRAME] = images
  return framed


def _captions(decisions: np.ndarray) -> list[str]:
  """Returns a caption for each state of an episode."""
  return ['start'] + [
      f'{i} {"goal" if decision else "no goal"}'
      for i, decision in enumerate(decisions, 1)]


def sheets(episode: recorder.Recording, images: np.ndarray,
           judge: str) -> np.ndarray:
  """Returns an episode's states in sheets of ten, [N, height, width, 3].

  If there are more than five sheets, states are left out at equal distances.

  Args:
    episode: An episode of n steps.
    images: uint8 [n + 1, H, W, 3], its states.
    judge: What made its decisions, such as 'the reward model'.
  """
  size = _COLUMNS * _ROWS
  count = len(images)
  shown = np.unique(np.linspace(
      0, count - 1, min(count, _MOST_SHEETS * size)).round().astype(int))
  framed = _framed(images, episode.decisions)
  captions = _captions(episode.decisions)
  drawn = []
  for part in np.split(shown, range(size, len(shown), size)):
    empty = size - len(part)
    drawn.append(rendering.contact_sheet(
        np.pad(framed[part], ((0, empty), *3 * [(0, 0)]), constant_values=255),
        [captions[i] for i in part] + empty * [''], _COLUMNS,
        scale=max(1, round(_WIDTH / images.shape[2])),
        title=f'{episode.instruction}, judged by {judge}'))
  height = max(len(sheet) for sheet in drawn)
  return np.stack([
      rendering.pad(sheet, height, sheet.shape[1]) for sheet in drawn])


def animation(episode: recorder.Recording, images: np.ndarray
             ) -> tuple[bytes, tuple[int, int]]:
  """Returns an episode as a GIF, with its width and height; see `sheets`."""
  gif = io.BytesIO()
  recording.save_gif(gif, _framed(images, episode.decisions), [
      f'{episode.instruction}: {caption}'
      for caption in _captions(episode.decisions)])
  with Image.open(gif) as picture:
    return gif.getvalue(), picture.size
