"""Builds the parts of a run from its configuration and wires them together."""

from collections.abc import Callable, Sequence
import re
from typing import NamedTuple

from absl import logging
import dm_env
import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import functional
from agile_tf.agent import gradients as gradients_lib
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import replay
from agile_tf.agent import rewards
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.training import checkpoints
from agile_tf.training import curriculum
from agile_tf.training import machine
from agile_tf.training import resources
from gridlu import environment as environment_lib
from gridlu import goal_dataset
from gridlu import language
from gridlu import near_goals
from gridlu import splits
from gridlu import tasks
from gridlu import world as board


def make_world(config: config_lib.Config, held_out: bool = False,
               only: str = '', flag: str = 'instructions',
               draw: environment_lib.Draw | None = None) -> worlds.World:
  """Returns the world of a run.

  Args:
    config: The run's settings.
    held_out: Whether episodes have the held-out instructions instead of those
      that the run trains on.
    only: A regular expression. Instructions without a match are left out.
    flag: The flag that has this expression, for errors.
    draw: Draws the instances of a GridLU task; None for the task's own.

  Raises:
    WorldError: if there is no world of this name.
    ConfigError: if GridLU's settings are changed for another world, or leave
      no instruction.
  """
  if config.world not in tasks.TASKS:
    default = config_lib.Config()
    for name in config_lib.of_gridlu():
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
  known, instructions = _sides(config, held_out)
  return worlds.gridlu_world(
      config.world, matching(only, instructions, flag),
      board.PHYSICS[config.physics],
      config.episode_length, config.truncate, config.noop, known, draw,
      config.solved_starts)


_Instructions = tuple[language.Instruction, ...]


def _sides(config: config_lib.Config, held_out: bool = False
          ) -> tuple[_Instructions, _Instructions]:
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


def matching(pattern: str, instructions: tuple[language.Instruction, ...],
             flag: str = 'instructions') -> tuple[language.Instruction, ...]:
  """Returns the instructions whose text contains a match of a pattern.

  Args:
    pattern: A regular expression.
    instructions: The instructions to choose from.
    flag: The flag that has the pattern, for errors.

  Raises:
    ConfigError: if the pattern is not a regular expression, or none matches.
  """
  try:
    found = re.compile(pattern).search
  except (re.error, OverflowError, RecursionError) as error:
    raise config_lib.ConfigError(
        f'--{flag}={pattern} is not a regular expression: {error}.'
        ) from error
  matching = tuple(
      instruction for instruction in instructions if found(str(instruction)))
  if not matching:
    raise config_lib.ConfigError(
        f'--{flag}={pattern} matches none of the {len(instructions)} '
        f'instructions. One of them is {instructions[0]}.')
  return matching


def make_goal_examples(config: config_lib.Config, world: worlds.World
                      ) -> worlds.GoalExamples:
  """Loads or generates the goal examples of a run.

  Raises:
    GoalDatasetError or WorldError: if they cannot be read, or are from another
      world.
  """
  if config.dataset:
    dataset = goal_dataset.load(config.dataset, world.observation_shape)
    if config.world in tasks.TASKS:
      dataset = _of_this_run(config, dataset)
      if dataset.states is not None:
        _check_goals(config, dataset)
  else:
    dataset = world.load_goal_examples(
        config.dataset_size, config.dataset_seed, config.dataset_carrying)
  try:
    return worlds.GoalExamples(dataset, world)
  except worlds.WorldError as error:
    source = f'--dataset={config.dataset}' if config.dataset else (
        f'--world={config.world}')
    raise worlds.WorldError(f'{source}: {error}') from error


def _of_this_run(config: config_lib.Config, dataset: goal_dataset.GoalDataset
                ) -> goal_dataset.GoalDataset:
  """Returns the goal examples whose instructions the run trains on."""
  _, instructions = _sides(config)
  texts = set(map(str, instructions))
  try:
    belongs = np.array([
        str(language.parse(text)) in texts for text in dataset.instructions])
  except ValueError as error:
    raise goal_dataset.GoalDatasetError(
        f'{config.dataset}: {error}') from error
  keep = np.flatnonzero(belongs[dataset.instruction])
  if not len(keep):
    raise goal_dataset.GoalDatasetError(
        f'{config.dataset} has no example of the instructions of this run '
        '(see --world, --instructions and --held_out).')
  if len(keep) < len(dataset):
    logging.warning(
        '%s: %d of %d examples are of instructions that --instructions or '
        '--held_out exclude, and are not used.',
        config.dataset, len(dataset) - len(keep), len(dataset))
  states, images = dataset.states, dataset.images
  used, index = np.unique(dataset.instruction[keep], return_inverse=True)
  return goal_dataset.GoalDataset(
      tuple(dataset.instructions[i] for i in used), index.astype(np.int32),
      None if states is None else states[keep],
      None if images is None else images[keep])


def _check_goals(config: config_lib.Config,
                 dataset: goal_dataset.GoalDataset) -> None:
  """Warns of goal examples that are wrong; with --strict_dataset raises."""
  count = goal_dataset.violations(dataset)
  if not count:
    return
  text = (f'{config.dataset}: {count} of {len(dataset)} goal states do not '
          'satisfy their instruction by the ground truth.')
  if config.strict_dataset:
    raise goal_dataset.GoalDatasetError(
        f'{text} Correct the file, or use it as it is without '
        '--strict_dataset.')
  logging.warning('%s', text)


def make_networks(config: config_lib.Config, world: worlds.World
                 ) -> tuple[functional.Network, functional.Network]:
  """Returns the policy network and the discriminator of a run."""
  policy = networks.policy(
      config.model, world.grammar, world.image_shape, world.num_actions,
      config.initialization)
  other = config.discriminator_model
  discriminator = networks.discriminator(
      config.model if other == 'same' else other, world.grammar,
      world.image_shape, config.initialization)
  return policy, discriminator


def check_tokens(checkpoint: checkpoints.Checkpoint,
                 world: worlds.World) -> None:
  """Checks that a checkpoint's networks know the tokens of a world.

  The parameters depend only on the tokens, not on their possible positions in
  an instruction.

  Raises:
    CheckpointError: if the tokens differ.
  """
  there, here = checkpoint.values.get('tokens'), list(world.grammar.tokens)
  if there != here:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} is from a world with the tokens {there}; this '
        f'world has {here}. Use a checkpoint from the same world.')


def parameters(checkpoint: checkpoints.Checkpoint,
               network: functional.Network, group: str) -> np.ndarray:
  """Returns the parameters of a network from a checkpoint.

  Args:
    checkpoint: The checkpoint of a run.
    network: The network that the parameters are for.
    group: 'policy' or 'discriminator'.

  Returns:
    float32 [P].

  Raises:
    CheckpointError: if the checkpoint does not have them.
  """
  arrays = checkpoints.group(checkpoint.arrays, group)
  missing = sorted(set(network.layout.names) - set(arrays))
  if missing:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} lacks the parameters {", ".join(missing)}: its '
        f'run had no {group}, or had another --model or '
        '--discriminator_model.')
  for name, shape in zip(network.layout.names, network.layout.shapes):
    if arrays[name].shape != shape or arrays[name].dtype != np.float32:
      raise checkpoints.CheckpointError(
          f'{name} of {checkpoint.path} is {arrays[name].dtype} '
          f'{list(arrays[name].shape)}; here it is float32 {list(shape)}: its '
          'run had other actions (see --noop).')
  return network.layout.join(arrays).numpy()


def policy_loss(config: config_lib.Config) -> gradients_lib.PolicyLoss:
  """Returns the settings of the policy's loss."""
  return gradients_lib.PolicyLoss(
      config.discount, config.td_lambda,
      config.baseline_cost,
      config.reward_prediction_cost if config.reward_prediction else 0.0,
      config.policy_update == 'averaged')


def policy_updates(config: config_lib.Config) -> optimizers.Updates:
  """Returns the settings of the policy's updates."""
  return optimizers.Updates(
      config.policy_learning_rate, config.policy_decay, config.policy_epsilon,
      config.policy_gradient_norm, optimizer=config.policy_optimizer,
      first_mean_square=config.first_mean_square)


def discriminator_updates(config: config_lib.Config) -> optimizers.Updates:
  """Returns the settings of the discriminator's updates."""
  return optimizers.Updates(
      config.discriminator_learning_rate, config.discriminator_decay,
      config.discriminator_epsilon, config.discriminator_gradient_norm,
      config.max_column_norm or None, config.discriminator_optimizer,
      config.first_mean_square)


def steps_per_discriminator_update(config: config_lib.Config) -> int:
  """Returns the policy steps for each iteration of the discriminator's worker.

  0 means that threads run free.
  """
  if not config.trains_discriminator:
    return 0
  if config.steps_per_discriminator_update or config.policy_threads > 1:
    return config.steps_per_discriminator_update
  # One thread cannot run free, so all its workers iterate equally often. This
  # needs the mean length of a rollout: the last one of a GridLU episode is
  # shorter where T does not divide the episode.
  length: float = config.rollout_length
  if config.world in tasks.TASKS:
    length = config.episode_length / -(-config.episode_length // length)
  return round(config.policy_workers * length)


class Parts(NamedTuple):
  """The parts of a run."""
  world: worlds.World
  policy: optimizers.SharedParameters  # theta
  discriminator: optimizers.SharedParameters | None  # phi
  buffer: replay.ReplayBuffer | None  # B
  predictions: replay.ReplayBuffer | None  # For reward prediction.
  policy_workers: tuple[workers.PolicyWorker, ...]  # One for each thread.
  discriminator_worker: workers.DiscriminatorWorker | None


def make_parts(config: config_lib.Config,
               frozen: checkpoints.Checkpoint | None = None,
               initial: checkpoints.Checkpoint | None = None) -> Parts:
  """Returns the parts of a run at step 0.

  Args:
    config: The run's settings.
    frozen: The checkpoint whose discriminator --reward=frozen uses.
    initial: The checkpoint whose policy --initial_policy uses.

  Raises:
    ConfigError: if the settings do not fit the world or the machine.
    CheckpointError: if `frozen` has no discriminator for this world, or
      `initial` no policy.
  """
  world = make_world(config)
  _check_fit(config, world)
  resources.check(config, world, machine.memory())
  networks_seed, policy_seed, discriminator_seed, prediction_seed = (
      np.random.SeedSequence(config.seed).spawn(4))
  policy_network, discriminator_network = make_networks(config, world)
  theta, phi = (
      network.initial(int(seed)) for network, seed in zip(
          (policy_network, discriminator_network),
          networks_seed.generate_state(2, np.uint32)))
  if initial is not None:
    check_tokens(initial, world)
    theta = parameters(initial, policy_network, 'policy')
  if frozen is not None:
    check_tokens(frozen, world)
    phi = parameters(frozen, discriminator_network, 'discriminator')
  policy = optimizers.SharedParameters(
      policy_network.layout, theta, policy_updates(config))
  discriminator = None
  if config.reward != 'environment':
    discriminator = optimizers.SharedParameters(
        discriminator_network.layout, phi, discriminator_updates(config))
  actor = actors.factory(
      policy_network, world, compiled=config.rollouts != 'environment')

  def make_actor(make_environment: Callable[[int], dm_env.Environment],
                 seeds: Sequence[np.random.SeedSequence],
                 delayed: Sequence[bool]) -> rollouts.Actor:
    pairs = [seed.spawn(2) for seed in seeds]
    environments = [
        make_environment(int(seed.generate_state(1)[0])) for seed, _ in pairs]
    rngs = [np.random.default_rng(seed) for _, seed in pairs]
    return actor(environments, rngs, config.rollout_length, delayed)

  def make_buffer(capacity: int) -> replay.ReplayBuffer:
    return replay.ReplayBuffer(
        capacity, len(world.grammar.slots), world.observation_shape)

  buffer = discriminator_worker = goal_examples = None
  if config.needs_goal_examples:
    goal_examples = make_goal_examples(config, world)
    if config.num_mismatched or config.reward_prediction_goals:
      goal_examples.require_several()
  if config.trains_discriminator:
    assert discriminator is not None
    assert goal_examples is not None
    buffer = make_buffer(config.replay_size)
    actor_seed, draw_seed = discriminator_seed.spawn(2)
    count = config.discriminator_actors
    actor_seeds = actor_seed.spawn(count) if count > 1 else [actor_seed]
    discriminator_worker = workers.DiscriminatorWorker(
        make_actor(world.make_environment, actor_seeds,
                   [i % 2 == 1 for i in range(count)]),
        policy, discriminator,
        gradients_lib.discriminator_gradients_program(
            discriminator_network, world),
        goal_examples, buffer, config.batch_size, config.num_candidates,
        _annealed(config, 'anticipated_negative_rate'),
        np.random.default_rng(draw_seed), config.num_mismatched)

  modelled = rewards.modelled_program(
      discriminator_network, world, config.reward_form, config.reward_scale)

  reward: workers.RewardFunction = rewards.GroundTruth(config.reward_scale)
  if discriminator is not None:
    reward = rewards.Modelled(discriminator, modelled)
  predictions = None
  if config.reward_prediction:
    predictions = make_buffer(config.reward_prediction_replay_size)
  gradients = gradients_lib.policy_gradients_program(
      policy_network, world, policy_loss(config))
  make_environment = _with_curriculum(config, world, goal_examples)
  width = config.policy_workers // config.policy_threads
  seeds = policy_seed.spawn(config.policy_workers)
  policy_workers = []
  for thread, draw_seed in enumerate(
      prediction_seed.spawn(config.policy_threads)):
    rows = range(thread * width, (thread + 1) * width)
    prediction = None
    if predictions is not None:
      prediction = workers.RewardPrediction(
          predictions, config.reward_prediction_batch_size,
          np.random.default_rng(draw_seed), goal_examples,
          config.reward_prediction_goals,
          config.reward_prediction_of == 'next_state',
          config.reward_prediction_balanced)
    policy_workers.append(workers.PolicyWorker(
        # Half of the workers begin a rollout later, so that not all of them
        # are in the same part of their episodes.
        make_actor(make_environment, [seeds[w] for w in rows],
                   [w % 2 == 1 for w in rows]),
        policy, reward, gradients,
        prediction, buffer if config.all_workers_write else None,
        _annealed(config, 'entropy_weight'),
        _annealed(config, 'policy_learning_rate'), config.repeated_share))
  return Parts(world, policy, discriminator, buffer, predictions,
               tuple(policy_workers), discriminator_worker)


def _annealed(config: config_lib.Config, name: str) -> workers.Annealed:
  """Returns a setting that may change with the steps, by its name."""
  return workers.Annealed(*(
      getattr(config, each) for each in (name, f'first_{name}', f'{name}_steps')
  ))


def _with_curriculum(config: config_lib.Config, world: worlds.World,
                     goal_examples: worlds.GoalExamples | None
                    ) -> Callable[[int], dm_env.Environment]:
  """Returns a function that makes the environments of the policy workers."""
  if not config.first_steps:
    return world.make_environment
  draw = None
  if config.first_distance:
    assert goal_examples is not None
    try:
      draw = near_goals.NearGoals(goal_examples.dataset, config.first_distance)
    except ValueError as error:
      raise _no_near_goals(config, error) from error
  first = make_world(
      config, only=config.first_instructions, flag='first_instructions',
      draw=draw)
  episodes = -(-config.first_steps // (
      config.policy_workers * config.episode_length))

  def make_environment(seed: int) -> dm_env.Environment:
    seeds = np.random.SeedSequence(seed).generate_state(3)
    try:
      beginning = first.make_environment(int(seeds[0]))
    except ValueError as error:  # No goal example has these instructions.
      raise _no_near_goals(config, error) from error
    return curriculum.Curriculum(
        beginning, world.make_environment(int(seeds[1])), episodes,
        int(seeds[2]))

  return make_environment


def _no_near_goals(config: config_lib.Config,
                   error: ValueError) -> config_lib.ConfigError:
  return config_lib.ConfigError(
      f'--first_distance={config.first_distance}: {error}')


def _check_fit(config: config_lib.Config, world: worlds.World) -> None:
  """Raises ConfigError if the settings need what the world lacks."""
  if config.reward == 'environment' and not world.has_ground_truth:
    raise config_lib.ConfigError(
        '--reward=environment needs a ground truth, and this world has none; '
        'use --reward=discriminator.')
  if config.rollouts == 'compiled' and world.compiled is None:
    raise config_lib.ConfigError(
        '--rollouts=compiled needs a world with its rules in TensorFlow; use '
        '--rollouts=environment.')
