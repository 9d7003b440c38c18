"""Actors: they play the episodes of W workers, one rollout at a time.

`CompiledActor` plays whole rollouts in one compiled program, and needs a world
with its rules in TensorFlow. `EnvironmentActor` steps any dm_env environment.
Both draw noise from the workers' own generators, so that with the same seeds
they play the same episodes.
"""

from collections.abc import Sequence
import json
from typing import Any

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import programs as programs_lib
from agile_tf.agent import rollouts
from agile_tf.agent import worlds


def noise(rngs: Sequence[np.random.Generator], length: int,
          num_actions: int, greedy: bool) -> np.ndarray:
  """Draws Gumbel noise: argmax(logits + noise) is a sample of the policy.

  Returns:
    float32 [T, W, actions], for each worker from its own generator; zeros if
    `greedy`, which takes the likeliest action.
  """
  if greedy:
    return np.zeros([length, len(rngs), num_actions], np.float32)
  return np.stack(
      [rng.gumbel(size=[length, num_actions]).astype(np.float32)
       for rng in rngs], axis=1)


class _Actor:
  """What both actors have: W workers, and how their episodes begin."""

  def __init__(self, programs: programs_lib.Programs,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Prepares W workers.

    Args:
      programs: The policy's programs.
      environments: One for each worker.
      rngs: One for each worker, for sampling actions.
      rollout_length: T.
      delayed: For each worker, whether it sits out the first rollout. Delaying
        half of them mixes first and second halves of episodes in each batch.
      greedy: Whether to take the likeliest action instead of sampling.
    """
    self._programs = programs
    self._world = programs.world
    self.environments = list(environments)
    self.rngs = list(rngs)
    self._length = rollout_length
    self._delayed = np.array(delayed)
    self._greedy = greedy
  def _worker_state(self, w: int) -> dict[str, Any]:
    """Returns this part of a worker's state."""
    return {
        'generator': self.rngs[w].bit_generator.state,
        'delayed': bool(self._delayed[w]),
    }

  def _load_worker(self, w: int, row: dict[str, Any]) -> None:
    """Restores what `_worker_state` returned."""
    self.rngs[w].bit_generator.state = row['generator']
    self._delayed[w] = row['delayed']


class CompiledActor(_Actor):
  """Plays whole rollouts inside one compiled program.

  The workers' environments only draw the training instances, with their own
  seeds. They are not stepped.
  """

  def __init__(self, programs: programs_lib.Programs,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    super().__init__(
        programs, environments, rngs, rollout_length, delayed, greedy)
    assert self._world.compiled is not None
    width = len(rngs)
    self._rules = self._world.compiled
    self._steps_left = np.zeros([width], np.int32)
    self._observations = np.zeros(
        [width, *self._world.observation_shape], np.uint8)
    self._instructions = [''] * width

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """See `rollouts.Actor`."""
    rules, length = self._rules, self._length
    for w in np.flatnonzero(self._steps_left == 0).tolist():
      timestep = self.environments[w].reset()
      self._instructions[w] = timestep.observation['instruction']
      self._observations[w] = self._world.observe(
          self.environments[w], timestep)
      self._steps_left[w] = rules.episode_length
    played = np.where(
        self._delayed, 0, np.minimum(length, self._steps_left))
    mask = np.arange(length)[:, None] < played
    codes = self._world.grammar.encode(self._instructions)
    *played_out, results = self._programs.play(
        theta, self._observations, codes,
        rules.truth_codes(self._instructions),
        noise(self.rngs, length, self._world.num_actions, self._greedy),
        mask)
    observations, actions, satisfied = (x.numpy() for x in played_out)
    self._observations = observations[-1].copy()
    self._steps_left = self._steps_left - played
    ended = self._steps_left == 0
    self._delayed = np.zeros_like(self._delayed)
    last = np.arange(length)[:, None] == played - 1
    return rollouts.Rollout(
        observations, codes, actions,
        true_rewards=np.where(mask, satisfied, False).astype(np.float32),
        discounts=np.where(
            last & ended, rules.final_discount, 1.0).astype(np.float32),
        mask=mask.astype(np.float32), ended=ended,
        instructions=tuple(self._instructions), results=results)

  def state(self) -> list[Any]:
    """See `rollouts.Actor`."""
    return [{
        **self._worker_state(w),
        'environment': environment.get_state(),  # type: ignore[attr-defined]
        'observation': self._observations[w].tolist(),
        'steps_left': int(self._steps_left[w]),
        'instruction': self._instructions[w],
    } for w, environment in enumerate(self.environments)]

  def load(self, state: list[Any]) -> None:
    """See `rollouts.Actor`."""
    for w, row in enumerate(state):
      self._load_worker(w, row)
      self.environments[w].set_state(  # type: ignore[attr-defined]
          row['environment'])
      self._observations[w] = row['observation']
      self._steps_left[w] = row['steps_left']
      self._instructions[w] = row['instruction']


class EnvironmentActor(_Actor):
  """Steps any dm_env environments, in Python."""

  def __init__(self, programs: programs_lib.Programs,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    super().__init__(
        programs, environments, rngs, rollout_length, delayed, greedy)
    self._timesteps: list[dm_env.TimeStep | None] = [None] * len(rngs)

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """See `rollouts.Actor`."""
    world = self._world
    length, width = self._length, len(self.environments)
    gumbel = noise(self.rngs, length, world.num_actions, self._greedy)
    first = [
        w for w, timestep in enumerate(self._timesteps) if timestep is None]
    timesteps = [
        self.environments[w].reset() if timestep is None or timestep.last()
        else timestep
        for w, timestep in enumerate(self._timesteps)]
    for w in first:
      _check_saveable(self.environments[w])
    instructions = tuple(
        str(timestep.observation['instruction']) for timestep in timesteps)
    try:
      codes = world.grammar.encode(instructions)
    except ValueError as error:
      raise worlds.WorldError(
          "The environment gave an instruction that the world's instructions "
          f'do not cover; add one of its form to them. {error}') from error
    observations = np.zeros(
        [length + 1, width, *world.observation_shape], np.uint8)
    observations[0] = self._observe(timesteps)
    actions = np.zeros([length, width], np.int32)
    rewards = np.zeros([length, width], np.float32)
    discounts = np.ones([length, width], np.float32)
    mask = np.zeros([length, width], np.float32)
    for t in range(length):
      actions[t] = self._programs.act(theta, observations[t], codes, gumbel[t])
      for w, environment in enumerate(self.environments):
        if timesteps[w].last() or self._delayed[w]:
          continue
        timesteps[w] = environment.step(actions[t, w])
        rewards[t, w] = timesteps[w].reward or 0.0
        discounts[t, w] = timesteps[w].discount
        mask[t, w] = 1
      observations[t + 1] = self._observe(timesteps)
    self._timesteps = list(timesteps)
    self._delayed = np.zeros_like(self._delayed)
    return rollouts.Rollout(
        observations, codes, actions, rewards, discounts, mask,
        np.array([timestep.last() for timestep in timesteps]),
        instructions)

  def _observe(self, timesteps: Sequence[dm_env.TimeStep]) -> np.ndarray:
    observations = []
    for environment, timestep in zip(self.environments, timesteps):
      observation = np.asarray(self._world.observe(environment, timestep))
      expected = self._world.observation_shape
      if observation.dtype != np.uint8 or observation.shape != expected:
        raise worlds.WorldError(
            f'The environment gave an image that is {observation.dtype} '
            f'{list(observation.shape)}: expected uint8 {list(expected)}, as '
            'its observation_spec() says.')
      observations.append(observation)
    return np.stack(observations)

  def state(self) -> list[Any]:
    """See `rollouts.Actor`.

    An environment without `get_state` begins a new episode after a resume.
    """
    rows = []
    for w, (environment, timestep) in enumerate(
        zip(self.environments, self._timesteps)):
      saved, in_episode = None, False
      # Before its first episode an environment may have no state.
      if timestep is not None and hasattr(environment, 'get_state'):
        saved, in_episode = environment.get_state(), not timestep.last()
      rows.append({
          **self._worker_state(w),
          'environment': saved,
          'in_episode': in_episode,
      })
    return rows

  def load(self, state: list[Any]) -> None:
    """See `rollouts.Actor`."""
    for w, row in enumerate(state):
      self._load_worker(w, row)
      self._timesteps[w] = None
      if row['environment'] is not None:
        timestep = self._restore(w, row['environment'])
        if row['in_episode']:
          self._timesteps[w] = timestep

  def _restore(self, w: int, state: Any) -> dm_env.TimeStep:
    """Restores a worker's environment; returns its current timestep.

    Raises:
      WorldError: if a user's environment does not take the state. GridLU's
        errors go on: its code is not edited, so the state is damaged.
    """
    environment: Any = self.environments[w]
    try:
      return environment.set_state(state)
    except Exception as error:
      if self._world.compiled is not None:
        raise
      raise worlds.WorldError(
          "The environment's set_state() does not take what its get_state() "
          f'returned when the run was saved ({type(error).__name__}: {error}). '
          'If the world has been changed since, change it back or start a new '
          'run in another --run_dir. The checkpoint is left as it is.'
      ) from error


def _check_saveable(environment: dm_env.Environment) -> None:
  """Raises WorldError if an environment's state cannot be saved and restored.

  An environment that has no `get_state` begins new episodes after a resume.
  """
  if not hasattr(environment, 'get_state'):
    return
  if not hasattr(environment, 'set_state'):
    raise worlds.WorldError(
        'The environment has get_state() but no set_state(): add it, or remove '
        'both.')
  try:
    json.dumps(environment.get_state())
  except (TypeError, ValueError) as error:
    raise worlds.WorldError(
        f"The environment's get_state() returns what is not JSON ({error}): "
        'expected dicts, lists, strings, numbers of Python, booleans and None.'
        ) from error


def make(programs: programs_lib.Programs,
         environments: Sequence[dm_env.Environment],
         rngs: Sequence[np.random.Generator], rollout_length: int,
         delayed: Sequence[bool], greedy: bool = False) -> rollouts.Actor:
  """Returns the fastest actor for a world; see `CompiledActor`."""
  kind = (EnvironmentActor if programs.world.compiled is None
          else CompiledActor)
  return kind(programs, environments, rngs, rollout_length, delayed, greedy)
