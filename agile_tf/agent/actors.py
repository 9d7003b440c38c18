"""Actors: they play the episodes of W workers, one rollout at a time.

`CompiledActor` plays whole rollouts in one compiled program, and needs a world
with its rules in TensorFlow. `EnvironmentActor` steps any dm_env environment.
Both draw noise from the workers' own generators, so that with the same seeds
they play the same episodes.
"""

import abc
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import programs as programs_lib
from agile_tf.agent import rollouts
from agile_tf.agent import worlds


class Actor(abc.ABC):
  """Plays the episodes of W workers, one rollout of each at a time."""

  def __init__(self, programs: programs_lib.PolicyPrograms,
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Takes for each worker an environment, and a generator for its actions.

    Delayed workers sit out the first rollout. If an episode has two rollouts,
    delaying half of them mixes first and second halves in each batch. A greedy
    actor takes the likeliest action.
    """
    self.environments: list[Any] = list(environments)
    self.rngs = list(rngs)
    self._programs = programs
    self._world = programs.world
    self._length = rollout_length  # R
    self._delayed = np.array(delayed)
    self._greedy = greedy
    self._observations = np.zeros(
        [len(self.rngs), *self._world.observation_shape], np.uint8)

  @abc.abstractmethod
  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    """Plays one rollout of each worker with these policy parameters."""

  def close(self) -> None:
    for environment in self.environments:
      environment.close()

  def _noise(self) -> np.ndarray:
    """Draws Gumbel noise, float32 [R, W, actions]; zeros if greedy.

    argmax(logits + noise) is a sample of the policy.
    """
    length, num_actions = self._length, self._world.num_actions
    if self._greedy:
      return np.zeros([length, len(self.rngs), num_actions], np.float32)
    return np.stack(
        [rng.gumbel(size=[length, num_actions]).astype(np.float32)
         for rng in self.rngs], axis=1)

  def state(self) -> list[Any]:
    """Returns the workers' episodes and generators, as values for JSON."""
    return [{
        'generator': rng.bit_generator.state,
        'delayed': bool(self._delayed[w]),
        **self._episode(w),
    } for w, rng in enumerate(self.rngs)]

  def load(self, state: list[Any]) -> None:
    """Restores what `state` returned."""
    for w, saved in enumerate(state):
      self.rngs[w].bit_generator.state = saved['generator']
      self._delayed[w] = saved['delayed']
      self._load_episode(w, saved)

  @abc.abstractmethod
  def _episode(self, w: int) -> dict[str, Any]:
    """Returns a worker's episode, as values for JSON."""

  @abc.abstractmethod
  def _load_episode(self, w: int, saved: dict[str, Any]) -> None:
    """Restores what `_episode` returned."""


class CompiledActor(Actor):
  """Plays whole rollouts inside one compiled program.

  The workers' environments only draw the training instances, with their own
  seeds. They are not stepped.
  """

  def __init__(self, *arguments: Any, **named: Any):
    """Takes what every actor takes; the world is compiled."""
    super().__init__(*arguments, **named)
    assert self._world.compiled is not None
    self._rules = self._world.compiled
    width = len(self.rngs)
    self._steps_left = np.zeros([width], np.int32)
    self._instructions = np.zeros([width], np.int32)  # Indices.

  def play(self, theta: tf.Tensor) -> rollouts.Rollout:
    rules, length = self._rules, self._length
    for w in np.flatnonzero(self._steps_left == 0).tolist():
      self._instructions[w], self._observations[w] = rules.begin(
          self.environments[w])
      self._steps_left[w] = rules.episode_length
    num_played = np.where(
        self._delayed, 0, np.minimum(length, self._steps_left))
    mask = np.arange(length)[:, None] < num_played
    codes = rules.codes[self._instructions]
    *played, activations = self._programs.play(
        theta, self._observations, codes,
        rules.truth_codes[self._instructions], self._noise(), mask)
    observations, actions, satisfied = [x.numpy() for x in played]
    self._observations = observations[-1].copy()
    self._steps_left = self._steps_left - num_played
    ended = self._steps_left == 0
    self._delayed = np.zeros_like(self._delayed)
    last = np.arange(length)[:, None] == num_played - 1
    return rollouts.Rollout(
        observations, codes, actions,
        true_rewards=(
            mask & satisfied & rules.has_ground_truth).astype(np.float32),
        discounts=np.where(
            last & ended, rules.final_discount, 1.0).astype(np.float32),
        mask=mask.astype(np.float32), ended=ended,
        truth=satisfied,
        instructions=tuple(rules.texts[i] for i in self._instructions),
        activations=activations)

  def _episode(self, w: int) -> dict[str, Any]:
    return {
        'environment': self.environments[w].get_state(),
        'observation': self._observations[w].tolist(),
        'steps_left': int(self._steps_left[w]),
    }

  def _load_episode(self, w: int, saved: dict[str, Any]) -> None:
    self.environments[w].set_state(saved['environment'])
    observation = np.array(saved['observation'])
    largest = self._world.largest_observation
    if largest is not None and (
        wrong := np.flatnonzero(observation > largest).tolist()):
      raise ValueError(
          f'the observation of worker {w} has {observation[wrong[0]]} at '
          f'{wrong[0]}; expected at most {largest[wrong[0]]}')
    self._observations[w] = observation
    self._steps_left[w] = saved['steps_left']
    if self._steps_left[w]:  # Otherwise the episode is over or has not begun.
      self._instructions[w] = self._rules.current_instruction(
          self.environments[w])


class EnvironmentActor(Actor):
  """Steps any dm_env environments, in Python.

  An environment that cannot be saved begins a new episode after a resume.
  """

  def __init__(self, *arguments: Any, **named: Any):
    """Takes what every actor takes."""
    super().__init__(*arguments, **named)
    self._timesteps: list[dm_env.TimeStep | None] = [None] * len(self.rngs)

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
        timesteps[w] = self.environments[w].step(actions[t, w])
        self._observe(w, timesteps[w])
        rewards[t, w] = timesteps[w].reward or 0.0
        discounts[t, w] = timesteps[w].discount
        mask[t, w] = 1
      observations[t + 1] = self._observations
    self._timesteps = list(timesteps)
    self._delayed = np.zeros_like(self._delayed)
    played = mask > 0
    truth = (
        played & (rewards > 0) if self._world.has_ground_truth else
        self._world.check(instructions, observations[1:]))
    return rollouts.Rollout(
        observations, codes, actions, rewards, discounts, mask,
        np.array([timestep.last() for timestep in timesteps]),
        instructions, truth=truth)

  def _begin(self, w: int) -> dm_env.TimeStep:
    """Begins a worker's episode."""
    timestep = self.environments[w].reset()
    self._observe(w, timestep)
    return timestep

  def _observe(self, w: int, timestep: dm_env.TimeStep) -> None:
    """Keeps the observation of a worker's newest time step."""
    self._observations[w] = self._world.observe(self.environments[w], timestep)

  def _episode(self, w: int) -> dict[str, Any]:
    environment, timestep = self.environments[w], self._timesteps[w]
    # Before its first episode an environment may have nothing to save.
    if timestep is None or not _can_be_saved(environment):
      return {'environment': None, 'in_episode': False}
    return {'environment': environment.get_state(),
            'in_episode': not timestep.last()}

  def _load_episode(self, w: int, saved: dict[str, Any]) -> None:
    self._timesteps[w] = None
    if saved['environment'] is None:
      if not _can_be_saved(self.environments[w]):
        # With its own seed it would play the run's first episodes again.
        self.environments[w].close()
        self.environments[w] = self._world.make_environment(
            int(self.rngs[w].integers(2**32)))
      return
    timestep = self.environments[w].set_state(saved['environment'])
    if saved['in_episode']:
      self._observe(w, timestep)
      self._timesteps[w] = timestep


def _can_be_saved(environment: Any) -> bool:
  """Returns whether an environment has get_state() and set_state().

  GridLU's have both. Those of a user are wrapped, and their wrapper says it.
  """
  return getattr(environment, 'can_be_saved', True)


def kind(world: worlds.World) -> type[Actor]:
  """Returns the fastest kind of actor for a world."""
  return EnvironmentActor if world.compiled is None else CompiledActor
