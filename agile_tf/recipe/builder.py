"""Makes the parts of a run with the recipe, where it differs from the paper."""

from collections.abc import Callable
from typing import Any

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import modules
from agile_tf.agent import programs
from agile_tf.agent import replay
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.recipe import adam
from agile_tf.recipe import annealing
from agile_tf.recipe import averaging
from agile_tf.recipe import imitation
from agile_tf.recipe import mismatched
from agile_tf.recipe import settings
from agile_tf.training import building


def make(config: config_lib.Config, recipe: settings.Recipe
        ) -> building.Builder:
  """Returns the paper's builder, or the recipe's if a setting asks for it."""
  if recipe == settings.Recipe():
    return building.Builder(config)
  return Builder(config, recipe)


class _AveragedPrograms(averaging.AveragedPrograms, imitation.Programs):
  """The programs of all tricks."""


# He et al., 2015: before a ReLU the variance is 2 / fan_in, of which a module
# with one operand sees 64 channels. 0.88 is the deviation of a standard normal
# truncated at 2. Features are then so large that with a gain of 1 the first
# policy would walk to one wall, where D would tell its states from goal states
# by that alone. With a small gain it is uniform.
HE = modules.Initialization(2**0.5 / 0.87962566, 0.01, modules.CHANNELS)

# Of --mismatched_share, the share of displaced examples if the policy imitates.
_DISPLACED_SHARE = 0.75


class Builder(building.Builder):
  """Overrides what the recipe changes."""

  def __init__(self, config: config_lib.Config, recipe: settings.Recipe):
    super().__init__(config)
    recipe.check(config)
    self._recipe = recipe
    if recipe.initialization == 'he':
      self.initialization = HE
    self.programs = (
        _AveragedPrograms if recipe.policy_update == 'averaged'
        else imitation.Programs)
    if recipe.optimizer == 'adam':
      self.parameters = adam.AdamParameters
    self.discriminator_actors = recipe.discriminator_actors
    self.head_start = recipe.discriminator_head_start
    self.carrying = recipe.dataset_carrying

  def saved(self) -> dict[str, Any]:
    return super().saved() | settings.saved(self.config, self._recipe)

  def needs_goal_examples(self) -> bool:
    return bool(super().needs_goal_examples() or
                self._recipe.reward_prediction_goals)

  def num_candidates(self) -> int:
    return workers.num_candidates(
        self._recipe.negatives_from_b(self.config),
        self.config.anticipated_negative_rate)

  def negatives(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples
               ) -> workers.AnticipatedNegatives:
    recipe = self._recipe
    if recipe.mismatched_share:
      mismatched.require_several(goals)
    return mismatched.Negatives(
        buffer, goals, annealing.Linear(
            1.0, self.config.anticipated_negative_rate,
            recipe.anticipated_negative_rate_steps),
        recipe.negatives_from_b(self.config), recipe.mismatched(self.config),
        _DISPLACED_SHARE if recipe.imitation_cost else 0.0)

  def loss(self) -> programs.Loss:
    loss, cost = super().loss(), self._recipe.imitation_cost
    return loss._replace(auxiliary_cost=cost) if cost else loss

  def auxiliary_data(self, goals: worlds.GoalExamples | None) -> Any:
    if not self._recipe.imitation_cost:
      return super().auxiliary_data(goals)
    assert goals is not None
    return imitation.Demonstrations(goals)

  def auxiliary(self, buffer: Any, rng: np.random.Generator,
                goals: worlds.GoalExamples | None) -> Any:
    if self._recipe.imitation_cost:
      return imitation.Imitation(buffer, rng)
    if not self._recipe.reward_prediction_goals:
      return super().auxiliary(buffer, rng, goals)
    assert goals is not None
    mismatched.require_several(goals)
    return mismatched.Prediction(
        buffer, self.config.reward_prediction_batch_size, rng, goals,
        self._recipe.reward_prediction_goals)

  def entropy_weight(self) -> Callable[[int], float]:
    return annealing.Linear(
        self._recipe.first_entropy_weight, self.config.entropy_weight,
        self._recipe.entropy_weight_steps)

  def learning_rate(self) -> Callable[[int], float]:
    return annealing.Linear(
        self._recipe.first_policy_learning_rate,
        self.config.policy_learning_rate,
        self._recipe.policy_learning_rate_steps)

  def after_head_start(self, parts: building.Parts) -> None:
    # The discriminator lends the policy all its layers that see or read. The
    # policy's merge layer and both heads stay.
    assert parts.discriminator is not None
    theirs = parts.discriminator.state()
    names = {name: name.replace('policy/', 'discriminator/', 1)
             for name in parts.policy.layout.names if '/features/' in name}
    parts.policy.load(parts.policy.state() | {
        own: theirs[name] for own, name in names.items() if name in theirs})
    if self._recipe.imitation_cost:
      phi = parts.discriminator.snapshot()

      def accepts(codes: np.ndarray, states: np.ndarray) -> np.ndarray:
        _, decisions = parts.programs.reward(
            phi, np.stack([states, states]), codes)
        return decisions[0].numpy()

      parts.auxiliary_data.look(
          accepts, np.random.default_rng(self.config.seed))
