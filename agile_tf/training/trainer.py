"""A run: iterates its workers, and returns its metrics and checkpoints."""

from collections.abc import Sequence
import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import numerics
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import metrics
from agile_tf.training import recorder
from agile_tf.training import schedule as schedule_lib
from gridlu import program


class TrainingError(program.UserError):
  """A run that cannot continue, because a number in it is not finite."""


def require_finite(checkpoint: checkpoints.Checkpoint) -> None:
  """Checks that all numbers of a checkpoint are finite.

  Raises:
    TrainingError: if a parameter or an optimiser slot is not finite.
  """
  for name, value in checkpoint.arrays.items():
    if value.dtype.kind == 'f' and not np.isfinite(value).all():
      raise TrainingError(
          f'At step {checkpoint.values["steps"]} {name} is not finite. This '
          'state was not saved; the last checkpoint is from before.')


class Trainer:
  """The parts of a run: iterates its workers, and keeps metrics and state.

  Attributes:
    world: The world that the run trains on.
    policy: theta, shared by all threads.
    discriminator: phi, shared by all threads; None if rewards come from the
      environment.
    buffer: B; None if the run trains no discriminator.
    policy_workers: The policy workers, one for each thread.
    discriminator_worker: None if the run trains no discriminator.
    schedule: The run's clock.
    devices: The devices of policy threads.
  """

  def __init__(self, builder: building.Builder,
               frozen: checkpoints.Checkpoint | None = None,
               initial: checkpoints.Checkpoint | None = None,
               devices: Sequence[str] = ('',)):
    """Builds a run at step 0.

    Args:
      builder: Makes the parts from the run's settings.
      frozen: The checkpoint whose discriminator --reward=frozen uses.
      initial: The checkpoint whose policy --initial_policy uses.
      devices: TensorFlow's names of the devices that policy threads are dealt
        over; '' leaves the choice to TensorFlow.

    Raises:
      ConfigError: if the settings do not fit the world or the machine.
      CheckpointError: if `frozen` has no discriminator for this world, or
        `initial` no policy.
    """
    self._builder = builder
    self._config = config = builder.config
    self._parts = parts = builder.make(frozen, initial)
    self.world = parts.world
    self.policy = parts.policy
    self.discriminator = parts.discriminator
    self.buffer = parts.buffer
    self.policy_workers = parts.policy_workers
    self.devices = tuple(devices)
    self.discriminator_worker = parts.discriminator_worker
    self.schedule = schedule_lib.Schedule(
        config.steps, building.steps_per_discriminator_update(config),
        builder.head_start)
    self._tally = metrics.Tally()
    self._totals = metrics.Totals(
        'episodes', 'discriminator_steps', 'discriminator_updates')
    self._recorder = recorder.Recorder(from_start=True)
    self._saveable = self._name_saveable(parts)

  def _name_saveable(self, parts: building.Parts
                    ) -> dict[str, checkpoints.Saveable]:
    """Returns every part whose state a checkpoint contains, by name."""
    generators = [
        worker.predictions.rng for worker in parts.policy_workers
        if worker.predictions is not None]
    actors = [worker.actor for worker in parts.policy_workers]
    if parts.discriminator_worker is not None:
      actors.append(parts.discriminator_worker.actor)
      generators.append(parts.discriminator_worker.rng)
    named = {
        'policy': parts.policy,
        'discriminator': parts.discriminator,
        'buffer': parts.buffer,
        'predictions': parts.predictions,
        'actors': checkpoints.Each(actors),
        'generators': checkpoints.Each(
            [checkpoints.Generator(rng) for rng in generators]),
        'tally': self._tally,
        'totals': self._totals,
    }
    return {name: part for name, part in named.items() if part is not None}

  def iterate_policy(self, thread: int) -> int:
    """Iterates the policy worker of a thread and records its metrics.

    Returns:
      The policy steps made, by all rows of the worker.

    Raises:
      TrainingError: if a loss or a gradient is not finite.
    """
    device = self.devices[thread % len(self.devices)]
    try:
      with tf.device(device) if device else contextlib.nullcontext():
        iteration = self.policy_workers[thread].iterate(self.schedule.steps)
    except numerics.NumericsError as error:
      first = thread * (
          self._config.policy_workers // self._config.policy_threads)
      raise self._broken(
          error, f'policy worker {first + error.row}') from error
    rollout = iteration.rollout
    if not rollout.steps:
      return 0
    assert iteration.decisions is not None
    truth = self.world.truth(rollout)
    self._tally.add(iteration.metrics, len(rollout.active))
    self._tally.add(
        self._rewards(rollout, iteration.decisions, truth), rollout.steps)
    if truth is not None:
      assert iteration.counted is not None
      counted = rollout.successes(truth)[iteration.counted[rollout.ended]]
      if counted.size:
        self._tally.add({'success_rate': float(np.mean(counted))}, counted.size)
    self._totals.add(episodes=int(rollout.ended.sum()))
    if thread == 0:
      self._recorder.add(rollout, iteration.decisions)
    return rollout.steps

  def _rewards(self, rollout: rollouts.Rollout, decisions: np.ndarray,
               truth: np.ndarray | None) -> dict[str, float]:
    """Returns metrics of the decisions, and of the truth where it is known."""
    decisions = rollout.played(decisions)
    values = {}
    if self.discriminator is not None:
      values['modelled_reward'] = float(np.mean(decisions))
    if truth is not None:
      truth = rollout.played(truth)
      values['true_reward'] = float(np.mean(truth))
      if self.discriminator is not None:
        values.update(metrics.decision_errors(decisions, truth))
    return values

  @property
  def discriminator_updates(self) -> int:
    """The number of updates of the discriminator."""
    return self._totals.state()['discriminator_updates']

  def take_episode(self) -> recorder.Recording | None:
    """Returns the first worker's last finished episode; None if not new."""
    return self._recorder.take()

  def iterate_discriminator(self) -> None:
    """Iterates the discriminator's worker and records its metrics.

    Raises:
      TrainingError: if the loss or the gradient is not finite.
    """
    assert self.discriminator_worker is not None
    try:
      iteration = self.discriminator_worker.iterate(self.schedule.steps)
    except numerics.NumericsError as error:
      raise self._broken(error, "the discriminator's worker") from error
    self._tally.add(iteration.metrics)
    self._totals.add(discriminator_steps=iteration.rollout.steps,
                     discriminator_updates=int(bool(iteration.metrics)))
    if self.schedule.iterations_after_head_start == -1:
      # The last of the head start. No policy worker runs before its end.
      self._builder.after_head_start(self._parts)

  def _broken(self, error: numerics.NumericsError, worker: str
             ) -> TrainingError:
    return TrainingError(
        f'{error.name} of {worker} is {error.value} at step '
        f'{self.schedule.steps}. The run has stopped; its last checkpoint is '
        'from before. To continue with other settings, such as a smaller '
        'learning rate, start a run in another --run_dir with this one as its '
        '--initial_policy.')

  def row(self) -> dict[str, Any]:
    """Returns the metrics since the last row."""
    values = {'steps': self.schedule.steps, **self._tally.take()}
    totals = self._totals.state()
    values['episodes'] = totals['episodes']
    if self.discriminator_worker is not None:
      values.update(totals)
      values['steps_per_discriminator_update'] = (
          self.schedule.steps / max(
              1, self.schedule.iterations_after_head_start))
    return values

  def checkpoint(self) -> checkpoints.Checkpoint:
    """Returns everything that the run needs to resume.

    Call this only while no worker is iterating.
    """
    parts = {**self._saveable, 'recorder': self._recorder}
    return checkpoints.gather(parts, {
        'config': self._builder.saved(),
        'steps': self.schedule.steps,
        'iterations': self.schedule.iterations,
        'tokens': list(self.world.grammar.tokens)})

  def load(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores what `checkpoint` returned, in a run with the same settings.

    Raises:
      DamagedError: if its contents are not what such a run writes.
      CheckpointError: if it is from another world or from other settings, or
        has the networks alone.
      WorldError: if a user's environment does not take its saved state.
    """
    building.check_tokens(checkpoint, self.world)
    if checkpoint.values.get('networks_alone'):
      raise checkpoints.CheckpointError(
          f'{checkpoint.path} has the networks alone, so the run cannot be '
          'resumed. Start a run in another --run_dir; it can begin with these '
          'networks, see --initial_policy and --reward_model.')
    try:
      differences = config_lib.differences(
          self._builder.restored(checkpoint.values['config']),
          self._builder.saved())
      if differences:
        raise checkpoints.CheckpointError(
            f'{checkpoint.path} is from a run with other settings:\n  ' +
            '\n  '.join(differences))
    except KeyError as error:
      raise checkpoints.DamagedError(
          f'{checkpoint.path} lacks {error}: it is damaged or from another '
          'version.') from error
    except config_lib.ConfigError as error:
      raise checkpoints.CheckpointError(
          f'{checkpoint.path}: {error}') from error
    try:
      checkpoints.restore(self._saveable, checkpoint)
      self.schedule.steps = checkpoint.values['steps']
      self.schedule.iterations = checkpoint.values['iterations']
      self._load_recorder(checkpoint)
    except worlds.WorldError:
      raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
      raise checkpoints.DamagedError(
          f'{checkpoint.path} is damaged or from another version '
          f'({type(error).__name__}: {error}).') from error

  def _load_recorder(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores the recorder, whose recordings are only for pictures."""
    first, *_ = checkpoint.values['actors'][0]
    # An environment that cannot be saved begins a new episode.
    self._recorder = recorder.Recorder(from_start=first['environment'] is None)
    if first['environment'] is not None:
      self._recorder.load(checkpoints.group(checkpoint.arrays, 'recorder'))
