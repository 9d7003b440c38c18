"""The policy's episodes: near goals at first, and failed ones again.

Most instances are soon easy, and the others need more practice. Whether an
episode failed is D's decision, as everything that the policy is told.
"""

from typing import Any

import dm_env
import numpy as np

from gridlu import program


class Curriculum(dm_env.Environment):
  """Plays episodes of one environment at first, and those of another at last.

  Each episode is drawn. The share of the first environment falls linearly from
  1 to 0. If `repeats_next` is set, the last episode is played again instead.
  """

  def __init__(self, last: Any, first: Any = None, episodes: int = 0,
               seed: int = 0):
    """Takes two environments with the same specs and a method `repeat`.

    After `episodes` episodes, all are played in `last`. The seed draws which of
    them is played where.
    """
    self.repeats_next = False
    self.is_repeated = False  # Whether this episode repeats the one before.
    self._all = [last] if first is None else [last, first]
    self._episodes = episodes
    self._seed = seed
    self._resets = 0
    self._played = 0  # Episodes, repeated ones included.
    self._number = 0  # Which of them plays this episode.

  @property
  def _current(self) -> Any:
    return self._all[self._number]

  def reset(self) -> dm_env.TimeStep:
    self.is_repeated, self.repeats_next = self.repeats_next, False
    share = self._played / self._episodes if self._episodes else 1.0
    self._played += 1
    if self.is_repeated:
      return self._current.repeat()
    self._resets += 1
    rng = np.random.default_rng((self._seed, self._resets))
    self._number = int(rng.random() >= share)
    return self._current.reset()

  def step(self, action: int) -> dm_env.TimeStep:
    return self._current.step(action)

  def observation_spec(self) -> Any:
    return self._current.observation_spec()

  def action_spec(self) -> Any:
    return self._current.action_spec()

  @property
  def state(self) -> Any:
    """The board of the current environment."""
    return self._current.state

  def get_state(self) -> dict[str, Any]:
    """Returns a state for `set_state`; JSON can represent it."""
    return {'resets': self._resets, 'played': self._played,
            'number': self._number, 'repeats_next': bool(self.repeats_next),
            'is_repeated': bool(self.is_repeated),
            'all': [environment.get_state() for environment in self._all]}

  def set_state(self, state: dict[str, Any]) -> dm_env.TimeStep:
    """Restores what `get_state` returned; returns the current timestep."""
    if 'all' not in state:
      raise program.UserError(
          'This run was saved by an earlier version, whose near-goal starts '
          'and repeated episodes this one cannot resume; commit eb64c8d can. A '
          'run in another --run_dir can begin with its networks, see '
          '--initial_policy.')
    timesteps = [environment.set_state(each)
                 for environment, each in zip(self._all, state['all'])]
    self._resets, self._played = state['resets'], state['played']
    self._number = state['number']
    self.repeats_next = state['repeats_next']
    self.is_repeated = state['is_repeated']
    return timesteps[self._number]
