"""What changes while the policy trains: alpha, its rate, and what repeats."""

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.recipe import annealing
from agile_tf.recipe import settings


class Course(workers.Course):
  """The paper's, with the recipe's annealing and repeated episodes."""

  def __init__(self, config: config_lib.Config, recipe: settings.Recipe):
    super().__init__(config.entropy_weight, config.policy_learning_rate)
    self._share = recipe.repeated_share
    self._alpha = annealing.Linear(
        recipe.first_entropy_weight, config.entropy_weight,
        recipe.entropy_weight_steps)
    self._rate = annealing.Linear(
        recipe.first_policy_learning_rate, config.policy_learning_rate,
        recipe.policy_learning_rate_steps)

  def entropy_weight(self, step: int) -> float:
    return self._alpha(step)

  def learning_rate(self, step: int) -> float:
    return self._rate(step)

  def follow(self, actor: actors.Actor, rollout: rollouts.Rollout,
             decisions: np.ndarray) -> np.ndarray:
    """Lets a share of the failed episodes of `Curriculum` environments repeat.

    The success rate does not count repeated episodes: they are harder than
    those that the task draws.
    """
    if not self._share:
      return super().follow(actor, rollout, decisions)
    ended = np.flatnonzero(rollout.ended)
    for w in ended[~rollout.successes(decisions)].tolist():
      actor.environments[w].repeats_next = (
          actor.rngs[w].random() < self._share)
    return np.array([
        not environment.is_repeated for environment in actor.environments])
