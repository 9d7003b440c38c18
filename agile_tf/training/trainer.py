"""A run in memory: its workers' iterations, its metrics and its state.

`train` decides when each worker iterates, and `run` writes the files.
"""

from collections.abc import Sequence
import contextlib
import functools
import json
from typing import Any

from absl import logging
import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import diagnostics
from agile_tf.training import held_out_goals
from agile_tf.training import metrics
from agile_tf.training import progress
from agile_tf.training import recorder
from agile_tf.training import threads
from gridlu import program


class Trainer:
  """Makes the iterations of a run's workers; returns its metrics and state.

  Attributes, besides those that are explained in `building.Parts` and
  `building.Networks`:
    learner: Trains the discriminator; None if nothing does.
    schedule: The run's clock.
    devices: TensorFlow's names of the devices of policy threads.
    recorder: Has the last finished episode of the first of all policy workers.
  """

  def __init__(self, plan: building.Plan,
               frozen: checkpoints.Checkpoint | None = None,
               initial: checkpoints.Checkpoint | None = None,
               devices: Sequence[str] = ('',)):
    """Builds a run at step 0; see `building.build`."""
    self._plan = plan
    self._parts = parts = building.build(plan, frozen, initial)
    self.world = parts.world
    self.policy = parts.networks.policy
    self.discriminator = parts.networks.discriminator
    self.policy_workers = parts.policy_workers
    self.discriminator_worker = parts.discriminator_worker
    self.learner = (None if parts.discriminator_worker is None else
                    parts.discriminator_worker.learner)
    self.devices = tuple(devices)
    self._head_start = plan.variation.head_start
    self.schedule = threads.Schedule(
        plan.config.steps,
        plan.config.steps_per_discriminator_update
        if plan.config.trains_discriminator else 0,
        0 if self._head_start is None else self._head_start.iterations)
    self._tally = metrics.Tally(
        'episodes', 'discriminator_steps', 'discriminator_updates')
    self.recorder = recorder.Recorder()
    # The observations of the first of all policy workers, in its last rollout.
    self._seen: np.ndarray | None = None
    self._held_out_test = None if parts.data.held_out_goals is None else (
        held_out_goals.GoalTest(parts.data.held_out_goals))
    # The parts whose arrays a checkpoint has, by name.
    with_arrays = {
        'policy': self.policy, 'discriminator': self.discriminator,
        'buffer': None if self.learner is None else self.learner.buffer,
        'predictions': parts.data.auxiliary}  # Checkpoints keep this old name.
    self._with_arrays = {
        name: part for name, part in with_arrays.items() if part is not None}
    self._actors = [worker.actor for worker in parts.policy_workers]
    self._generators = [] if parts.data.auxiliary is None else [
        worker.rng for worker in parts.policy_workers]
    if parts.discriminator_worker is not None:
      self._actors.append(parts.discriminator_worker.actor)
      self._generators.append(parts.discriminator_worker.learner.rng)

  @property
  def crew(self) -> threads.Crew:
    """The workers that `train.loop` iterates."""
    return threads.Crew(
        self.snapshot,
        tuple(functools.partial(self.iterate_policy, i)
              for i in range(len(self.policy_workers))),
        self.iterate_discriminator if self.discriminator_worker else None,
        # The environments of a user's world may share something, and writers to
        # B share B.
        side_by_side=(self.world.compiled is not None and
                      not self._plan.config.all_workers_write),
        num_devices=len(self.devices))

  def close(self) -> None:
    if self.schedule.turns:  # A world that hangs could also hang in close().
      return
    for actor in self._actors:
      actor.close()

  def snapshot(self) -> workers.Snapshot:
    """Returns theta and phi as they are now, for an iteration."""
    return workers.Snapshot(self.policy.snapshot(), (
        None if self.discriminator is None else self.discriminator.snapshot()))

  def iterate_policy(self, thread: int, snapshot: workers.Snapshot) -> int:
    """Makes an iteration of a policy thread's workers; returns their steps."""
    device = self.devices[thread % len(self.devices)]
    try:
      with tf.device(device) if device else contextlib.nullcontext():
        iteration = self.policy_workers[thread].iterate(
            snapshot, self.schedule.steps)
    except workers.NumericsError as error:
      config = self._plan.config
      first = thread * (config.policy_workers // config.policy_threads)
      raise self._broken(error, (
          'the averaged update' if error.worker is None else
          f'policy worker {first + error.worker}')) from error
    rollout = iteration.rollout
    if not rollout.steps:
      return 0
    assert iteration.decisions is not None
    truth = rollout.truth
    self._tally.add(iteration.metrics, len(rollout.active))
    self._tally.add(
        self._reward_metrics(rollout, iteration.decisions, truth),
        rollout.steps)
    if truth is not None:
      successes = rollout.successes(truth)
      if successes.size:
        self._tally.add(
            {'success_rate': float(np.mean(successes))}, successes.size)
    self._tally.count(episodes=int(rollout.ended.sum()))
    if thread == 0:
      self._seen = rollout.observations[:, 0]
      self.recorder.add(rollout, iteration.decisions)
    return rollout.steps

  def _reward_metrics(
      self, rollout: rollouts.Rollout, decisions: np.ndarray,
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

  def iterate_discriminator(self, snapshot: workers.Snapshot) -> None:
    """Iterates the discriminator's worker and records its metrics."""
    assert self.discriminator_worker is not None
    try:
      iteration = self.discriminator_worker.iterate(
          snapshot, self.schedule.steps)
    except workers.NumericsError as error:
      raise self._broken(error, "the discriminator's worker") from error
    self._tally.add(iteration.metrics)
    # There are no metrics if B was too small for an update.
    self._tally.count(discriminator_steps=iteration.rollout.steps,
                      discriminator_updates=1 if iteration.metrics else 0)
    head_start = self._head_start
    # The last iteration of the head start is counted after this method has
    # returned. Until then no policy worker iterates.
    if (head_start is not None and
        self.schedule.iterations + 1 == head_start.iterations):
      head_start.then(self.policy, self.discriminator_worker.learner,
                      self._parts.data.auxiliary)

  def _broken(self, error: workers.NumericsError, worker: str
             ) -> program.UserError:
    return program.UserError(
        f'{error.name} of {worker} is {error.value} at step '
        f'{self.schedule.steps}. The run has stopped; its earlier checkpoints '
        'stay. Start a run with other settings, such as a smaller learning '
        'rate, in another --run_dir.')

  def row(self) -> dict[str, Any]:
    """Returns a row: means since the last row, and counts since the start."""
    values = {'steps': self.schedule.steps, **self._tally.take()}
    counts = self._tally.counts
    values['episodes'] = counts['episodes']
    for name, network in (('policy', self.policy),
                          ('discriminator', self.discriminator)):
      if network is not None and self._seen is not None:
        alive = diagnostics.filters_alive(
            network.layout.split(network.snapshot()),
            diagnostics.example_images(self.world, self._seen))
        if alive is not None:
          values[f'{name}_filters_alive'] = alive
    if self._held_out_test is not None:
      assert self.discriminator is not None
      values.update(self._held_out_test.accepted(
          self._parts.networks.discriminator_programs,
          self.discriminator.snapshot()))
    if self.discriminator_worker is not None:
      values.update(counts)
      # As in the setting of this name, "update" stands for an iteration, also
      # for one that made no update because B was too small.
      values['steps_per_discriminator_update'] = (
          self.schedule.steps / max(
              1, self.schedule.iterations_after_head_start))
    return values

  def exchange_test(self, test: diagnostics.ExchangeTest
                   ) -> dict[str, dict[str, Any]]:
    """Returns what a test says of the discriminator as it is now."""
    assert self.discriminator is not None
    return test.accepted(
        self._parts.networks.discriminator_programs,
        self.discriminator.snapshot())

  def checkpoint(self) -> checkpoints.Checkpoint:
    """Returns a copy of the run's state, while no worker is iterating."""
    arrays = {
        f'{name}:{key}': value
        for name, part in self._with_arrays.items()
        for key, value in part.state().items()}
    try:
      return checkpoints.Checkpoint(arrays, json.loads(json.dumps({
          'config': self._plan.settings,
          'steps': self.schedule.steps,
          'iterations': self.schedule.iterations,
          'tokens': list(self.world.grammar.tokens),
          'actors': [actor.state() for actor in self._actors],
          'generators': [rng.bit_generator.state for rng in self._generators],
          'tally': self._tally.state(),
          'totals': self._tally.counts})))
    except (TypeError, ValueError) as error:
      # A user's world may return a state that is not JSON.
      raise checkpoints.CheckpointError(
          f'The run cannot be saved: its state is not JSON ({error}).'
          ) from error

  def branch(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Takes over what another run had learned, at its step (--branch_from).

    Networks, optimiser states, replay buffers and counts are those of the
    checkpoint. Episodes and generators stay those of this run, which is at its
    start.

    Raises:
      CheckpointError: if the checkpoint does not fit this run.
    """
    building.check_world(checkpoint, self.world)
    values = checkpoint.values
    share = self._plan.config.held_out_goals
    saved = config_lib.complete(values['config'])['held_out_goals']
    if share and saved != share:
      raise checkpoints.CheckpointError(
          f'--held_out_goals={share} with --branch_from: the run of '
          f'{checkpoint.path} had {saved}, so its discriminator was trained on '
          'goal examples that this run would hold out. Use the same share, or '
          '0.')
    for name, part in self._with_arrays.items():
      try:
        part.load(checkpoint.group(name))
      except (KeyError, IndexError, TypeError, ValueError) as error:
        raise checkpoints.CheckpointError(
            f'--branch_from: {checkpoint.path} has no {name} that fits this '
            f'run ({error}). Expected the checkpoint of a whole run with the '
            'same networks, and with the same --replay_size and '
            '--reward_prediction.') from error
    try:
      self._tally.load({'sums': {}, 'weights': {}}, values['totals'])
      self.schedule.begin_at(values['steps'], values['iterations'])
    except (KeyError, TypeError, ValueError) as error:
      raise checkpoints.CheckpointError(
          f'--branch_from: {checkpoint.path} is not of a whole run '
          f'({type(error).__name__}: {error}).') from error

  def load(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores what `checkpoint` returned, in a run with the same settings.

    The number of policy threads may differ: see `config.differences`.

    Raises:
      CheckpointError: if it is from a run with other settings or other tokens,
        or has only the networks.
      DamagedError: if its contents are not what such a run writes.
    """
    building.check_world(checkpoint, self.world)
    values = checkpoint.values
    if values.get('networks_alone'):
      raise checkpoints.CheckpointError(
          f'{checkpoint.path} has the networks alone, so the run cannot be '
          'resumed. Start a run in another --run_dir; it can begin with these '
          'networks, see --initial_policy and --reward_model.')
    try:
      differences = config_lib.differences(
          values['config'], self._plan.settings, self._plan.defaults)
      if differences:
        raise checkpoints.CheckpointError(
            f'{checkpoint.path} is from a run with other settings:\n  ' +
            '\n  '.join(differences))
      for name, part in self._with_arrays.items():
        part.load(checkpoint.group(name))
      self._load_actors(values['actors'])
      self._load_generators(values['generators'])
      self._tally.load(values['tally'], values['totals'])
      self.schedule.steps = values['steps']
      self.schedule.iterations = values['iterations']
      self.recorder = recorder.Recorder(waits=True)
      self._log_threads(values['config'])
    except program.UserError:
      raise
    except (LookupError, TypeError, ValueError, OverflowError) as error:
      raise checkpoints.DamagedError(
          f'{checkpoint.path} is damaged or from another version '
          f'({type(error).__name__}: {error}).') from error

  def _load_actors(self, states: list[list[Any]]) -> None:
    """Restores the actors, though the saved run may have had other threads.

    Each thread had an actor, with the states of that thread's workers. All
    threads together had the same workers as now, in the same order: the policy
    workers, then the discriminator's.
    """
    of_workers = [worker for actor in states for worker in actor]
    counts = [len(actor.rngs) for actor in self._actors]
    if len(of_workers) != sum(counts):
      raise ValueError(
          f'it has {len(of_workers)} workers; expected {sum(counts)}')
    for actor, count in zip(self._actors, counts):
      actor.load(of_workers[:count])
      del of_workers[:count]

  def _load_generators(self, states: list[Any]) -> None:
    """Restores generators: one of each policy thread, then D's worker's.

    If the saved run had fewer policy threads, those that are new keep the
    generators that they begin with.
    """
    states, own = [*states], [*self._generators]
    if self.discriminator_worker is not None:
      own.pop().bit_generator.state = states.pop()
    # Policy threads have generators if there is an auxiliary loss.
    if bool(states) != bool(own):
      raise ValueError(f'it has {len(states)} generators of policy threads; '
                       f'expected {len(own)}')
    for rng, state in zip(own, states):
      rng.bit_generator.state = state

  def _log_threads(self, saved: dict[str, Any]) -> None:
    """Logs it if the saved settings have another number of policy threads."""
    count, config = saved['policy_threads'], self._plan.config
    if count != config.policy_threads:
      logging.info(
          'The run goes on with --policy_threads=%s; it had %s before. It '
          'keeps its %s, but with the same seed it would not be repeated bit '
          'for bit.', config.policy_threads, count,
          progress.counted(config.policy_workers, 'policy worker'))
