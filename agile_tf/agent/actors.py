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


class Actor:
  """Plays the episodes of W workers; see `CompiledActor`."""

  def __init__(self, programs: programs_lib.Programs,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Takes an environment and a generator, for its actions, of each worker.

    Delayed workers sit out the first rollout. Delaying half of them mixes first
    and second halves of episodes in each batch. A greedy actor takes the
    likeliest action.
    """
    self.environments: list[Any] = list(environments)
    self.rngs = list(rngs)
    self._programs = programs
    self._world = programs.world
    self._length = rollout_length  # T
    self._delayed = np.array(delayed)
    self._greedy = greedy
    self._observations = np.zeros(
        [len(self.rngs), *self._world.observation_shape], np.uint8)
    self._prepare(len(self.rngs))

  def _prepare(self, width: int) -> None:
    raise NotImplementedError

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """Plays one rollout of each worker with these policy parameters."""
    raise NotImplementedError

  def close(self) -> None:
    for environment in self.environments:
      environment.close()

  def _noise(self) -> np.ndarray:
    """Draws Gumbel noise, float32 [T, W, actions]; zeros if greedy.

    argmax(logits + noise) is a sample of the policy.
    """
    length, num_actions = self._length, self._world.num_actions
    if self._greedy:
      return np.zeros([length, len(self.rngs), num_actions], np.float32)
    return np.stack(
        [rng.gumbel(size=[length, num_actions]).astype(np.float32)
         for rng in self.rngs], axis=1)

  def state(self) -> list[Any]:
    """Returns the workers' episodes and generators, as JSON represents them."""
    return [{
        'generator': rng.bit_generator.state,
        'delayed': bool(self._delayed[w]),
        **self._episode(w),
    } for w, rng in enumerate(self.rngs)]

  def load(self, state: list[Any]) -> None:
    """Restores what `state` returned."""
    for w, row in enumerate(state):
      self.rngs[w].bit_generator.state = row['generator']
      self._delayed[w] = row['delayed']
      self._load_episode(w, row)

  def _episode(self, w: int) -> dict[str, Any]:
    raise NotImplementedError

  def _load_episode(self, w: int, row: dict[str, Any]) -> None:
    raise NotImplementedError


class CompiledActor(Actor):
  """Plays whole rollouts inside one compiled program.

  The workers' environments only draw the training instances, with their own
  seeds. They are not stepped.
  """

  def _prepare(self, width: int) -> None:
    assert self._world.compiled is not None
    self._rules = self._world.compiled
    self._steps_left = np.zeros([width], np.int32)
    self._instructions = [''] * width

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    rules, length = self._rules, self._length
    for w in np.flatnonzero(self._steps_left == 0).tolist():
      timestep = self.environments[w].reset()
      self._instructions[w] = timestep.observation['instruction']
      self._observations[w] = rules.observe(self.environments[w], timestep)
      self._steps_left[w] = rules.episode_length
    played = np.where(
        self._delayed, 0, np.minimum(length, self._steps_left))
    mask = np.arange(length)[:, None] < played
    codes = rules.grammar.encode(self._instructions)
    *arrays, results = self._programs.play(
        theta, self._observations, codes,
        rules.truth_codes(self._instructions), self._noise(), mask)
    observations, actions, satisfied = (x.numpy() for x in arrays)
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

  def _episode(self, w: int) -> dict[str, Any]:
    return {
        'environment': self.environments[w].get_state(),
        'observation': self._observations[w].tolist(),
        'steps_left': int(self._steps_left[w]),
        'instruction': self._instructions[w],
    }

  def _load_episode(self, w: int, row: dict[str, Any]) -> None:
    self.environments[w].set_state(row['environment'])
    self._observations[w] = row['observation']
    self._steps_left[w] = row['steps_left']
    self._instructions[w] = row['instruction']


class EnvironmentActor(Actor):
  """Steps any dm_env environments, in Python, and checks what they give.

  An environment without `get_state` begins a new episode after a resume.
  """

  def _prepare(self, width: int) -> None:
    self._timesteps: list[dm_env.TimeStep | None] = [None] * width
    self._steps = [0] * width  # Of the workers' episodes.

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    length, width = self._length, len(self.environments)
    gumbel = self._noise()
    timesteps = [
        self._begin(w) if timestep is None or timestep.last() else timestep
        for w, timestep in enumerate(self._timesteps)]
    instructions = tuple(
        str(timestep.observation['instruction']) for timestep in timesteps)
    try:
      codes = self._world.grammar.encode(instructions)
    except ValueError as error:
      raise worlds.WorldError(
          "The environment gave an instruction that the world's instructions "
          f'do not cover; add one of its form to them. {error}') from error
    observations = np.zeros(
        [length + 1, width, *self._world.observation_shape], np.uint8)
    observations[0] = self._observations
    actions = np.zeros([length, width], np.int32)
    rewards, mask = np.zeros([2, length, width], np.float32)
    discounts = np.ones([length, width], np.float32)
    for t in range(length):
      playing = [w for w in range(width)
                 if not (timesteps[w].last() or self._delayed[w])]
      if not playing:
        observations[t + 1:] = self._observations
        break
      actions[t] = self._programs.act(theta, observations[t], codes, gumbel[t])
      for w in playing:
        timesteps[w] = self._step(w, actions[t, w], instructions[w])
        rewards[t, w] = timesteps[w].reward or 0.0
        discounts[t, w] = timesteps[w].discount
        mask[t, w] = 1
      observations[t + 1] = self._observations
    self._timesteps = list(timesteps)
    self._delayed = np.zeros_like(self._delayed)
    return rollouts.Rollout(
        observations, codes, actions, rewards, discounts, mask,
        np.array([timestep.last() for timestep in timesteps]),
        instructions)

  def _begin(self, w: int) -> dm_env.TimeStep:
    """Starts a worker's episode."""
    self._steps[w] = 0
    timestep = self.environments[w].reset()
    self._observations[w] = self._world.checked(
        self.environments[w], timestep, 'reset()')
    if self._timesteps[w] is None:
      self._check_saveable(self.environments[w])
    return timestep

  def _check_saveable(self, environment: Any) -> None:
    """Raises WorldError if a state is not restored as it was saved."""
    if not hasattr(environment, 'get_state'):
      return
    if not hasattr(environment, 'set_state'):
      raise worlds.WorldError(
          'The environment has get_state() but no set_state(): add it, or '
          'remove both.')
    try:
      saved = json.dumps(environment.get_state(), sort_keys=True)
      timestep = environment.set_state(json.loads(saved))
    except Exception as error:
      raise worlds.WorldError(
          "The environment's set_state() does not take what its get_state() "
          f'returned, as JSON ({type(error).__name__}: {error}): expected '
          'dicts with strings as keys, lists, strings, numbers of Python, '
          'booleans and None.') from error
    self._world.checked(environment, timestep, 'set_state()')
    if json.dumps(environment.get_state(), sort_keys=True) != saved:
      raise worlds.WorldError(
          "After set_state(), the environment's get_state() returns another "
          'state, so a resumed episode would differ: set_state() must restore '
          'all of it and draw no random number afterwards.')

  def _step(self, w: int, action: int, instruction: str) -> dm_env.TimeStep:
    """Takes a step of a worker's episode."""
    self._steps[w] += 1
    place = f'step(), at step {self._steps[w]} of an episode'
    timestep = self.environments[w].step(action)
    self._observations[w] = self._world.checked(
        self.environments[w], timestep, place, instruction)
    return timestep

  def _episode(self, w: int) -> dict[str, Any]:
    environment, timestep = self.environments[w], self._timesteps[w]
    # Before its first episode an environment may have no state.
    if timestep is None or not hasattr(environment, 'get_state'):
      return {'environment': None, 'in_episode': False}
    return {'environment': environment.get_state(),
            'in_episode': not timestep.last(), 'steps': self._steps[w]}

  def _load_episode(self, w: int, row: dict[str, Any]) -> None:
    self._timesteps[w] = None
    if row['environment'] is None:
      if not hasattr(self.environments[w], 'get_state'):
        # This one would draw the same episodes as after the run's start.
        self.environments[w].close()
        self.environments[w] = self._world.make_environment(
            int(self.rngs[w].integers(2**32)))
      return
    try:
      timestep = self.environments[w].set_state(row['environment'])
    except Exception as error:
      raise worlds.WorldError(
          "The environment's set_state() does not take what its get_state() "
          f'returned when the run was saved ({type(error).__name__}: {error}). '
          'If the world has been changed since, change it back or start a new '
          'run in another --run_dir. The checkpoint is left as it is.'
      ) from error
    if row['in_episode']:
      self._observations[w] = self._world.checked(
          self.environments[w], timestep, 'set_state()')
      self._timesteps[w] = timestep
      self._steps[w] = row['steps']


def kind(world: worlds.World) -> type[Actor]:
  """Returns the fastest kind of actor for a world."""
  return EnvironmentActor if world.compiled is None else CompiledActor
