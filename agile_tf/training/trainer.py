"""A run: what one iteration of a worker does, its metrics and checkpoints."""

import dataclasses
from typing import Any

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import numerics
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import metrics
from agile_tf.training import recorder
from agile_tf.training import schedule as schedule_lib
from gridlu import program


class TrainingError(program.UserError):
  """A run that cannot go on, because a number in it is not finite."""


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


class Trainer:
  """A run's parts, what its workers' iterations count for, and its state.

  Attributes:
    world: What the run trains on.
    policy: theta, shared.
    discriminator: phi, shared; None if rewards come from the environment.
    policy_workers: One a thread.
    discriminator_worker: None if the run trains no discriminator.
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
    parts = building.make_parts(config, frozen, initial)
    self.world = parts.world
    self.policy = parts.policy
    self.discriminator = parts.discriminator
    self.buffer = parts.buffer
    self.policy_workers = parts.policy_workers
    self.discriminator_worker = parts.discriminator_worker
    self.schedule = schedule_lib.Schedule(
        config.steps, building.steps_per_discriminator_update(config))
    self._tally = metrics.Tally()
    self._totals = metrics.Totals(
        'episodes', 'discriminator_steps', 'discriminator_updates')
    self._recorder = recorder.Recorder(from_start=True)
    self._saveable = self._name_saveable(parts)

  def _name_saveable(self, parts: building.Parts
                    ) -> dict[str, checkpoints.Saveable]:
    """Returns every part whose state a checkpoint holds."""
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

  def iterate_policy(self, worker: workers.PolicyWorker) -> int:
    """Iterates a policy worker, keeps the metrics, returns the steps made.

    Raises:
      TrainingError: if a loss or a gradient is not finite.
    """
    try:
      iteration = worker.iterate()
    except numerics.NumericsError as error:
      first = self.policy_workers.index(worker) * (
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
    if truth is not None and rollout.ended.any():
      successes = rollout.successes(truth)
      self._tally.add(
          {'success_rate': float(np.mean(successes))}, len(successes))
    self._totals.add(episodes=int(rollout.ended.sum()))
    if worker is self.policy_workers[0]:
      self._recorder.add(rollout, iteration.decisions)
    return rollout.steps

  def _rewards(self, rollout: rollouts.Rollout, decisions: np.ndarray,
               truth: np.ndarray | None) -> dict[str, float]:
    """Compares the decisions with the truth, where it is known."""
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
    """How often the discriminator has been updated."""
    return self._totals.state()['discriminator_updates']

  def take_episode(self) -> recorder.Recording | None:
    """Returns a finished episode of the first worker, if there is a new one."""
    return self._recorder.take()

  def iterate_discriminator(self) -> None:
    """Iterates the discriminator's worker and keeps the metrics.

    Raises:
      TrainingError: if the loss or the gradient is not finite.
    """
    assert self.discriminator_worker is not None
    try:
      iteration = self.discriminator_worker.iterate()
    except numerics.NumericsError as error:
      raise self._broken(error, "the discriminator's worker") from error
    self._tally.add(iteration.metrics)
    self._totals.add(discriminator_steps=iteration.rollout.steps,
                     discriminator_updates=int(bool(iteration.metrics)))

  def _broken(self, error: numerics.NumericsError, worker: str
             ) -> TrainingError:
    return TrainingError(
        f'{error.name} of {worker} is {error.value} at step '
        f'{self.schedule.steps}. The run has stopped, and its last checkpoint '
        'is from before; go on from there with other settings in another '
        '--run_dir (--initial_policy), such as a smaller learning rate.')

  def row(self) -> dict[str, Any]:
    """Returns the metrics since the last row."""
    values = {'steps': self.schedule.steps, **self._tally.take()}
    totals = self._totals.state()
    values['episodes'] = totals['episodes']
    if self.discriminator_worker is not None:
      values.update(totals)
      values['steps_per_discriminator_update'] = (
          self.schedule.steps / max(1, self.schedule.iterations))
    return values

  def checkpoint(self) -> checkpoints.Checkpoint:
    """Returns everything that the run needs to go on.

    No worker may be iterating meanwhile.
    """
    parts = {**self._saveable, 'recorder': self._recorder}
    return checkpoints.gather(parts, {
        'config': dataclasses.asdict(self._config),
        'steps': self.schedule.steps,
        'iterations': self.schedule.iterations,
        'tokens': list(self.world.grammar.tokens)})

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
      checkpoints.restore(self._saveable, checkpoint)
      self.schedule.steps = checkpoint.values['steps']
      self.schedule.iterations = checkpoint.values['iterations']
      self._load_recorder(checkpoint)
    except (KeyError, IndexError, TypeError, ValueError) as error:
      raise checkpoints.DamagedError(
          f"{checkpoint.path} is damaged, or another version's "
          f'({type(error).__name__}: {error}).') from error

  def _load_recorder(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Goes on with the recording, which is for pictures alone."""
    first, *_ = checkpoint.values['actors'][0]
    # An environment that cannot be saved begins a new episode.
    self._recorder = recorder.Recorder(from_start=first['environment'] is None)
    state = checkpoints.group(checkpoint.arrays, 'recorder')
    if first['environment'] is not None and state:  # Version 0.1.0 had none.
      self._recorder.load(state)
