"""Failed episodes begin again, from the same instruction and first state.

Most instances are soon easy, and the others need more practice. Whether an
episode failed is D's decision, as everything that the policy is told.
"""

from typing import Any

import dm_env
import numpy as np

from agile_tf.agent import actors
from agile_tf.agent import rollouts


class Repeating(dm_env.Environment):
  """An environment whose `reset` repeats its last episode if it is told to.

  Attributes:
    repeats_next: Whether the next episode repeats this one.
    is_repeated: Whether this episode repeats the one before.
  """

  def __init__(self, environment: Any):
    """Takes an environment with a method `repeat`, such as GridLU's."""
    self._environment = environment
    self.repeats_next = False
    self.is_repeated = False

  def reset(self) -> dm_env.TimeStep:
    self.is_repeated, self.repeats_next = self.repeats_next, False
    return (self._environment.repeat() if self.is_repeated
            else self._environment.reset())

  def step(self, action: int) -> dm_env.TimeStep:
    return self._environment.step(action)

  def observation_spec(self) -> Any:
    return self._environment.observation_spec()

  def action_spec(self) -> Any:
    return self._environment.action_spec()

  @property
  def state(self) -> Any:
    """The board."""
    return self._environment.state

  def get_state(self) -> dict[str, Any]:
    """Returns a state for `set_state`; JSON can represent it."""
    return {'environment': self._environment.get_state(),
            'repeats_next': bool(self.repeats_next),
            'is_repeated': bool(self.is_repeated)}

  def set_state(self, state: dict[str, Any]) -> dm_env.TimeStep:
    """Restores what `get_state` returned; returns the current timestep."""
    timestep = self._environment.set_state(state['environment'])
    self.repeats_next = state['repeats_next']
    self.is_repeated = state['is_repeated']
    return timestep


def follow(actor: actors.Actor, rollout: rollouts.Rollout,
           decisions: np.ndarray, share: float) -> np.ndarray:
  """Lets a share of the failed episodes of `Repeating` environments repeat.

  Returns:
    Whose episodes the success rate counts, bool [W]: not repeated ones, which
    are harder than those that the task draws.
  """
  ended = np.flatnonzero(rollout.ended)
  for w in ended[~rollout.successes(decisions)].tolist():
    actor.environments[w].repeats_next = actor.rngs[w].random() < share
  return np.array([
      not environment.is_repeated for environment in actor.environments])
