"""A learned reward model as the reward of Gymnasium environments."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agile_tf import readings
from agile_tf.rewarding import batches
from gridlu import gym  # Says how to install Gymnasium if it is missing.
from gridlu import program
from gridlu import rendering

# isort: split
import gymnasium
from gymnasium import vector
from gymnasium.vector import utils

_Mode = vector.AutoresetMode


class LearnedReward(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
  """Replaces an environment's reward by that of a learned reward model.

      agile_tf.LearnedReward(gymnasium.make('GridLU-Relations-v0'),
                             agile_tf.TRAINED)

  The reward is 1.0 if D(c, s) exceeds the threshold, by default 0.5, for the
  instruction c and the state s after the action, else 0.0; a `RewardLearner`
  may have another form of it.
  `info['environment_reward']` is the reward that the environment gave, and
  `info['goal_probability']` is D(c, s). Other wrappers may be inside and
  outside, `Autoreset` only outside: the last state of an episode has a reward,
  and the first one of the next has none.

  A reward model knows only what it was trained on. The trained agent's knows
  the instructions of GridLU-Relations on boards with 1 to 5 blocks. What a
  policy learns from it may satisfy the reward model alone, so compare with the
  truth, if there is one.

  This needs `pip install -e '.[gym]'`. A directory's reward model is computed
  in NumPy, which for one state at a time is as fast as TensorFlow and works in
  every process of an `AsyncVectorEnv`.
  """

  def __init__(self, env: gymnasium.Env, reward_model: batches.Model,
               image: readings.Source | None = None,
               instruction: readings.Source | None = None,
               states_per_update: int = 0,
               reward_threshold: float | None = None):
    """Wraps an environment.

    Args:
      env: Any environment whose states have an image, uint8 [H, W, 3], and an
        instruction.
      reward_model: The directory of a run or of a reward model; what
        `agile_tf.load_reward_model` returns; or an `agile_tf.RewardLearner`,
        which gets all states. Several environments may share the last two.
      image: The key of the observation that has the image, or a function of
        observation and info that returns it. None means the key 'image', but
        in GridLU the board is drawn, whatever wrappers do with observations.
      instruction: The same for the text. None means the key 'instruction', but
        in GridLU the instruction of the episode.
      states_per_update: After how many states a learner is updated once; 0 if
        your program calls its `update`.
      reward_threshold: The probability that a rewarded state must exceed; None
        for the paper's 0.5. A `RewardLearner` has a setting of this name
        instead.
    """
    if isinstance(env, vector.VectorEnv):
      raise ValueError(
          f'{env} has many environments: expected one. Use '
          'agile_tf.LearnedVectorReward, or wrap each of them, as '
          "gymnasium.make_vec(..., vectorization_mode='sync', "
          'wrappers=[...]) does.')
    if not isinstance(env, gymnasium.Env):
      raise ValueError(f'{env!r:.100} is no gymnasium.Env.')
    gymnasium.utils.RecordConstructorArgs.__init__(
        self, reward_model=reward_model, image=image, instruction=instruction,
        states_per_update=states_per_update, reward_threshold=reward_threshold)
    gymnasium.Wrapper.__init__(self, env)
    base = env.unwrapped
    if isinstance(base, gym.GridLUEnv):
      usual: tuple[readings.Source, readings.Source] = (
          lambda observation, info: rendering.render(base.state),
          lambda observation, info: str(base.instruction))
    else:
      usual = 'image', 'instruction'
    self._read = readings.Reading(
        usual[0] if image is None else image,
        usual[1] if instruction is None else instruction)
    self._rewarder = batches.Rewarder(
        reward_model, states_per_update, reward_threshold)

  def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Takes an action; the reward is the reward model's."""
    result = self.env.step(action)
    if not isinstance(result, tuple) or len(result) != 5:
      raise ValueError(
          f'step() returned {program.shown(result)}: expected (observation, '
          'reward, terminated, truncated, info).')
    observation, given, terminated, truncated, info = result
    if not isinstance(info, Mapping):
      raise ValueError(
          f'step() returned {program.shown(info)} as info: expected a dict.')
    try:
      own = float(given)
    except (TypeError, ValueError, OverflowError):
      raise ValueError(f'step() returned {program.shown(given)} as reward: '
                       'expected a number.') from None
    rewards, probabilities = self._rewarder([self._read(observation, info)])
    info = {**info, batches.ENVIRONMENT_REWARD: own,
            batches.GOAL_PROBABILITY: float(probabilities[0])}
    return observation, float(rewards[0]), terminated, truncated, info


class LearnedVectorReward(
    vector.VectorWrapper, gymnasium.utils.RecordConstructorArgs):
  """The same for all environments of a `VectorEnv`, in one batch.

      agile_tf.LearnedVectorReward(
          gymnasium.make_vec('GridLU-Relations-v0', num_envs=16), learner,
          states_per_update=240)

  A state has the same reward in each `AutoresetMode` of Gymnasium. In SAME_STEP
  an episode's last state is in `infos['final_obs']`. In NEXT_STEP the step that
  resets an environment has a reward of 0 and no `goal_probability`, and the
  learner does not get its state.
  """

  def __init__(self, env: vector.VectorEnv, reward_model: batches.Model,
               image: readings.Source = 'image',
               instruction: readings.Source = 'instruction',
               states_per_update: int = 0,
               reward_threshold: float | None = None):
    """Takes the arguments of `LearnedReward`.

    Here `image` and `instruction` have keys as their defaults, also in GridLU,
    and boards are not drawn. A function is called for each state, and gets the
    observation and the info of one environment.
    """
    if not isinstance(env, vector.VectorEnv):
      raise ValueError(f'{env!r:.100} is no gymnasium.vector.VectorEnv; for '
                       'one environment, use agile_tf.LearnedReward.')
    mode = env.metadata.get('autoreset_mode')
    if mode not in [*_Mode]:
      raise ValueError(
          f"metadata['autoreset_mode'] of {env} is {mode!r}: expected a "
          'gymnasium.vector.AutoresetMode, because the reward of an '
          "episode's last state depends on it.")
    gymnasium.utils.RecordConstructorArgs.__init__(
        self, reward_model=reward_model, image=image, instruction=instruction,
        states_per_update=states_per_update, reward_threshold=reward_threshold)
    vector.VectorWrapper.__init__(self, env)
    self._mode = mode
    self._read = readings.Reading(image, instruction)
    self._rewarder = batches.Rewarder(
        reward_model, states_per_update, reward_threshold)
    self._ended = np.zeros(env.num_envs, bool)

  def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None
           ) -> tuple[Any, dict[str, Any]]:
    """Starts episodes."""
    if options is not None and not isinstance(options, Mapping):
      raise ValueError(f'options is {options!r:.100}: expected a dict, such as '
                       "{'reset_mask': terminated | truncated}, or None.")
    mask = (options or {}).get('reset_mask', np.ones(self.num_envs, bool))
    result = self.env.reset(seed=seed, options=options)
    self._ended = self._ended & ~np.asarray(mask)
    return result

  def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray,
                                        dict[str, Any]]:
    """Takes an action in each environment; see the class for the rewards."""
    observations, given, terminated, truncated, infos = self.env.step(actions)
    ended = terminated | truncated
    # In these environments this step was only a reset, which has no reward.
    only_reset = self._ended & (self._mode == _Mode.NEXT_STEP)
    states = []
    for i, observation in enumerate(utils.iterate(
        self.env.observation_space, observations)):
      if only_reset[i]:
        continue
      info = _of_one(infos, i)
      if ended[i] and self._mode == _Mode.SAME_STEP:
        observation, info = info['final_obs'], info.get('final_info', {})
      states.append(self._read(observation, info))
    rewards = np.zeros(self.num_envs)
    probabilities = np.zeros(self.num_envs, np.float32)
    rewards[~only_reset], probabilities[~only_reset] = self._rewarder(states)
    self._ended = ended.copy()
    infos = infos | {
        batches.ENVIRONMENT_REWARD: np.array(given, float),
        f'_{batches.ENVIRONMENT_REWARD}': np.ones(self.num_envs, bool),
        batches.GOAL_PROBABILITY: probabilities,
        f'_{batches.GOAL_PROBABILITY}': ~only_reset}
    return observations, rewards, terminated, truncated, infos


def _of_one(infos: Mapping[str, Any], i: int) -> dict[str, Any]:
  """Returns the info of one environment, from that of all of them."""
  info = {}
  for name, values in infos.items():
    if f'_{name}' in infos and infos[f'_{name}'][i]:
      info[name] = (
          _of_one(values, i) if isinstance(values, Mapping) else values[i])
  return info
