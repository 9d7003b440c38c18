"""A curriculum: an environment whose first episodes come from another one."""

from typing import Any

import dm_env


class Curriculum(dm_env.Environment):
  """Plays some episodes of one environment, then those of another."""

  def __init__(self, first: dm_env.Environment, then: dm_env.Environment,
               episodes: int):
    """Takes two environments with the same specs.

    Args:
      first: Where the first episodes are played.
      then: Where all others are played.
      episodes: The number of first episodes.
    """
    self._both = first, then
    self._episodes = episodes
    self._resets = 0

  @property
  def _current(self) -> Any:
    return self._both[self._resets > self._episodes]

  def reset(self) -> dm_env.TimeStep:
    """See `dm_env.Environment`."""
    self._resets += 1
    return self._current.reset()

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
    return {'resets': self._resets,
            'both': [environment.get_state() for environment in self._both]}

  def set_state(self, state: Any) -> dm_env.TimeStep:
    """Restores what `get_state` returned; returns the current timestep."""
    timesteps = [environment.set_state(each)
                 for environment, each in zip(self._both, state['both'])]
    self._resets = state['resets']
    return timesteps[self._resets > self._episodes]
