"""What all wrappers with a learned reward share: the rewards of a batch.

Each wrapper finds the states that its environments' actions led to, and hands
them to `Rewarder`.
"""

from collections.abc import Sequence
import contextlib
import os
import threading
from typing import Any, TypeAlias

import numpy as np

from agile_tf import config as config_lib
from agile_tf.evaluation import loading
from gridlu import program

# These keys are added to the `info` of each state. Their values are the reward
# that the environment gave, and D(c, s).
ENVIRONMENT_REWARD, GOAL_PROBABILITY = 'environment_reward', 'goal_probability'

# A directory, a function of images and texts that returns probabilities, or a
# `RewardLearner`.
Model: TypeAlias = Any


class Rewarder:
  """Gives the rewards of states, and may train the reward model on them."""

  def __init__(self, model: Model, states_per_update: int = 0,
               reward_threshold: float | None = None):
    """Makes the rewards of a model.

    Args:
      model: The directory of a run or of a reward model, which is computed in
        NumPy; what `agile_tf.load_reward_model` returns; or a `RewardLearner`,
        which then gets all states and is updated.
      states_per_update: After how many states the learner is updated once; 0
        if it is never updated here.
      reward_threshold: The probability that a rewarded state must exceed; None
        for the paper's 0.5. A learner has a setting of this name instead.
    """
    # This is no isinstance, because the class's module imports TensorFlow.
    self._learner = model if hasattr(model, 'rate') else None
    if reward_threshold is not None and self._learner is not None:
      raise ValueError(
          f'reward_threshold is {reward_threshold} with a RewardLearner, which '
          'has its own: RewardLearner(..., reward_threshold='
          f'{reward_threshold}). Leave it out here.')
    self._threshold = config_lib.Config.reward_threshold
    if reward_threshold is not None:  # Config checks its range.
      self._threshold = config_lib.Config(
          reward_threshold=reward_threshold).reward_threshold
    if (not isinstance(states_per_update, int | np.integer) or
        states_per_update < 0 or states_per_update and self._learner is None):
      raise ValueError(
          f'states_per_update is {states_per_update!r:.100}: expected a whole '
          'number of at least 0, and 0 for a reward model that does not learn.')
    is_directory = isinstance(model, str | os.PathLike)
    if self._learner is None and not is_directory and not callable(model):
      raise ValueError(
          f'The reward model is {model!r:.100}: expected a directory, a '
          'function of images and instructions, or a RewardLearner.')
    if is_directory:
      model = loading.load_reward_model(model, backend='numpy')
    self._model = model
    self._states_per_update = states_per_update
    self._since = 0  # States since the last update.
    self._lock = threading.Lock()
    self.metrics: dict[str, float] = {}  # They are the last update's.

  def __call__(self, states: Sequence[tuple[np.ndarray, str]]
              ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rewards and D's probabilities of N states, float32 [N].

    A reward is that of D before this call's update, if there is one.
    """
    if not states:
      return np.zeros([0], np.float32), np.zeros([0], np.float32)
    images, texts = zip(*states)
    if len({image.shape for image in images}) > 1:
      raise ValueError('The images have the shapes '
                       f'{sorted({image.shape for image in images})}: expected '
                       'one shape.')
    batch = np.stack(images), list(texts)
    if self._learner is None:
      probabilities = _probabilities(self._model(*batch), len(states))
      rewards = (probabilities > self._threshold).astype(np.float32)
      return rewards, probabilities
    rewards, probabilities = self._learner.rate(*batch)
    self._learner.add(*batch)
    if self._states_per_update:
      with self._lock:
        self._since += len(states)
        due = self._since >= self._states_per_update and self._learner.ready
        if due:
          self._since = 0
      if due:
        self.metrics = self._learner.update()
    return rewards, probabilities


def _probabilities(returned: Any, count: int) -> np.ndarray:
  """Returns what a function of the user returned, float32 [N]."""
  # It may be no array of numbers.
  with contextlib.suppress(TypeError, ValueError, OverflowError):
    probabilities = np.asarray(returned)
    if probabilities.dtype.kind in 'biuf' and (
        probabilities.shape == (count,)) and np.all(
            (probabilities >= 0) & (probabilities <= 1)):  # NaN is neither.
      return probabilities.astype(np.float32)
  raise ValueError(
      f'The reward model returned {program.shown(returned)} for {count} '
      f'states: expected {count} probabilities, from 0 to 1.')
