"""Records episodes of a run, for pictures in TensorBoard."""

from typing import NamedTuple

import numpy as np

from agile_tf.agent import rollouts
from gridlu import archives

# A longer episode is recorded in parts: an endless one would fill the memory.
_MOST_STEPS = 300


class Recording(NamedTuple):
  """A finished training episode of n steps, or part of a long one."""
  instruction: str
  observations: np.ndarray  # uint8 [n + 1, ...]
  decisions: np.ndarray  # bool [n], which states counted as goal states


class Recorder:
  """Records the episodes of one worker and keeps the last finished one."""

  def __init__(self, from_start: bool):
    """Waits for the next episode, unless the first rollout begins one."""
    self._waits = not from_start
    self._observations: list[np.ndarray] = []
    self._decisions: list[np.ndarray] = []
    self._recording: Recording | None = None

  def add(self, rollout: rollouts.Rollout, decisions: np.ndarray) -> None:
    """Adds the first worker's part of a rollout and of decisions, [T, W]."""
    steps = int(rollout.mask[:, 0].sum())
    if not self._waits and steps:
      first = 1 if self._observations else 0
      # Copies, because a view would keep the rollouts of all workers in memory.
      self._observations.append(
          rollout.observations[first:steps + 1, 0][-_MOST_STEPS - 1:].copy())
      self._decisions.append(decisions[:steps, 0][-_MOST_STEPS:].copy())
      if rollout.ended[0] or sum(map(len, self._decisions)) >= _MOST_STEPS:
        self._recording = Recording(
            rollout.instructions[0],
            np.concatenate(self._observations)[-_MOST_STEPS - 1:],
            np.concatenate(self._decisions)[-_MOST_STEPS:])
        self._observations, self._decisions = [], []
    if rollout.ended[0]:
      self._waits = False

  def take(self) -> Recording | None:
    """Returns the last finished episode; None if there is no new one."""
    recording, self._recording = self._recording, None
    return recording

  def state(self) -> dict[str, np.ndarray]:
    """Returns the state for a checkpoint, which must not depend on the time.

    A finished episode is therefore left out: it may have been taken or not.
    """
    state = {'waits': np.array(self._waits)}
    if self._observations:
      state['frames'] = np.concatenate(self._observations)
      state['decisions'] = np.concatenate(self._decisions)
    return state

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned; raises ValueError for anything else."""
    self._waits = bool(archives.expect(state, 'waits', np.bool_, []))
    self._observations, self._decisions = [], []
    if 'frames' in state:
      frames = archives.expect(
          state, 'frames', np.uint8, [None, *state['frames'].shape[1:]])
      self._observations = [frames]
      self._decisions = [archives.expect(
          state, 'decisions', np.bool_, [len(frames) - 1])]
    self._recording = None
