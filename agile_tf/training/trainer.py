"""A run: iterates its workers, and returns its metrics and checkpoints."""

from collections.abc import Callable, Sequence
import contextlib
import functools
import json
from typing import Any

import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import metrics
from agile_tf.training import recorder
from agile_tf.training import threads
from gridlu import program


class Trainer:
  """The parts of a run: iterates its workers, and keeps metrics and state.

  Attributes, besides those that are explained in `building.Parts`:
    schedule: The run's clock.
    devices: TensorFlow's names of the devices of policy threads.
    recorder: Has the first worker's last finished episode.
  """

  def __init__(self, builder: building.Builder,
               frozen: checkpoints.Checkpoint | None = None,
               initial: checkpoints.Checkpoint | None = None,
               devices: Sequence[str] = ('',)):
    """Builds a run at step 0; see `building.Builder.make`."""
    self._builder = builder
    self._parts = parts = builder.make(frozen, initial)
    self.world = parts.world
    self.policy = parts.policy
    self.discriminator = parts.discriminator
    self.buffer = parts.buffer
    self.policy_workers = parts.policy_workers
    self.discriminator_worker = parts.discriminator_worker
    self.devices = tuple(devices)
    self.schedule = threads.Schedule(
        builder.config.steps,
        builder.config.steps_per_discriminator_update
        if builder.config.trains_discriminator else 0, builder.head_start)
    self._tally = metrics.Tally(
        'episodes', 'discriminator_steps', 'discriminator_updates')
    self.recorder = recorder.Recorder()
    # What a checkpoint contains, besides the metrics.
    self._with_arrays = {name: part for name, part in (
        ('policy', parts.policy), ('discriminator', parts.discriminator),
        # Checkpoints keep the old name of the second.
        ('buffer', parts.buffer), ('predictions', parts.auxiliary_data)
        ) if part is not None}
    self._actors = [worker.actor for worker in parts.policy_workers]
    self._generators = [
        worker.auxiliary.rng for worker in parts.policy_workers
        if worker.auxiliary is not None]
    if parts.discriminator_worker is not None:
      self._actors.append(parts.discriminator_worker.actor)
      self._generators.append(parts.discriminator_worker.rng)

  def drive(self, tick: Callable[[], None]) -> None:
    """Iterates all workers until the run is over; see `threads.drive`."""
    # An own world's environments may share something, as all writers share B.
    together = (self.world.compiled is not None and
                not self._builder.config.all_workers_write)
    threads.drive(
        self.schedule, self.read,
        [functools.partial(self.iterate_policy, i)
         for i in range(len(self.policy_workers))],
        self.iterate_discriminator if self.discriminator_worker else None,
        tick, together, len(self.devices))

  def close(self) -> None:
    if self.schedule.turns:  # A world that hangs could also hang in close().
      return
    for actor in self._actors:
      actor.close()

  def read(self) -> workers.Parameters:
    """Returns what an iteration that begins now reads."""
    return workers.Parameters(self.policy.snapshot(), (
        None if self.discriminator is None else self.discriminator.snapshot()))

  def iterate_policy(self, thread: int, parameters: workers.Parameters) -> int:
    """Iterates the policy worker of a thread; returns the steps of all rows."""
    device = self.devices[thread % len(self.devices)]
    try:
      with tf.device(device) if device else contextlib.nullcontext():
        iteration = self.policy_workers[thread].iterate(
            parameters, self.schedule.steps)
    except workers.NumericsError as error:
      config = self._builder.config
      first = thread * (config.policy_workers // config.policy_threads)
      raise self._broken(error, (
          'the averaged update' if error.row is None else
          f'policy worker {first + error.row}')) from error
    rollout = iteration.rollout
    if not rollout.steps:
      return 0
    assert iteration.decisions is not None
    truth = self.world.truth(rollout)
    self._tally.add(iteration.metrics, len(rollout.active))
    self._tally.add(
        self._rewards(rollout, iteration.decisions, truth), rollout.steps)
    if truth is not None:
      successes = rollout.successes(truth)
      if successes.size:
        self._tally.add(
            {'success_rate': float(np.mean(successes))}, successes.size)
    self._tally.count(episodes=int(rollout.ended.sum()))
    if thread == 0:
      self.recorder.add(rollout, iteration.decisions)
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

  def iterate_discriminator(self, parameters: workers.Parameters) -> None:
    """Iterates the discriminator's worker and records its metrics."""
    assert self.discriminator_worker is not None
    try:
      iteration = self.discriminator_worker.iterate(
          parameters, self.schedule.steps)
    except workers.NumericsError as error:
      raise self._broken(error, "the discriminator's worker") from error
    self._tally.add(iteration.metrics)
    self._tally.count(discriminator_steps=iteration.rollout.steps,
                      discriminator_updates=int(bool(iteration.metrics)))
    if self.schedule.iterations_after_head_start == -1:
      # The last of the head start. No policy worker runs before its end.
      self._builder.after_head_start(self._parts)

  def _broken(self, error: workers.NumericsError, worker: str
             ) -> program.UserError:
    return program.UserError(
        f'{error.name} of {worker} is {error.value} at step '
        f'{self.schedule.steps}. The run has stopped; its checkpoints are from '
        'before. Start a run with other settings, such as a smaller learning '
        'rate, in another --run_dir.')

  def row(self) -> dict[str, Any]:
    """Returns the metrics since the last row."""
    values = {'steps': self.schedule.steps, **self._tally.take()}
    counts = self._tally.counts
    values['episodes'] = counts['episodes']
    if self.discriminator_worker is not None:
      values.update(counts)
      values['steps_per_discriminator_update'] = (
          self.schedule.steps / max(
              1, self.schedule.iterations_after_head_start))
    return values

  def checkpoint(self) -> checkpoints.Checkpoint:
    """Returns a copy of the run's state, while no worker is iterating."""
    arrays = {
        f'{name}:{key}': value
        for name, part in self._with_arrays.items()
        for key, value in part.state().items()}
    try:
      return checkpoints.Checkpoint(arrays, json.loads(json.dumps({
          'config': self._builder.saved(),
          'steps': self.schedule.steps,
          'iterations': self.schedule.iterations,
          'tokens': list(self.world.grammar.tokens),
          'actors': [actor.state() for actor in self._actors],
          'generators': [rng.bit_generator.state for rng in self._generators],
          'tally': self._tally.state(),
          'totals': self._tally.counts})))
    except (TypeError, ValueError) as error:  # Of an own world, after a step.
      raise checkpoints.CheckpointError(
          f'The run cannot be saved: its state is not JSON ({error}).'
          ) from error

  def load(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores what `checkpoint` returned, in a run with the same settings.

    Raises:
      CheckpointError: if it is from a run with other settings or other tokens,
        or has only the networks.
      DamagedError: if its contents are not what such a run writes.
    """
    building.check_tokens(checkpoint, self.world)
    values = checkpoint.values
    if values.get('networks_alone'):
      raise checkpoints.CheckpointError(
          f'{checkpoint.path} has the networks alone, so the run cannot be '
          'resumed. Start a run in another --run_dir; it can begin with these '
          'networks, see --initial_policy and --reward_model.')
    try:
      differences = config_lib.differences(
          values['config'], self._builder.saved())
      if differences:
        raise checkpoints.CheckpointError(
            f'{checkpoint.path} is from a run with other settings:\n  ' +
            '\n  '.join(differences))
      for name, part in self._with_arrays.items():
        part.load(checkpoint.group(name))
      for actor, state in zip(self._actors, values['actors'], strict=True):
        actor.load(state)
      for rng, state in zip(
          self._generators, values['generators'], strict=True):
        rng.bit_generator.state = state
      self._tally.load(values['tally'], values['totals'])
      self.schedule.steps = values['steps']
      self.schedule.iterations = values['iterations']
      self.recorder = recorder.Recorder(waits=True)
    except program.UserError:
      raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
      raise checkpoints.DamagedError(
          f'{checkpoint.path} is damaged or from another version '
          f'({type(error).__name__}: {error}).') from error
