"""A learned reward model as the reward of Stable-Baselines3's environments.

    from agile_tf.rewarding import stable_baselines3 as rewarding

    environments = rewarding.LearnedVecReward(
        environments, learner, instruction=text_of, states_per_update=240)

Import agile_tf before stable_baselines3. The latter imports TensorFlow, which
then reads environment variables that agile_tf sets.
"""

from typing import Any

import numpy as np

from agile_tf import readings
from agile_tf.rewarding import batches
from gridlu import program

try:
  from stable_baselines3.common import vec_env
except ImportError as problem:
  raise ImportError(
      'agile_tf.rewarding.stable_baselines3 needs Stable-Baselines3 '
      f'({problem}). {program.installing("sb3")}') from problem


class LearnedVecReward(vec_env.VecEnvWrapper):
  """Replaces the rewards of a `VecEnv` by those of a learned reward model.

  An episode's last state is its `info['terminal_observation']`. See
  `agile_tf.LearnedVectorReward` for the rest.
  """

  def __init__(self, venv: vec_env.VecEnv, reward_model: batches.Model,
               image: readings.Source = 'image',
               instruction: readings.Source = 'instruction',
               states_per_update: int = 0,
               reward_threshold: float | None = None):
    """Takes what `agile_tf.LearnedVectorReward` takes.

    Stable-Baselines3 knows no spaces of text, so observations usually have the
    numbers of tokens. Then `instruction` must be a function: it makes the text
    of an observation's tokens, or finds it in `info`. Its default, a key, is
    for a `VecEnv` of your own whose observations have texts.
    """
    super().__init__(venv)
    self._read = readings.Reading(image, instruction)
    self._rewarder = batches.Rewarder(
        reward_model, states_per_update, reward_threshold)

  def reset(self) -> Any:
    return self.venv.reset()

  def step_wait(self) -> Any:
    observations, given, dones, infos = self.venv.step_wait()
    states = []
    for i, info in enumerate(infos):
      observation = info['terminal_observation'] if dones[i] else (
          {name: values[i] for name, values in observations.items()}
          if isinstance(observations, dict) else observations[i])
      states.append(self._read(observation, info))
    rewards, probabilities = self._rewarder(states)
    infos = [info | {batches.ENVIRONMENT_REWARD: float(given[i]),
                     batches.GOAL_PROBABILITY: float(probabilities[i])}
             for i, info in enumerate(infos)]
    return observations, np.asarray(rewards, np.float32), dones, infos
