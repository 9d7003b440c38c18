"""What changes while the policy trains: alpha, and the learning rate."""

from agile_tf import config as config_lib
from agile_tf.agent import workers
from agile_tf.recipe import annealing
from agile_tf.recipe import settings


class Course(workers.Course):
  """The paper's, with the recipe's annealing."""

  def __init__(self, config: config_lib.Config, recipe: settings.Recipe):
    super().__init__(config.entropy_weight, config.policy_learning_rate)
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
