"""The settings of the recipe, which the paper does not have."""

import dataclasses
import types
from typing import Any

from agile_tf import config as config_lib
from agile_tf import presets
from gridlu import tasks

setting = config_lib.setting


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The recipe's settings. By default a run is the paper's."""

  # Both networks.
  initialization: str = setting(
      'paper', 'How the weights of both networks start. "paper": truncated '
      'normal with sigma = 1 / sqrt(fan_in). "he": with the variance '
      '2 / fan_in before a ReLU, and a policy that is uniform at first.',
      choices=('paper', 'he'))
  optimizer: str = setting(
      'rmsprop', "The optimiser of both networks: the paper's RMSProp, or "
      'Adam, whose beta_1 is 0.9 and whose beta_2 is --policy_decay or '
      '--discriminator_decay. Its epsilon is outside the square root.',
      choices=('rmsprop', 'adam'))

  # The policy.
  policy_update: str = setting(
      'worker', 'Whether the gradient of each "worker" updates the policy, as '
      'in A3C, or the "averaged" gradient of all workers of a thread.',
      choices=('worker', 'averaged'))
  first_policy_learning_rate: float = setting(
      1e-3, 'The learning rate of the policy at the first step, if '
      '--policy_learning_rate_steps lets it change.', above=0)
  policy_learning_rate_steps: int = setting(
      0, 'Policy steps in which the learning rate changes linearly from '
      '--first_policy_learning_rate to --policy_learning_rate. 0 keeps it '
      'constant, as in the paper.', low=0)
  first_entropy_weight: float = setting(
      0.1, 'alpha at the first step, if --entropy_weight_steps lets it change.',
      low=0)
  entropy_weight_steps: int = setting(
      0, 'Policy steps in which alpha changes linearly from '
      '--first_entropy_weight to --entropy_weight. 0 keeps it constant, as in '
      'the paper.', low=0)
  reward_prediction_goals: int = setting(
      0, 'Goal examples that reward prediction also learns from as rewarded '
      'states, for each rollout of a worker. It learns from as many with the '
      'instruction of another example as states without reward.', low=0,
      high=10_000)
  imitation_cost: float = setting(
      0.0, 'The weight of the imitation loss, for --world=arrangements: blocks '
      'of goal examples are displaced, and the policy imitates the shortest '
      'way to carry them to the nearest known goal. Such boards are then three '
      'quarters of the --mismatched_share. The discriminator decides, at the '
      'end of its head start, which blocks matter.', low=0)

  # The discriminator.
  discriminator_head_start: int = setting(
      0, "Iterations of the discriminator's worker before the first policy "
      "step. At their end the policy takes over the discriminator's stem and "
      'its FiLM-NMN or FiLM-LSTM.', low=0)
  discriminator_actors: int = setting(
      1, "Episodes that the discriminator's worker plays at the same time. All "
      'their states go to B.', low=1, high=10_000)
  anticipated_negative_rate_steps: int = setting(
      0, 'Policy steps in which rho falls linearly from 1 to '
      '--anticipated_negative_rate. 0 keeps it constant, as in the paper.',
      low=0)
  mismatched_share: float = setting(
      0.0, "The share of the discriminator's negatives that are not drawn from "
      'B, but are goal examples with the instruction of another one. With '
      '--imitation_cost three quarters of them are instead goal examples some '
      'of whose blocks are displaced.', low=0, high=0.9)
  dataset_any_distractors: bool = setting(
      False, 'Whether generated goal examples have 0 to 4 distractors, each '
      "number equally often, instead of as many as the task's: one in "
      'Relations, four in Arrangements.')
  dataset_carrying: float = setting(
      0.0, 'The share of generated goal examples in which the agent carries '
      'the block under it, among those with the agent on a block. Not for '
      '--world=put_down.', low=0, high=1)

  def __post_init__(self):
    config_lib.check(self)

  def check(self, config: config_lib.Config) -> None:
    """Checks that these settings fit those of a run.

    Raises:
      ConfigError: if they contradict each other.
    """
    if self.mismatched_share and not self.negatives_from_b(config):
      raise config_lib.ConfigError(
          f'--mismatched_share={self.mismatched_share} leaves none of the '
          f'{config.batch_size // 2} negatives of a batch for states from B; '
          'make it smaller.')
    if self.mismatched_share and not self.negatives_from_goals(config):
      raise config_lib.ConfigError(
          f'--mismatched_share={self.mismatched_share} gives none of the '
          f'{config.batch_size // 2} negatives of a batch another instruction; '
          'make it larger.')
    for name, fits, needed in (
        ('dataset_any_distractors', config.world in tasks.TASKS,
         'a GridLU task as --world'),
        ('dataset_carrying', config.world in tasks.TASKS,
         'a GridLU task as --world'),
        ('dataset_carrying',
         config.world not in tasks.TASKS or
         tasks.find(config.world).carried_counts,
         f'another --world than {config.world}, where a block that the agent '
         'carries does not count; or set it to 0'),
        ('reward_prediction_goals', config.reward_prediction,
         '--reward_prediction'),
        ('discriminator_head_start', config.trains_discriminator,
         '--reward=discriminator'),
        ('discriminator_head_start', not config.initial_policy,
         'an empty --initial_policy, of which it would replace a part'),
        ('imitation_cost', config.world == 'arrangements',
         '--world=arrangements'),
        ('imitation_cost', config.physics == 'normal', '--physics=normal'),
        ('imitation_cost', not config.reward_prediction,
         '--noreward_prediction'),
        ('imitation_cost', self.mismatched_share, '--mismatched_share'),
        ('imitation_cost', self.discriminator_head_start,
         '--discriminator_head_start')):
      value = getattr(self, name)
      if value and not fits:
        raise config_lib.ConfigError(f'--{name}={value} needs {needed}.')

  def negatives_from_goals(self, config: config_lib.Config) -> int:
    """Returns how many of a batch's negatives are made of goal examples."""
    return round(self.mismatched_share * config.batch_size / 2)

  def negatives_from_b(self, config: config_lib.Config) -> int:
    """Returns how many of a batch's negatives are from B."""
    return config.batch_size // 2 - self.negatives_from_goals(config)


# They change nothing, so a run that was begun before a setting existed has its
# default.
DEFAULTS = types.MappingProxyType(dataclasses.asdict(Recipe()))


def define_flags() -> None:
  """Defines the flags of a run: all settings, and --preset."""
  config_lib.define_flags()
  config_lib.define_flags(Recipe)
  presets.define_flag()


def saved(config: config_lib.Config, recipe: Recipe) -> dict[str, Any]:
  """Returns a run's settings by name, as it saves them."""
  return dataclasses.asdict(config) | dataclasses.asdict(recipe)


def load(path: str) -> tuple[config_lib.Config, Recipe]:
  """Reads a run's settings from its config.json; see `config.read`."""
  values = DEFAULTS | config_lib.read(path)
  names = [{field.name for field in dataclasses.fields(kind)}
           for kind in (config_lib.Config, Recipe)]
  config_lib.check_names(values, set.union(*names), path)
  try:
    config, recipe = (
        kind(**{name: values[name] for name in own})
        for kind, own in zip((config_lib.Config, Recipe), names))
  except config_lib.ConfigError as error:
    raise config_lib.ConfigError(f'{path}: {error}') from error
  return config, recipe
