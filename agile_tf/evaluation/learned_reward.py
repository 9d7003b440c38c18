"""A learned reward model as the reward of a Gymnasium environment."""

from collections.abc import Callable, Sequence
import os
from typing import Any

import gymnasium
import numpy as np

from agile_tf.evaluation import trained
from gridlu import gym
from gridlu import rendering


class LearnedReward(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
  """Replaces a GridLU environment's reward by a reward model's decision.

      agile_tf.LearnedReward(gymnasium.make('GridLU-Relations-v0'),
                             agile_tf.TRAINED)

  The reward is 1.0 if D(c, s) > 0.5 for the instruction c and the state s after
  the action, else 0.0. `info['true_reward']` is the ground truth's, if there is
  one. Other wrappers may be inside and outside, `Autoreset` only outside.

  A reward model knows only what it was trained on. The trained agent's knows
  the instructions of GridLU-Relations on boards with 1 to 5 blocks. What a
  policy learns from it may satisfy the reward model alone, so compare the true
  rewards.

  This needs `pip install -e '.[gym]'`. In a fork of the process that loaded the
  reward model it raises an error: give AsyncVectorEnv context='spawn'.
  """

  def __init__(
      self, env: gymnasium.Env,
      reward_model: str | os.PathLike | Callable[
          [Any, Sequence[str]], np.ndarray]):
    """Takes a run's directory, or what `agile_tf.load_reward_model` returns.

    A loaded reward model serves several environments.
    """
    gymnasium.utils.RecordConstructorArgs.__init__(
        self, reward_model=reward_model)
    gymnasium.Wrapper.__init__(self, env)
    if not isinstance(env.unwrapped, gym.GridLUEnv):
      raise ValueError(f'{env.unwrapped} is no GridLU environment: expected a '
                       'GridLUEnv, such as gymnasium.make makes.')
    self._board = env.unwrapped
    self._reward_model = (
        trained.load_reward_model(os.fspath(reward_model))
        if isinstance(reward_model, str | os.PathLike) else reward_model)

  def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Takes an action; the reward is the reward model's."""
    observation, _, terminated, truncated, info = self.env.step(action)
    if self._board.rewarded:
      info = info | {'true_reward': float(info['is_success'])}
    accepted = self._reward_model(
        rendering.render(self._board.state)[None],
        [str(self._board.instruction)])[0] > 0.5
    return observation, float(accepted), terminated, truncated, info
