"""Builds the parts of a run from its configuration and wires them together."""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import os
import re
from typing import Any, NamedTuple

from absl import logging
import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import modules
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.agent.fast import functional
from agile_tf.training import checkpoints
from agile_tf.training import machine
from agile_tf.training import resources
from gridlu import archives
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import splits
from gridlu import tasks
from gridlu import world as board


def make_world(config: config_lib.Config, held_out: bool = False,
               only: str = '') -> worlds.World:
  """Returns the world of a run.

  Its episodes have the instructions of training or those that were `held_out`,
  but `only` those with a match of this regular expression.
  """
  if config.world in tasks.TASKS:
    known, instructions = _instructions(config, held_out)
    return worlds.GridLUWorld(
        config.world, matching(only, instructions),
        board.PHYSICS[config.physics], config.episode_length, config.truncate,
        known, config.solved_starts)
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
  return worlds.load(config.world)


def _instructions(config: config_lib.Config, held_out: bool = False
                 ) -> tuple[tuple[language.Instruction, ...],
                            tuple[language.Instruction, ...]]:
  """Returns all instructions of a GridLU run, and one side of their split."""
  known = matching(
      config.instructions, tasks.find(config.world).instructions())
  if config.held_out == 'none':
    if held_out:
      raise config_lib.ConfigError(
          'The run held no instructions out, because it has --held_out=none. '
          'Use a run with --held_out=strings or --held_out=meanings.')
    return known, known
  try:
    sides = splits.split(
        known, config.held_out, config.held_out_share, config.held_out_seed)
  except ValueError as error:
    raise config_lib.ConfigError(
        f'--held_out={config.held_out}: {error}') from error
  return known, sides[held_out]


def matching(pattern: str, instructions: tuple[language.Instruction, ...]
            ) -> tuple[language.Instruction, ...]:
  """Returns the instructions whose text contains a match of a pattern."""
  try:
    chosen = tuple(
        each for each in instructions if re.search(pattern, str(each)))
  except (re.error, OverflowError, RecursionError) as error:
    raise config_lib.ConfigError(
        f'--instructions={pattern} is not a regular expression: {error}.'
        ) from error
  if not chosen:
    raise config_lib.ConfigError(
        f'--instructions={pattern} matches none of the {len(instructions)} '
        f'instructions. One of them is {instructions[0]}.')
  return chosen


def make_goal_examples(config: config_lib.Config, world: worlds.World,
                       carrying: float = 0.0) -> worlds.GoalExamples:
  """Loads or generates the goal examples of a run.

  `carrying` is the share of the generated states with the agent on a block in
  which it carries that block.
  """
  is_gridlu = config.world in tasks.TASKS
  if is_gridlu and not config.dataset:
    dataset = goal_dataset.generate(
        config.world, config.dataset_size, config.dataset_seed,
        _instructions(config)[1], carrying)
  else:
    dataset = goal_dataset.load(
        config.dataset or world.goal_examples, world.observation_shape)
  if is_gridlu and config.dataset:
    dataset = _of_this_run(config, dataset)
    if wrong := goal_dataset.violations(dataset):
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
  texts = set(map(str, _instructions(config)[1]))
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
  # Imitation takes the first ones, and a file may be sorted by instruction.
  keep = np.random.default_rng(0).permutation(keep)
  used, index = np.unique(dataset.instruction[keep], return_inverse=True)
  return goal_dataset.GoalDataset(
      tuple(dataset.instructions[i] for i in used), index,
      dataset.observations[keep])


def check_tokens(checkpoint: checkpoints.Checkpoint,
                 world: worlds.World) -> None:
  """Raises CheckpointError unless a checkpoint has the tokens of a world."""
  there, here = checkpoint.values.get('tokens'), list(world.grammar.tokens)
  if there != here:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} is from a world with the tokens {there}; this '
        f'world has {here}. Use a checkpoint from the same world.')


def saved_parameters(
    checkpoint: checkpoints.Checkpoint, world: worlds.World,
    network: functional.Network, group: str) -> np.ndarray:
  """Returns the 'policy' or 'discriminator' of a checkpoint, float32 [P].

  Raises:
    CheckpointError: if it is from another world, or of another network.
  """
  check_tokens(checkpoint, world)
  found = checkpoint.group(group)
  try:
    return network.layout.join({
        name: archives.expect(found, name, np.float32, shape)
        for name, shape in zip(network.layout.names, network.layout.shapes)
    }).numpy()
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} does not fit ({error}): its run had no {group}, or '
        'had another --model or other actions.') from error


class Parts(NamedTuple):
  """The parts of a run."""
  world: worlds.World
  programs: programs_lib.Programs
  policy: optimizers.SharedParameters  # theta
  discriminator: optimizers.SharedParameters | None  # phi
  buffer: replay.ReplayBuffer | None  # B
  auxiliary_data: Any  # For reward prediction, the buffer; None without it.
  policy_workers: tuple[workers.PolicyWorker, ...]  # One for each thread.
  discriminator_worker: workers.DiscriminatorWorker | None


class Builder:
  """Makes the parts of a run as the paper has them.

  `agile_tf.recipe.builder` overrides what our recipe changes.
  """
  initialization = modules.Initialization()
  programs = programs_lib.Programs
  parameters = optimizers.SharedParameters
  discriminator_actors = 1  # Episodes that the discriminator's worker plays.
  head_start = 0  # Its iterations before the first policy step.
  carrying = 0.0  # See `make_goal_examples`.

  def __init__(self, config: config_lib.Config):
    self.config = config

  def saved(self) -> dict[str, Any]:
    """Returns all settings by name, as a run saves them."""
    return dataclasses.asdict(self.config) | self._dataset

  @functools.cached_property
  def world(self) -> worlds.World:
    return make_world(self.config)

  @functools.cached_property
  def _dataset(self) -> dict[str, str]:
    """What identifies the contents of the file of goal examples."""
    path = self.config.dataset or self.world.goal_examples
    if self.needs_goal_examples() and os.path.isfile(path):
      with contextlib.suppress(OSError):  # Loading it says so.
        with open(path, 'rb') as file:
          digest = hashlib.file_digest(file, 'sha256').hexdigest()
        return {config_lib.DATASET: digest}
    return {}

  def needs_goal_examples(self) -> bool:
    return self.config.trains_discriminator

  def num_candidates(self) -> int:
    """Returns the most pairs that one update of D draws from B."""
    return workers.num_candidates(
        self.config.batch_size // 2, self.config.anticipated_negative_rate)

  def negatives(self, buffer: replay.ReplayBuffer, goals: worlds.GoalExamples
               ) -> workers.AnticipatedNegatives:
    """Returns what draws the negatives of the discriminator."""
    return workers.AnticipatedNegatives(
        buffer, self.config.batch_size // 2,
        self.config.anticipated_negative_rate)

  def auxiliary_data(self, goals: worlds.GoalExamples | None) -> Any:
    """Returns the buffer of reward prediction, if there is one."""
    if not self.config.reward_prediction:
      return None
    return _buffer(self.config.reward_prediction_replay_size, self.world)

  def auxiliary(self, buffer: Any, rng: np.random.Generator,
                goals: worlds.GoalExamples | None) -> replay.RewardPrediction:
    """Returns what draws the samples of reward prediction."""
    return replay.RewardPrediction(
        buffer, self.config.reward_prediction_batch_size, rng)

  def loss(self) -> programs_lib.Loss:
    """Returns the weights of the policy's loss."""
    return programs_lib.Loss(
        self.config.discount, self.config.td_lambda, self.config.baseline_cost,
        self.config.reward_prediction_cost)

  def entropy_weight(self) -> Callable[[int], float]:
    """Returns alpha by the policy steps; in the paper it does not change."""
    return lambda step: self.config.entropy_weight

  def learning_rate(self) -> Callable[[int], float]:
    """Returns the policy's learning rate, likewise constant in the paper."""
    return lambda step: self.config.policy_learning_rate

  def after_head_start(self, parts: Parts) -> None:
    """Is called at the end of the discriminator's head start."""

  def make(self, frozen: checkpoints.Checkpoint | None = None,
           initial: checkpoints.Checkpoint | None = None) -> Parts:
    """Returns the parts of a run at step 0.

    Its discriminator is that of the checkpoint `frozen`, if there is one, and
    its policy begins as that of `initial`.
    """
    config, world = self.config, self.world
    self._check(world)
    networks_seed, policy_seed, discriminator_seed, prediction_seed = (
        np.random.SeedSequence(config.seed).spawn(4))
    pi, d = networks.make(
        config.model, world.grammar, world.image_shape, world.num_actions,
        self.initialization)
    theta, phi = (
        network.initial(int(seed)) for network, seed in zip(
            (pi, d), networks_seed.generate_state(2, np.uint32)))
    if initial is not None:
      theta = saved_parameters(initial, world, pi, 'policy')
    if frozen is not None:
      phi = saved_parameters(frozen, world, d, 'discriminator')
    policy = self.parameters(pi.layout, theta, optimizers.Updates(
        config.policy_decay, config.policy_epsilon,
        config.policy_gradient_norm))
    discriminator = None
    if config.reward != 'environment':
      discriminator = self.parameters(d.layout, phi, optimizers.Updates(
          config.discriminator_decay, config.discriminator_epsilon,
          config.discriminator_gradient_norm, config.max_column_norm or None))
    programs = self.programs(
        pi, d, world, self.loss(), config.reward_form, config.reward_scale)
    goals = buffer = discriminator_worker = None
    if self.needs_goal_examples():
      goals = make_goal_examples(config, world, self.carrying)
    if config.trains_discriminator:
      assert discriminator is not None
      assert goals is not None
      buffer = _buffer(config.replay_size, world)
      actor_seed, draw_seed = discriminator_seed.spawn(2)
      count = self.discriminator_actors
      discriminator_worker = workers.DiscriminatorWorker(
          self._actor(
              programs, actor_seed.spawn(count) if count > 1 else [actor_seed],
              range(count)),
          discriminator, programs, goals, buffer,
          self.negatives(buffer, goals), config.batch_size,
          config.discriminator_learning_rate, np.random.default_rng(draw_seed))
    auxiliary_data = self.auxiliary_data(goals)
    width = config.policy_workers // config.policy_threads
    seeds = policy_seed.spawn(config.policy_workers)
    policy_workers = []
    for thread, draw_seed in enumerate(
        prediction_seed.spawn(config.policy_threads)):
      numbers = range(thread * width, (thread + 1) * width)
      actor = self._actor(programs, [seeds[w] for w in numbers], numbers)
      policy_workers.append(workers.PolicyWorker(
          actor, policy, programs,
          None if auxiliary_data is None else self.auxiliary(
              auxiliary_data, np.random.default_rng(draw_seed), goals),
          buffer if config.all_workers_write else None,
          self.entropy_weight(), self.learning_rate()))
    return Parts(world, programs, policy, discriminator, buffer, auxiliary_data,
                 tuple(policy_workers), discriminator_worker)

  def _actor(self, programs: programs_lib.Programs,
             seeds: Sequence[np.random.SeedSequence], numbers: range
            ) -> actors.Actor:
    """Returns what plays the episodes of the workers of these numbers."""
    pairs = [seed.spawn(2) for seed in seeds]
    environments = [
        programs.world.make_environment(int(seed.generate_state(1)[0]))
        for seed, _ in pairs]
    # Half of them begin a rollout later, so that not all of them are in the
    # same part of their episodes.
    return actors.kind(programs.world)(
        programs, environments, [np.random.default_rng(s) for _, s in pairs],
        self.config.rollout_length, [number % 2 == 1 for number in numbers])

  def _check(self, world: worlds.World) -> None:
    """Raises ConfigError if the settings do not fit world or machine."""
    config, drawn = self.config, self.num_candidates()
    if config.reward == 'environment' and not world.has_ground_truth:
      raise config_lib.ConfigError(
          '--reward=environment needs a ground truth, and this world has none; '
          'use --reward=discriminator.')
    if config.trains_discriminator and drawn > config.replay_size:
      raise config_lib.ConfigError(
          f'--replay_size={config.replay_size} is less than one draw from B '
          f'({drawn} pairs); make it or --anticipated_negative_rate larger.')
    resources.check(
        config, world, drawn, self.needs_goal_examples(), machine.memory())


def _buffer(capacity: int, world: worlds.World) -> replay.ReplayBuffer:
  return replay.ReplayBuffer(
      capacity, len(world.grammar.slots), world.observation_shape)
