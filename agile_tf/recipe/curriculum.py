"""A curriculum: an environment whose first episodes come from another one."""

from typing import Any

import dm_env
import numpy as np


class Curriculum(dm_env.Environment):
  """Plays episodes of one environment at first, and those of another at last.

  Each episode is drawn. The share of the first environment falls linearly from
  1 to 0. A repeated episode is played where it was played before.
  """

  def __init__(self, first: dm_env.Environment, last: dm_env.Environment,
               episodes: int, seed: int):
    """Takes two environments with the same specs.

    Args:
      first: Where the first episodes are played.
      last: Where the last ones are played.
      episodes: After so many, all are played in `last`.
      seed: Draws which episode is played where.
    """
    self._both = first, last
    self._episodes = episodes
    self._seed = seed
    self._resets = 0
    self._played = 0  # Episodes, repeated ones included.
    self._number = 0  # Which of the two plays this episode.

  @property
  def _current(self) -> Any:
    return self._both[self._number]

  def reset(self) -> dm_env.TimeStep:
    """See `dm_env.Environment`."""
    self._resets += 1
    share = self._played / self._episodes
    self._number = int(
        np.random.default_rng((self._seed, self._resets)).random() < share)
    self._played += 1
    return self._current.reset()

  def repeat(self) -> dm_env.TimeStep:
    """Starts the last episode again; see `gridlu.GridLU.repeat`."""
    self._played += 1
    return self._current.repeat()

  def step(self, action: int) -> dm_env.TimeStep:
    """See `dm_env.Environment`."""
    return self._current.step(action)

  def observation_spec(self) -> Any:
    """See `dm_env.Environment`."""
    return self._current.observation_spec()

  def action_spec(self) -> Any:
    """See `dm_env.Environment`."""
    return self._current.action_spec()

  @property
  def state(self) -> Any:
    """The board of the current environment."""
    return self._current.state

  def get_state(self) -> Any:
    """Returns a state for `set_state`; JSON can represent it."""
    return {'resets': self._resets, 'played': self._played,
            'number': self._number,
            'both': [environment.get_state() for environment in self._both]}

  def set_state(self, state: Any) -> dm_env.TimeStep:
    """Restores what `get_state` returned; returns the current timestep."""
    timesteps = [environment.set_state(each)
                 for environment, each in zip(self._both, state['both'])]
    self._resets = state['resets']
    self._played, self._number = state['played'], state['number']
    return timesteps[self._number]
