"""A run: its networks, buffers and workers, and what one iteration does."""

from collections.abc import Callable
import dataclasses
import threading
from typing import Any, NamedTuple

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import gradients as gradients_lib
from agile_tf.agent import optimizers
from agile_tf.agent import replay
from agile_tf.agent import rewards as rewards_lib
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import health
from agile_tf.training import machine
from agile_tf.training import metrics
from agile_tf.training import resources
from agile_tf.training import schedule as schedule_lib
from gridlu import tasks


def _mean_rollout(config: config_lib.Config) -> float:
  """Returns how many steps a rollout has; the last one of an episode is cut."""
  if config.world not in tasks.TASKS:
    return config.rollout_length
  return config.episode_length / -(
      -config.episode_length // config.rollout_length)


def require_finite(checkpoint: checkpoints.Checkpoint) -> None:
  """Checks that a checkpoint is worth having.

  Raises:
    TrainingError: if a parameter or a slot is not finite.
  """
  for name, value in checkpoint.arrays.items():
    if value.dtype.kind == 'f' and not np.isfinite(value).all():
      raise TrainingError(
          f'At step {checkpoint.values["steps"]} {name} is not finite; this '
          'was not saved, and the last checkpoint is as it was.')


class TrainingError(ArithmeticError):
  """A run that cannot go on."""


class Episode(NamedTuple):
  """A finished training episode."""
  instruction: str
  observations: np.ndarray  # uint8 [n + 1, ...]
  rewarded: np.ndarray  # bool [n], what was taken for a goal state


class Trainer:
  """The networks, buffers and workers of a run.

  Attributes:
    world: What the run trains on.
    policy: theta, shared.
    discriminator: phi, shared; None if rewards come from the environment.
    schedule: The run's clock.
  """

  def __init__(self, config: config_lib.Config,
               frozen: checkpoints.Checkpoint | None = None,
               initial: checkpoints.Checkpoint | None = None):
    """Builds a run at step 0.

    Args:
      config: The run's settings.
      frozen: Of the run that the discriminator of --reward=frozen is from.
      initial: Of the run that --initial_policy is from.

    Raises:
      ConfigError: if the settings do not fit the world or the machine.
      CheckpointError: if `frozen` has no discriminator for this world, or
        `initial` no policy.
    """
    self._config = config
    self.world = world = building.make_world(config)
    resources.check(config, world, machine.memory())
    if config.reward == 'environment' and not world.has_ground_truth:
      raise config_lib.ConfigError(
          '--reward=environment needs a ground truth, and this world has '
          'none; use --reward=discriminator.')
    if config.rollouts == 'compiled' and world.compiled is None:
      raise config_lib.ConfigError(
          '--rollouts=compiled needs a world that has its rules in '
          'TensorFlow; use --rollouts=environment.')
    self._compiles = world.compiled is not None and (
        config.rollouts != 'environment')
    seeds = np.random.SeedSequence(config.seed).spawn(4)
    policy_seed, discriminator_seed = map(
        int, seeds[0].generate_state(2, np.uint32))
    self._policy_network, self._discriminator_network = building.make_networks(
        config.model, world)
    theta = self._policy_network.initial(policy_seed)
    if initial is not None:
      building.check_tokens(initial, world)
      theta = building.parameters(initial, self._policy_network, 'policy')
    self.policy = optimizers.SharedParameters(
        self._policy_network.layout, theta, building.policy_updates(config))
    self.discriminator = None
    if config.reward != 'environment':
      phi = self._discriminator_network.initial(discriminator_seed)
      if frozen is not None:
        building.check_tokens(frozen, world)
        phi = building.parameters(
            frozen, self._discriminator_network, 'discriminator')
      self.discriminator = optimizers.SharedParameters(
          self._discriminator_network.layout, phi,
          optimizers.RMSProp(
              config.discriminator_learning_rate, config.discriminator_decay,
              config.discriminator_epsilon, config.discriminator_gradient_norm,
              config.max_column_norm or None))
    ratio = 0
    if config.trains_discriminator:
      ratio = config.steps_per_discriminator_update
      if not ratio and config.policy_threads == 1:
        # Nobody runs free in lockstep: all workers iterate equally often.
        ratio = round(config.policy_workers * _mean_rollout(config))
    self.schedule = schedule_lib.Schedule(config.steps, ratio)
    self._tally = metrics.Tally()
    self._totals = {'episodes': 0, 'discriminator_steps': 0,
                    'discriminator_updates': 0}
    self._totals_lock = threading.Lock()
    self._frames: list[np.ndarray] = []
    self._rewards: list[np.ndarray] = []
    self._episode: Episode | None = None
    self._build_workers(seeds[1], seeds[2], seeds[3])

  def _build_workers(self, worker_seeds, discriminator_seeds,
                     prediction_seed):
    config, world = self._config, self.world
    width = config.policy_workers // config.policy_threads
    if self._compiles:
      self._player = rollouts.play_program(self._policy_network, world)
    else:
      self._player = rollouts.act_program(self._policy_network, world)
    # B, and what only AGILE has.
    self.buffer = None
    self.discriminator_worker = None
    if config.trains_discriminator:
      assert self.discriminator is not None
      self.buffer = replay.ReplayBuffer(
          config.replay_size, len(world.grammar.slots),
          world.observation_shape)
      actor_seeds, draw_seed = discriminator_seeds.spawn(2)
      self.discriminator_worker = workers.DiscriminatorWorker(
          self._actor([actor_seeds], [False]), self.policy,
          self.discriminator,
          gradients_lib.discriminator_gradients_program(
              self._discriminator_network, world),
          building.make_goal_examples(config, world), self.buffer,
          config.batch_size, config.anticipated_negative_rate,
          np.random.default_rng(draw_seed))
    self._predictions = None
    if config.reward_prediction:
      self._predictions = replay.ReplayBuffer(
          config.reward_prediction_replay_size, len(world.grammar.slots),
          world.observation_shape)
    reward = self._reward()
    gradients = gradients_lib.policy_gradients_program(
        self._policy_network, world, building.policy_loss(config))
    self.policy_workers = []
    prediction_seeds = prediction_seed.spawn(config.policy_threads)
    seeds = worker_seeds.spawn(config.policy_workers)
    for thread in range(config.policy_threads):
      rows = range(thread * width, (thread + 1) * width)
      predictions = None
      if self._predictions is not None:
        predictions = workers.RewardPrediction(
            self._predictions, config.reward_prediction_batch_size,
            np.random.default_rng(prediction_seeds[thread]))
      self.policy_workers.append(workers.PolicyWorker(
          # Half of the workers begin a rollout later: all would be in step.
          self._actor([seeds[w] for w in rows], [w % 2 == 1 for w in rows]),
          self.policy, reward, gradients, predictions,
          self.buffer if config.all_workers_write else None))

  def _actor(self, seeds, delayed) -> rollouts.Actor:
    pairs = [seed.spawn(2) for seed in seeds]
    environments = [
        self.world.make_environment(int(seed.generate_state(1)[0]))
        for seed, _ in pairs]
    rngs = [np.random.default_rng(seed) for _, seed in pairs]
    actor = (
        rollouts.CompiledActor if self._compiles
        else rollouts.EnvironmentActor)
    return actor(self.world, self._player, environments, rngs,
                 self._config.rollout_length, delayed)

  def _reward(self) -> Callable[[rollouts.Rollout], workers.Reward]:
    config = self._config
    if self.discriminator is None:
      return lambda rollout: workers.Reward(
          rewards_lib.ground_truth(rollout.true_rewards, config.reward_scale),
          rollout.true_rewards > 0)
    return workers.modelled_reward(
        self.discriminator, gradients_lib.modelled_rewards_program(
            self._discriminator_network, self.world, config.reward_form,
            config.reward_scale))

  def iterate_policy(self, worker: workers.PolicyWorker) -> int:
    """Iterates a policy worker, keeps the metrics, returns the steps made.

    Raises:
      TrainingError: if a loss or a gradient is not finite.
    """
    try:
      played = worker.iterate()
    except health.NumericsError as error:
      first = self.policy_workers.index(worker) * (
          self._config.policy_workers // self._config.policy_threads)
      raise self._broken(
          error, f'policy worker {first + error.row}') from error
    rollout = played.rollout
    if not rollout.steps:
      return 0
    assert played.rewarded is not None
    truth = rollouts.truth(self.world, rollout)
    self._tally.add(played.metrics, len(rollout.active))
    self._tally.add(
        self._judge(rollout, played.rewarded, truth), rollout.steps)
    if truth is not None and rollout.ended.any():
      successes = rollout.successes(truth)
      self._tally.add(
          {'success_rate': float(np.mean(successes))}, len(successes))
    with self._totals_lock:
      self._totals['episodes'] += int(rollout.ended.sum())
    if worker is self.policy_workers[0]:
      self._follow(rollout, played.rewarded)
    return rollout.steps

  def _judge(self, rollout: rollouts.Rollout, rewarded: np.ndarray,
             truth: np.ndarray | None) -> dict[str, float]:
    """Compares what was rewarded with the truth, where it is known."""
    decisions = rollout.judged(rewarded)
    values = {}
    if self.discriminator is not None:
      values['modelled_reward'] = float(np.mean(decisions))
    if truth is not None:
      truth = rollout.judged(truth)
      values['true_reward'] = float(np.mean(truth))
      if self.discriminator is not None:
        values.update(metrics.decisions(decisions, truth))
    return values

  def _follow(self, rollout: rollouts.Rollout, rewarded: np.ndarray) -> None:
    """Keeps the episode of the first worker of all, for a picture."""
    steps = int(rollout.mask[:, 0].sum())
    first = 1 if self._frames else 0
    self._frames.append(rollout.observations[first:steps + 1, 0])
    self._rewards.append(rewarded[:steps, 0])
    if rollout.ended[0]:
      self._episode = Episode(
          rollout.instructions[0], np.concatenate(self._frames),
          np.concatenate(self._rewards))
      self._frames, self._rewards = [], []

  @property
  def discriminator_updates(self) -> int:
    """How often the discriminator has been updated."""
    return self._totals['discriminator_updates']

  def take_episode(self) -> Episode | None:
    """Returns a finished episode, if there is a new one."""
    episode, self._episode = self._episode, None
    return episode

  def iterate_discriminator(self) -> None:
    """Iterates the discriminator's worker and keeps the metrics.

    Raises:
      TrainingError: if the loss or the gradient is not finite.
    """
    assert self.discriminator_worker is not None
    try:
      played = self.discriminator_worker.iterate()
    except health.NumericsError as error:
      raise self._broken(error, "the discriminator's worker") from error
    self._tally.add(played.metrics)
    with self._totals_lock:
      self._totals['discriminator_steps'] += played.rollout.steps
      self._totals['discriminator_updates'] += bool(played.metrics)

  def _broken(self, error: health.NumericsError, worker: str) -> TrainingError:
    return TrainingError(
        f'{error.name} of {worker} is {error.value} at step '
        f'{self.schedule.steps}. The run has stopped, and its last checkpoint '
        'is from before; go on from there with other settings in another '
        '--run_dir (--initial_policy), such as a smaller learning rate.')

  def row(self) -> dict[str, Any]:
    """Returns the metrics since the last row."""
    values = {'steps': self.schedule.steps, **self._tally.take()}
    with self._totals_lock:
      values['episodes'] = self._totals['episodes']
      if self.discriminator_worker is not None:
        values.update(self._totals)
        values['steps_per_discriminator_update'] = (
            self.schedule.steps / max(1, self.schedule.iterations))
    return values

  def checkpoint(self) -> checkpoints.Checkpoint:
    """Returns everything that the run needs to go on.

    Nobody may be iterating meanwhile.
    """
    groups = {'policy': self.policy.state()}
    if self.discriminator is not None:
      groups['discriminator'] = self.discriminator.state()
    if self.buffer is not None:
      groups['buffer'] = self.buffer.state()
    if self._predictions is not None:
      groups['predictions'] = self._predictions.state()
    if self._frames:
      groups['follow'] = {
          'frames': np.concatenate(self._frames),
          'rewards': np.concatenate(self._rewards)}
    if self._episode is not None:
      groups['episode'] = {
          'frames': self._episode.observations,
          'rewards': self._episode.rewarded}
    return checkpoints.Checkpoint(checkpoints.pack(**groups), {
        'config': dataclasses.asdict(self._config),
        'episode': self._episode and self._episode.instruction,
        'steps': self.schedule.steps,
        'iterations': self.schedule.iterations,
        'tokens': list(self.world.grammar.tokens),
        'totals': dict(self._totals),
        'tally': self._tally.state(),
        'actors': [worker.actor.state() for worker in self._workers()],
        'generators': [rng.bit_generator.state for rng in self._generators()],
    })

  def load(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores what `checkpoint` returned, in a run of the same settings.

    Raises:
      DamagedError: if it is not what such a run writes.
      CheckpointError: if it is of another world or of other settings.
    """
    building.check_tokens(checkpoint, self.world)
    try:
      differences = config_lib.differences(
          config_lib.Config(**checkpoint.values['config']), self._config)
      if differences:
        raise checkpoints.CheckpointError(
            f'{checkpoint.path} is of a run with other settings:\n  ' +
            '\n  '.join(differences))
    except KeyError as error:
      raise checkpoints.DamagedError(
          f'{checkpoint.path} lacks {error}: it is damaged, or another '
          "version's.") from error
    except TypeError as error:  # Other settings than this version has.
      raise checkpoints.CheckpointError(
          f"{checkpoint.path} is another version's: {error}.") from error
    try:
      self._load(checkpoint.arrays, checkpoint.values)
    except (KeyError, ValueError) as error:
      raise checkpoints.DamagedError(
          f"{checkpoint.path} is damaged, or another version's "
          f'({type(error).__name__}: {error}).') from error

  def _load(self, arrays: dict[str, np.ndarray],
            values: dict[str, Any]) -> None:
    self.policy.load(checkpoints.unpack(arrays, 'policy'))
    if self.discriminator is not None:
      self.discriminator.load(checkpoints.unpack(arrays, 'discriminator'))
    if self.buffer is not None:
      self.buffer.load(checkpoints.unpack(arrays, 'buffer'))
    if self._predictions is not None:
      self._predictions.load(checkpoints.unpack(arrays, 'predictions'))
    self.schedule.steps = values['steps']
    self.schedule.iterations = values['iterations']
    self._totals.update(values['totals'])
    self._tally.load(values['tally'])
    for worker, state in zip(self._workers(), values['actors'], strict=True):
      worker.actor.load(state)
    for rng, state in zip(
        self._generators(), values['generators'], strict=True):
      rng.bit_generator.state = state
    follow = checkpoints.unpack(arrays, 'follow')
    if values['actors'][0][0]['environment'] is None:
      follow = {}  # A new episode begins.
    self._frames = [follow['frames']] if follow else []
    self._rewards = [follow['rewards']] if follow else []
    episode = checkpoints.unpack(arrays, 'episode')
    if episode:
      self._episode = Episode(
          values['episode'], episode['frames'], episode['rewards'])

  def _workers(self) -> list[Any]:
    lone = self.discriminator_worker
    return self.policy_workers + ([] if lone is None else [lone])

  def _generators(self) -> list[np.random.Generator]:
    holders: list[Any] = [worker.predictions for worker in self.policy_workers]
    holders.append(self.discriminator_worker)
    return [holder.rng for holder in holders if holder is not None]
