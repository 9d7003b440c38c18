"""Makes a `Variation` of the paper's run from the recipe's settings."""

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import variation
from agile_tf.agent import workers
from agile_tf.recipe import adam
from agile_tf.recipe import annealing
from agile_tf.recipe import imitation
from agile_tf.recipe import mismatched
from agile_tf.recipe import settings

# If the policy imitates, this share of the negatives that are made of goal
# examples have displaced blocks, and the others another instruction.
_DISPLACED_SHARE = 0.75

# The fewest and the most distractors of goal examples that have any number.
_DISTRACTORS = (0, 4)


def make(config: config_lib.Config, recipe: settings.Recipe
        ) -> variation.Variation:
  """Returns what the recipe varies: `Variation()` with default settings."""
  recipe.check(config)
  made = variation.Variation(
      discriminator_episodes=recipe.discriminator_actors,
      carrying=recipe.dataset_carrying,
      distractors=_DISTRACTORS if recipe.dataset_any_distractors else None,
      averaged=recipe.policy_update == 'averaged')
  if recipe.initialization == 'he':
    made = made._replace(initialization=networks.HE)
  if recipe.optimizer == 'adam':
    made = made._replace(rule=adam.adam)
  if recipe.policy_learning_rate_steps:
    made = made._replace(learning_rate=annealing.Linear(
        recipe.first_policy_learning_rate, config.policy_learning_rate,
        recipe.policy_learning_rate_steps))
  if recipe.entropy_weight_steps:
    made = made._replace(entropy_weight=annealing.Linear(
        recipe.first_entropy_weight, config.entropy_weight,
        recipe.entropy_weight_steps))
  if recipe.mismatched_share or recipe.anticipated_negative_rate_steps:
    made = made._replace(negatives=_negatives(config, recipe))
  if recipe.mismatched_share or recipe.reward_prediction_goals:
    made = made._replace(check_goals=mismatched.require_several)
  if recipe.reward_prediction_goals:
    made = made._replace(needs_goals=True, auxiliary=mismatched.prediction(
        config.reward_prediction_cost, config.reward_prediction_batch_size,
        config.reward_prediction_replay_size, recipe.reward_prediction_goals))
  if recipe.imitation_cost:
    made = made._replace(auxiliary=imitation.auxiliary(recipe.imitation_cost))
  if recipe.discriminator_head_start:
    made = made._replace(head_start=_head_start(config, recipe))
  return made


def _negatives(config: config_lib.Config, recipe: settings.Recipe
              ) -> mismatched.Negatives:
  """Returns how the negatives of the discriminator are chosen."""
  num_from_goals = recipe.negatives_from_goals(config)
  num_displaced = (
      int(_DISPLACED_SHARE * num_from_goals) if recipe.imitation_cost else 0)
  return mismatched.Negatives(
      rho=annealing.Linear(
          1.0, config.anticipated_negative_rate,
          recipe.anticipated_negative_rate_steps),
      kept=recipe.negatives_from_b(config),
      num_mismatched=num_from_goals - num_displaced,
      num_displaced=num_displaced)


def _head_start(config: config_lib.Config, recipe: settings.Recipe
               ) -> variation.HeadStart:
  """Returns the discriminator's head start, at whose end it lends layers."""
  def then(policy: optimizers.SharedParameters,
           learner: workers.DiscriminatorLearner,
           data: auxiliary_lib.Data | None) -> None:
    lend(learner.parameters, policy)
    if recipe.imitation_cost:
      assert isinstance(data, imitation.Demonstrations)
      data.find_relevant_blocks(
          learner.accepts, np.random.default_rng(config.seed))

  return variation.HeadStart(recipe.discriminator_head_start, then)


def lend(discriminator: optimizers.SharedParameters,
         policy: optimizers.SharedParameters) -> None:
  """Gives the policy what the discriminator's layout says that it lends.

  In the paper's networks these are all layers that see or read; the policy's
  merge layer and its heads stay as they are.
  """
  theirs = discriminator.state()
  names = discriminator.layout.lends(policy.layout)
  policy.load(policy.state() | {
      own: theirs[name] for own, name in names.items()})
