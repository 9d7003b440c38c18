"""Builds the parts of a run: its world, networks, data and workers."""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import os
from typing import Any, cast, NamedTuple, TypeVar

from absl import logging
import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import functional
from agile_tf.agent import image_sizes
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import variation as variation_lib
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.fast import networks as fast
from agile_tf.training import checkpoints
from agile_tf.training import held_out_goals as held_out_goals_lib
from agile_tf.training import machine
from agile_tf.training import own_networks
from agile_tf.training import resources
from agile_tf.training import selection
from agile_tf.worlds import environments
from agile_tf.worlds import gridlu_world
from gridlu import archives
from gridlu import files
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import tasks
from gridlu import world as world_lib

_Function = TypeVar('_Function', bound=Callable)


def _cached(function: _Function) -> _Function:
  """Returns a function that keeps its last results, by their arguments.

  So the runs of a process that have the same settings share their compiled
  programs, for each of which XLA takes seconds.
  """
  return cast(_Function, functools.lru_cache(maxsize=32)(function))


_gridlu_world = _cached(gridlu_world.GridLUWorld)
_policy_programs = _cached(programs_lib.PolicyPrograms)
_discriminator_programs = _cached(programs_lib.DiscriminatorPrograms)


def make_world(config: config_lib.Config, held_out: bool = False,
               only: str = '', selected: tuple[str, ...] | None = None
              ) -> worlds.World:
  """Returns the world of a run.

  Its episodes have the instructions of training or those that were `held_out`,
  restricted to matches of the regular expression `only`. `selected` are the
  instructions that match --instructions, if a run has saved them.
  """
  if config.world in tasks.TASKS:
    known, instructions = selection.instructions(config, held_out, selected)
    return _gridlu_world(
        config.world, selection.matching(only, instructions),
        world_lib.PHYSICS[config.physics], config.episode_length,
        config.truncate, known, config.solved_starts)
  default = config_lib.Config()
  for name in config_lib.marked('of_gridlu'):
    if getattr(config, name) != getattr(default, name):
      raise config_lib.ConfigError(
          f'--{name}={getattr(config, name)} is a setting of GridLU, but '
          f'--world={config.world} is another world. Remove this flag, and '
          'configure the world in the function that makes it.')
  if held_out or only:
    raise config_lib.ConfigError(
        f'--world={config.world} is not GridLU: only the instructions of '
        'GridLU can be selected.')
  return environments.load(config.world)


@_cached
def make_networks(
    model: str | own_networks.Make, world: worlds.World,
    initialization: networks.Initialization = networks.PAPER
) -> tuple[functional.Network, functional.Network]:
  """Returns pi and D: those of the paper, or of a function of the user.

  `model` is the value of --model, or such a function itself.
  """
  if not isinstance(model, str) or model not in networks.MODELS:
    if initialization != networks.PAPER:
      raise config_lib.ConfigError(
          f'--model={model} says itself how its weights start: leave '
          '--initialization out, or give --initialization=paper if a preset '
          'or a flagfile sets another one.')
    return own_networks.load(model, world)
  pi, d = networks.make(model, world, initialization)
  # Without this line, and agile_tf.fast, training is the same but slower.
  pi, d = fast.accelerate(pi, d, model, world)
  return pi, d


def check_image_shape(model: str, image_shape: Sequence[int]) -> None:
  """Raises WorldError if the paper's networks would not see all pixels."""
  (height, width), size = image_shape[:2], image_sizes.PATCH
  unseen = image_sizes.unseen_pixels(height, width)
  if model in networks.MODELS and unseen:
    raise worlds.WorldError(
        f'The images of this world have {height} x {width} pixels. The '
        f'networks of --model={model} look at whole patches of {size} x {size} '
        f'pixels. They would not see {unseen}, and they see badly what lies '
        'across two patches. Draw cells of '
        f'{size} x {size} pixels, or sides that are multiples of {size}; or '
        'train networks whose patches overlap, with '
        '--model=agile_tf.overlapping:make --initialization=paper.')


def make_goal_examples(config: config_lib.Config, world: worlds.World,
                       carrying: float = 0.0,
                       distractors: tuple[int, int] | None = None
                      ) -> worlds.GoalExamples:
  """Loads or generates the goal examples of a run.

  `carrying` and `distractors` concern generated examples alone; see
  `Variation`.
  """
  is_gridlu = config.world in tasks.TASKS
  if is_gridlu and not config.dataset:
    dataset = goal_dataset.generate(
        config.world, config.dataset_size, config.dataset_seed,
        selection.instructions(config)[1], carrying, distractors)
  else:
    dataset = goal_dataset.load(
        config.dataset or world.goal_examples, world.observation_shape)
  if is_gridlu and config.dataset:
    dataset = _of_this_run(config, dataset)
    if wrong := goal_dataset.violations(dataset, config.world):
      logging.warning(
          '%s: %d of %d goal states do not satisfy their instruction by the '
          'ground truth.', config.dataset, wrong, len(dataset))
  try:
    return worlds.GoalExamples(dataset, world)
  except worlds.WorldError as error:
    source = f'--dataset={config.dataset}' if config.dataset else (
        f'--world={config.world}')
    raise worlds.WorldError(f'{source}: {error}') from error


def _of_this_run(config: config_lib.Config, dataset: goal_dataset.GoalDataset
                ) -> goal_dataset.GoalDataset:
  """Returns the goal examples whose instructions the run trains on."""
  texts = set(map(str, selection.instructions(config)[1]))
  try:
    belongs = np.array([
        str(language.parse(text)) in texts for text in dataset.instructions])
  except ValueError as error:
    raise program.UserError(f'{config.dataset}: {error}') from error
  keep = np.flatnonzero(belongs[dataset.instruction])
  if not len(keep):
    raise program.UserError(
        f'{config.dataset} has no example of the instructions of this run '
        '(see --world, --instructions and --held_out).')
  if len(keep) < len(dataset):
    logging.warning(
        '%s: %d of %d examples are of instructions that --instructions or '
        '--held_out exclude, and are not used.',
        config.dataset, len(dataset) - len(keep), len(dataset))
  # They are shuffled, because a file may be sorted by instruction, and
  # recipe/imitation.py takes only the first examples.
  keep = np.random.default_rng(0).permutation(keep)
  used, index = np.unique(dataset.instruction[keep], return_inverse=True)
  return goal_dataset.GoalDataset(
      tuple(dataset.instructions[i] for i in used), index,
      dataset.observations[keep])


def check_world(checkpoint: checkpoints.Checkpoint,
                world: worlds.World) -> None:
  """Raises CheckpointError unless a run's checkpoint is of a world like this.

  A user's world may have been changed since the checkpoint was saved.
  """
  checkpoints.check_tokens(checkpoint, world.grammar.tokens)
  checkpoints.check_actions(checkpoint, world.num_actions)
  checkpoints.check_pairs(
      checkpoint, len(world.grammar.slots), world.observation_shape)


def saved_parameters(
    checkpoint: checkpoints.Checkpoint, world: worlds.World,
    network: functional.Network, group: str) -> np.ndarray:
  """Returns the 'policy' or 'discriminator' of a checkpoint, float32 [P].

  Raises:
    CheckpointError: if it is from another world, or of another network.
  """
  checkpoints.check_tokens(checkpoint, world.grammar.tokens)
  if group == 'policy':
    checkpoints.check_actions(checkpoint, world.num_actions)
  image_shape = list(world.image_shape)
  # Only a reward model directory has this value (`reward_models.checkpoint`).
  saved_shape = checkpoint.values.get('image_shape', image_shape)
  if saved_shape != image_shape:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} is of images {saved_shape}; this world has '
        f'{image_shape}.')
  found = checkpoint.group(group)
  try:
    return network.layout.join({
        name: archives.expect(found, name, np.float32, shape)
        for name, shape in zip(network.layout.names, network.layout.shapes)
    }).numpy()
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} does not fit ({error}): its run had no {group}, or '
        'another --model.') from error


def check_draw(config: config_lib.Config, drawn: int) -> None:
  """Raises ConfigError if B is too small for a draw of so many pairs."""
  if drawn > config.replay_size:
    raise config_lib.ConfigError(
        f'--replay_size={config.replay_size} is less than one draw from B '
        f'({drawn} pairs); make it or --anticipated_negative_rate larger.')


def _by_name(settings: Any) -> dict[str, Any]:
  return {} if settings is None else dataclasses.asdict(settings)


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run that is not built yet: settings, and departures from the paper."""
  config: config_lib.Config
  variation: variation_lib.Variation = variation_lib.Variation()
  # A dataclass of the settings from which `variation` was made and which
  # `config` lacks; or None. A run that was begun before a field existed has its
  # default.
  beyond: Any = None

  @functools.cached_property
  def world(self) -> worlds.World:
    return make_world(self.config)

  @property
  def given(self) -> dict[str, Any]:
    """All settings by name, as they were given."""
    return dataclasses.asdict(self.config) | _by_name(self.beyond)

  @property
  def defaults(self) -> dict[str, Any]:
    """The defaults of the settings that `config` lacks, by name."""
    return _by_name(self.beyond and type(self.beyond)())

  @functools.cached_property
  def settings(self) -> dict[str, Any]:
    """All settings by name, as a run saves them."""
    return self.given | self._dataset | self._selected

  @property
  def _selected(self) -> dict[str, list[str]]:
    """The instructions that --instructions selects, if it is given.

    A loaded run uses this list: see `selection.saved`.
    """
    if not self.config.instructions or self.config.world not in tasks.TASKS:
      return {}
    return {config_lib.SELECTED: [
        str(each) for each in selection.instructions(self.config)[0]]}

  @property
  def _dataset(self) -> dict[str, str]:
    """The SHA-256 of the file of goal examples, if the run has such a file."""
    path = self.config.dataset or self.world.goal_examples
    if self.needs_goals and os.path.isfile(path):
      with contextlib.suppress(OSError):  # The loader reports this.
        with files.open_regular(path) as file:
          digest = hashlib.file_digest(file, 'sha256').hexdigest()
        return {config_lib.DATASET_SHA256: digest}
    return {}

  @property
  def needs_goals(self) -> bool:
    """Whether the run has goal examples."""
    return self.config.trains_discriminator or self.variation.needs_goals

  @property
  def negatives(self) -> workers.Negatives:
    """The choice of the discriminator's negatives."""
    return self.variation.negatives or workers.AnticipatedNegatives(
        self.config.batch_size // 2, self.config.anticipated_negative_rate)

  @property
  def auxiliary(self) -> auxiliary_lib.Auxiliary | None:
    """The auxiliary loss of the policy."""
    config = self.config
    if self.variation.auxiliary is not None or not config.reward_prediction:
      return self.variation.auxiliary
    return auxiliary_lib.reward_prediction(
        config.reward_prediction_cost, config.reward_prediction_batch_size,
        config.reward_prediction_replay_size)

  def check(self) -> None:
    """Raises an error if settings, world and machine do not fit together.

    Raises:
      ConfigError: A setting does not fit the world or the machine.
      WorldError: See `check_image_shape`.
    """
    config = self.config
    check_image_shape(config.model, self.world.image_shape)
    if config.reward == 'environment' and not self.world.has_ground_truth:
      raise config_lib.ConfigError(
          '--reward=environment needs a ground truth, and this world has none; '
          'use --reward=discriminator.')
    if config.trains_discriminator:
      check_draw(config, self.negatives.largest_draw)
    elif self.variation.head_start is not None:
      raise config_lib.ConfigError(
          f'--reward={config.reward} trains no discriminator, so the run '
          'cannot begin with a head start of the discriminator. Leave the head '
          'start out of its variation, or use --reward=discriminator.')
    resources.check(config, self.world, self.needs_goals, machine.memory())


class Networks(NamedTuple):
  """Programs and parameters of both networks, which all workers share."""
  policy_programs: programs_lib.PolicyPrograms
  discriminator_programs: programs_lib.DiscriminatorPrograms
  policy: optimizers.SharedParameters  # theta
  # phi; None if the reward is the ground truth.
  discriminator: optimizers.SharedParameters | None


class Data(NamedTuple):
  """The data of a run besides its rollouts."""
  goals: worlds.GoalExamples | None
  auxiliary: auxiliary_lib.Data | None  # For the auxiliary loss of the policy.
  held_out_goals: worlds.GoalExamples | None  # Nothing is trained on these.


class Parts(NamedTuple):
  """The parts of a run."""
  world: worlds.World
  networks: Networks
  data: Data
  # One for each policy thread. It iterates all workers of its thread; their
  # number in all threads together is --policy_workers.
  policy_workers: tuple[workers.PolicyWorker, ...]
  discriminator_worker: workers.DiscriminatorWorker | None


class _Seeds(NamedTuple):
  """The seeds of a run's parts."""
  networks: np.random.SeedSequence
  policy: np.random.SeedSequence
  discriminator: np.random.SeedSequence
  auxiliary: np.random.SeedSequence

  @classmethod
  def of(cls, config: config_lib.Config) -> '_Seeds':
    return cls(*np.random.SeedSequence(config.seed).spawn(4))


def build(plan: Plan, frozen: checkpoints.Checkpoint | None = None,
          initial: checkpoints.Checkpoint | None = None) -> Parts:
  """Returns the parts of a run at step 0.

  Its discriminator is that of the checkpoint `frozen`, if there is one, and
  its policy begins as that of `initial`.
  """
  plan.check()
  built = build_networks(plan, frozen, initial)
  data = build_data(plan)
  return build_workers(plan, built, data)


def build_networks(plan: Plan, frozen: checkpoints.Checkpoint | None = None,
                  initial: checkpoints.Checkpoint | None = None) -> Networks:
  """Returns both networks before their first update; see `build`."""
  config, world, variation = plan.config, plan.world, plan.variation
  pi, d = make_networks(config.model, world, variation.initialization)
  policy_seed, discriminator_seed = map(
      int, _Seeds.of(config).networks.generate_state(2, np.uint32))
  theta, phi = pi.initial(policy_seed), d.initial(discriminator_seed)
  if initial is not None:
    theta = saved_parameters(initial, world, pi, 'policy')
  if frozen is not None:
    phi = saved_parameters(frozen, world, d, 'discriminator')
  policy = optimizers.SharedParameters(
      pi.layout, theta,
      variation.rule(config.policy_decay, config.policy_epsilon),
      config.policy_gradient_norm)
  discriminator = None
  if config.reward != 'environment':
    discriminator = discriminator_parameters(config, d, phi, variation.rule)
  policy_programs = _policy_programs(
      pi, world, programs_lib.LossSettings(
          config.discount, config.td_lambda, config.baseline_cost),
      None if plan.auxiliary is None else plan.auxiliary.loss,
      variation.averaged)
  return Networks(
      policy_programs, discriminator_programs(config, d), policy, discriminator)


def discriminator_parameters(
    config: config_lib.Config, d: functional.Network, phi: np.ndarray,
    rule: Callable[[float, float], optimizers.Rule] = optimizers.rmsprop
) -> optimizers.SharedParameters:
  """Returns the parameters of D, with an optimiser state and their limits.

  They begin as `phi`, float32 [P].
  """
  return optimizers.SharedParameters(
      d.layout, phi,
      rule(config.discriminator_decay, config.discriminator_epsilon),
      config.discriminator_gradient_norm, config.max_column_norm or None,
      config.limit_film_tables)


def discriminator_programs(config: config_lib.Config, d: functional.Network
                          ) -> programs_lib.DiscriminatorPrograms:
  """Returns the programs of D."""
  return _discriminator_programs(
      d, config.reward_form, config.reward_scale, config.reward_threshold)


def build_data(plan: Plan) -> Data:
  """Returns the goal examples and the data of the auxiliary loss."""
  goals = held_out_goals = None
  if plan.needs_goals:
    goals, held_out_goals = held_out_goals_lib.divide(
        make_goal_examples(
            plan.config, plan.world, plan.variation.carrying,
            plan.variation.distractors),
        plan.world, plan.config.held_out_goals)
    if plan.variation.check_goals is not None:
      plan.variation.check_goals(goals)
  auxiliary = plan.auxiliary
  return Data(
      goals, None if auxiliary is None else auxiliary.make(plan.world, goals),
      held_out_goals)


def build_workers(plan: Plan, built: Networks, data: Data) -> Parts:
  """Returns all parts of a run: makes the workers of its networks and data."""
  config, variation, seeds = plan.config, plan.variation, _Seeds.of(plan.config)
  discriminator_worker = None
  if config.trains_discriminator:
    assert built.discriminator is not None
    assert data.goals is not None
    actor_seed, draw_seed = seeds.discriminator.spawn(2)
    num_episodes = variation.discriminator_episodes
    # A single episode has the seed itself. With one that is spawned from it,
    # the same settings would not repeat a run of an earlier version.
    episode_seeds = (
        [actor_seed] if num_episodes == 1 else actor_seed.spawn(num_episodes))
    discriminator_worker = workers.DiscriminatorWorker(
        _actor(plan, built.policy_programs, episode_seeds, range(num_episodes)),
        workers.DiscriminatorLearner(
            built.discriminator, built.discriminator_programs,
            replay.of_world(config.replay_size, plan.world), data.goals,
            workers.DiscriminatorSettings(
                config.batch_size, config.discriminator_learning_rate,
                plan.negatives),
            np.random.default_rng(draw_seed)),
        config.first_states_in_buffer)
  width = config.policy_workers // config.policy_threads
  actor_seeds = seeds.policy.spawn(config.policy_workers)
  policy_workers = []
  for thread, draw_seed in enumerate(
      seeds.auxiliary.spawn(config.policy_threads)):
    numbers = range(thread * width, (thread + 1) * width)
    policy_workers.append(workers.PolicyWorker(
        _actor(plan, built.policy_programs,
               [actor_seeds[w] for w in numbers], numbers),
        built.policy, built.policy_programs, built.discriminator_programs,
        variation.entropy_weight or (lambda step: config.entropy_weight),
        variation.learning_rate or (lambda step: config.policy_learning_rate),
        data.auxiliary, np.random.default_rng(draw_seed),
        discriminator_worker.learner
        if discriminator_worker and config.all_workers_write else None))
  return Parts(plan.world, built, data, tuple(policy_workers),
               discriminator_worker)


def _actor(plan: Plan, programs: programs_lib.PolicyPrograms,
           seeds: Sequence[np.random.SeedSequence], numbers: range
          ) -> actors.Actor:
  """Returns the actor of the workers of these numbers."""
  # Each worker has a seed of its environment and one of its actions.
  of_environments, of_actions = zip(*(seed.spawn(2) for seed in seeds))
  made = [plan.world.make_environment(int(seed.generate_state(1)[0]))
          for seed in of_environments]
  # Every second worker sits out the first rollout, so that not all of them are
  # in the same part of their episodes.
  return actors.kind(plan.world)(
      programs, made, [np.random.default_rng(seed) for seed in of_actions],
      plan.config.rollout_length, [number % 2 == 1 for number in numbers])
