"""Records episodes of a run and draws them for TensorBoard."""

import collections
from typing import NamedTuple

import numpy as np

from agile_tf.agent import rollouts
from gridlu import rendering

_MOST_STEPS = 300  # Only the last steps of longer episodes are recorded.

_COLUMNS = 6  # TensorBoard shows a picture about as wide as these columns.
# Of an episode with more states, some are left out at equal distances.
_MOST_STATES = 60
_WIDTH = 56  # About the width of a state on a sheet, in pixels.
_GOAL_COLOR = (0, 160, 0)  # The frame around a state that is judged a goal.
_FRAME = 2  # Pixels of a frame, before the state is enlarged.


class RecordedEpisode(NamedTuple):
  """The last n steps of a finished training episode."""
  instruction: str
  observations: np.ndarray  # uint8 [n + 1, ...]
  decisions: np.ndarray  # bool [n], which states counted as goal states


class Recorder:
  """Records the episodes of one worker and keeps the last finished one."""

  def __init__(self, waits: bool = False):
    """Takes whether it waits until the current episode has ended.

    In a resumed run it does, because it has not seen how that episode began.
    """
    self._waits = waits
    self._observations: collections.deque[np.ndarray] = collections.deque(
        maxlen=_MOST_STEPS + 1)
    self._decisions: collections.deque[bool] = collections.deque(
        maxlen=_MOST_STEPS)
    self._finished: RecordedEpisode | None = None

  def add(self, rollout: rollouts.Rollout, decisions: np.ndarray) -> None:
    """Adds the first worker's part of a rollout and of decisions, [R, W]."""
    steps = int(rollout.mask[:, 0].sum())
    if not self._waits and steps:
      first = 1 if self._observations else 0
      # It is copied: a view would keep the rollouts of all workers in memory.
      self._observations.extend(
          rollout.observations[first:steps + 1, 0].copy())
      self._decisions.extend(decisions[:steps, 0])
      if rollout.ended[0]:
        self._finished = RecordedEpisode(
            rollout.instructions[0], np.stack(self._observations),
            np.array(self._decisions))
        self._observations.clear()
        self._decisions.clear()
    if rollout.ended[0]:
      self._waits = False

  def take(self) -> RecordedEpisode | None:
    """Returns the last finished episode; None if there is no new one."""
    episode, self._finished = self._finished, None
    return episode


def sheet(episode: RecordedEpisode, images: np.ndarray, judge: str
         ) -> np.ndarray:
  """Draws an episode's images, uint8 [n + 1, H, W, 3], on one, uint8 [h, w, 3].

  Goal states, as the judge has decided, have green frames.
  """
  count, height, width, _ = images.shape
  framed = np.full(
      [count, height + 2 * _FRAME, width + 2 * _FRAME, 3], 255, np.uint8)
  framed[1:][episode.decisions] = _GOAL_COLOR
  framed[:, _FRAME:-_FRAME, _FRAME:-_FRAME] = images
  captions = ['start'] + [
      f'{i} {"goal" if decision else "no goal"}'
      for i, decision in enumerate(episode.decisions, 1)]
  shown = np.unique(np.linspace(
      0, count - 1, min(count, _MOST_STATES)).round().astype(int))
  return rendering.contact_sheet(
      framed[shown], [captions[i] for i in shown], _COLUMNS,
      scale=max(1, round(_WIDTH / width)),
      title=f'{episode.instruction}, judged by {judge}')
