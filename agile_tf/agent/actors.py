"""Actors: they play the episodes of W workers, one rollout at a time.

`CompiledActor` plays whole rollouts in one compiled program, and needs a world
with its rules in TensorFlow. `EnvironmentActor` steps any dm_env environment.
Both draw noise from the workers' own generators, so that with the same seeds
they play the same episodes.
"""

from collections.abc import Callable, Sequence
import functools
import json
from typing import Any

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import functional
from agile_tf.agent import rollouts
from agile_tf.agent import signatures
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


def act_program(policy: functional.Network, world: worlds.World
               ) -> signatures.Act:
  """Compiles one step of the policy."""
  @tf.function(autograph=False, jit_compile=True)
  def act(theta, observations, codes, gumbel):
    logits = policy(theta, world.images(observations), codes).logits
    return tf.argmax(logits + gumbel, axis=-1, output_type=tf.int32)

  return act


def play_program(policy: functional.Network, world: worlds.World
                ) -> signatures.Play:
  """Compiles a whole rollout.

  Raises:
    ValueError: if the world has no rules in TensorFlow.
  """
  rules = world.compiled
  if rules is None:
    raise ValueError('This world has no rules in TensorFlow to compile.')

  @tf.function(autograph=False, jit_compile=True)
  def play(theta, observations, codes, truth_codes, gumbel, mask):
    pi = policy.at(theta)

    def step(carry, inputs):
      state, *_ = carry
      gumbel_t, alive = inputs
      output, results = pi.record(world.images(state), codes)
      actions = tf.argmax(
          output.logits + gumbel_t, axis=-1, output_type=tf.int32)
      following = tf.where(
          alive[:, None], rules.step(state, actions), state)
      return following, actions, results

    # `step` reads only the state; the rest of the carry just needs its shapes.
    _, *shapes = step((observations,), (gumbel[0], mask[0]))
    start = observations, *tf.nest.map_structure(tf.zeros_like, shapes)
    states, actions, results = tf.scan(step, (gumbel, mask), start)
    satisfied = (
        tf.zeros(actions.shape, tf.bool) if rules.satisfied is None
        else rules.satisfied(truth_codes, states))
    return (tf.concat([observations[None], states], 0), actions, satisfied,
            tuple(results))

  return play


class _Actor:
  """What both actors have: W workers, and how their episodes begin."""

  def __init__(self, world: worlds.World,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool):
    """Takes what `CompiledActor` describes."""
    self._world = world
    self._environments = list(environments)
    self._rngs = list(rngs)
    self._length = rollout_length
    self._delayed = np.array(delayed)
    self._greedy = greedy
    # Whether the next episode repeats this one, and this one its last one.
    self._repeated = np.zeros([len(rngs)], bool)
    self._again = np.zeros([len(rngs)], bool)

  def repeat(self, workers: Sequence[int], probability: float) -> None:
    """See `rollouts.Actor`."""
    for w in workers:
      self._repeated[w] = self._rngs[w].random() < probability

  def _begin(self, w: int) -> dm_env.TimeStep:
    """Begins a worker's next episode."""
    environment: Any = self._environments[w]
    timestep = environment.repeat() if self._repeated[w] else (
        environment.reset())
    self._again[w], self._repeated[w] = self._repeated[w], False
    return timestep

  def _worker_state(self, w: int) -> dict[str, Any]:
    """Returns this part of a worker's state."""
    return {
        'generator': self._rngs[w].bit_generator.state,
        'delayed': bool(self._delayed[w]),
        'repeated': bool(self._repeated[w]),
        'again': bool(self._again[w]),
    }

  def _load_worker(self, w: int, row: dict[str, Any]) -> None:
    """Restores what `_worker_state` returned."""
    self._rngs[w].bit_generator.state = row['generator']
    self._delayed[w] = row['delayed']
    # Version 0.1.0 repeated no episodes.
    self._repeated[w] = row.get('repeated', False)
    self._again[w] = row.get('again', False)


class CompiledActor(_Actor):
  """Plays whole rollouts inside one compiled program.

  The workers' environments only draw the training instances, with their own
  seeds. They are not stepped.
  """

  def __init__(self, world: worlds.World,
               play: signatures.Play,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Prepares W workers.

    Args:
      world: The environments' world, with `compiled` rules.
      play: From `play_program`.
      environments: One for each worker.
      rngs: One for each worker, for sampling actions.
      rollout_length: T.
      delayed: For each worker, whether it sits out the first rollout. Delaying
        half of them mixes first and second halves of episodes in each batch.
      greedy: Whether to take the likeliest action instead of sampling.
    """
    super().__init__(
        world, environments, rngs, rollout_length, delayed, greedy)
    assert world.compiled is not None
    width = len(rngs)
    self._rules = world.compiled
    self._play = play
    self._steps_left = np.zeros([width], np.int32)
    self._observations = np.zeros([width, *world.observation_shape], np.uint8)
    self._instructions = [''] * width

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """See `rollouts.Actor`."""
    rules, length = self._rules, self._length
    for w in np.flatnonzero(self._steps_left == 0).tolist():
      timestep = self._begin(w)
      self._instructions[w] = timestep.observation['instruction']
      self._observations[w] = self._world.observe(
          self._environments[w], timestep)
      self._steps_left[w] = rules.episode_length
    played = np.where(
        self._delayed, 0, np.minimum(length, self._steps_left))
    mask = np.arange(length)[:, None] < played
    codes = self._world.grammar.encode(self._instructions)
    *played_out, results = self._play(
        theta, self._observations, codes,
        rules.truth_codes(self._instructions),
        noise(self._rngs, length, self._world.num_actions, self._greedy),
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
        mask=mask.astype(np.float32), ended=ended, again=self._again.copy(),
        instructions=tuple(self._instructions), results=results)

  def state(self) -> list[Any]:
    """See `rollouts.Actor`."""
    return [{
        **self._worker_state(w),
        'environment': environment.get_state(),  # type: ignore[attr-defined]
        'observation': self._observations[w].tolist(),
        'steps_left': int(self._steps_left[w]),
        'instruction': self._instructions[w],
    } for w, environment in enumerate(self._environments)]

  def load(self, state: list[Any]) -> None:
    """See `rollouts.Actor`."""
    for w, row in enumerate(state):
      self._load_worker(w, row)
      self._environments[w].set_state(  # type: ignore[attr-defined]
          row['environment'])
      self._observations[w] = row['observation']
      self._steps_left[w] = row['steps_left']
      self._instructions[w] = row['instruction']


class EnvironmentActor(_Actor):
  """Steps any dm_env environments, in Python."""

  def __init__(self, world: worlds.World, act: signatures.Act,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Prepares W workers.

    Args:
      world: The environments' world.
      act: From `act_program`.
      environments: One for each worker.
      rngs: One for each worker, for sampling actions.
      rollout_length: T.
      delayed: As for `CompiledActor`.
      greedy: As for `CompiledActor`.
    """
    super().__init__(
        world, environments, rngs, rollout_length, delayed, greedy)
    self._act = act
    self._timesteps: list[dm_env.TimeStep | None] = [None] * len(rngs)

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """See `rollouts.Actor`."""
    world = self._world
    length, width = self._length, len(self._environments)
    gumbel = noise(self._rngs, length, world.num_actions, self._greedy)
    first = [
        w for w, timestep in enumerate(self._timesteps) if timestep is None]
    timesteps = [
        self._begin(w) if timestep is None or timestep.last() else timestep
        for w, timestep in enumerate(self._timesteps)]
    for w in first:
      _check_saveable(self._environments[w])
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
      actions[t] = self._act(theta, observations[t], codes, gumbel[t])
      for w, environment in enumerate(self._environments):
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
        self._again.copy(), instructions)

  def _observe(self, timesteps: Sequence[dm_env.TimeStep]) -> np.ndarray:
    observations = []
    for environment, timestep in zip(self._environments, timesteps):
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
        zip(self._environments, self._timesteps)):
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
    environment: Any = self._environments[w]
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


def factory(policy: functional.Network, world: worlds.World,
            compiled: bool = True) -> Callable[..., rollouts.Actor]:
  """Returns a function that makes actors, which share one compiled program.

  Args:
    policy: The network that acts.
    world: The world that is played.
    compiled: Whether to play whole rollouts in one program if the world has its
      rules in TensorFlow.

  Returns:
    A function of environments, generators, the rollout length and the other
    arguments of `CompiledActor`, that returns an actor.
  """
  if compiled and world.compiled is not None:
    return functools.partial(
        CompiledActor, world, play_program(policy, world))
  return functools.partial(EnvironmentActor, world, act_program(policy, world))
