"""Plays episodes with the networks of a run, without learning."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from agile_tf.agent import actors
from agile_tf.agent import functional
from agile_tf.agent import rewards
from agile_tf.agent import worlds
from agile_tf.evaluation import played

_BATCH = 64  # Episodes played in parallel.


class Player:
  """Plays episodes with two networks and any parameters of them."""

  def __init__(self, world: worlds.World, policy: functional.Network,
               discriminator: functional.Network, rollout_length: int):
    """Compiles the programs.

    Args:
      world: The world of the episodes.
      policy: The network that acts.
      discriminator: The network D, the reward model.
      rollout_length: How many steps are played in one call.
    """
    self._world = world
    self._length = rollout_length
    self._make_actor = actors.factory(policy, world)
    self._decide = rewards.decisions_program(discriminator, world)

  def play(self, theta: tf.Tensor, phi: tf.Tensor | None,
           count: int, seed: int, greedy: bool) -> Iterable[played.Episode]:
    """Yields `count` played episodes.

    Each row of the batch plays an equal share of them, because taking the
    first to finish would favour short episodes.

    Args:
      theta: float32 [P], the policy's parameters.
      phi: float32 [P], the discriminator's parameters; None to leave out its
        decisions.
      count: How many episodes.
      seed: Seeds instances and actions.
      greedy: Whether to take the likeliest action instead of sampling.
    """
    world = self._world
    width = min(count, _BATCH)
    seeds = np.random.SeedSequence(seed).spawn(2 * width)
    environments = [
        world.make_environment(int(s.generate_state(1)[0]))
        for s in seeds[:width]]
    rngs = [np.random.default_rng(s) for s in seeds[width:]]
    actor = self._make_actor(
        environments, rngs, self._length, [False] * width, greedy)
    parts: list[list[tuple]] = [[] for _ in range(width)]
    starts: dict[int, np.ndarray] = {}
    missing = [count // width + (w < count % width) for w in range(width)]
    while any(missing):
      rollout = actor.play(theta)
      decisions = None
      if phi is not None:
        decisions = self._decide(
            phi, rollout.observations, rollout.codes).numpy()
      truth = world.truth(rollout)
      for w in range(width):
        steps = int(rollout.mask[:, w].sum())
        starts.setdefault(w, rollout.observations[0, w])
        parts[w].append(tuple(
            None if values is None else values[:steps, w]
            for values in (decisions, truth)))
        if rollout.ended[w] and missing[w]:
          decided, truths = (
              None if values[0] is None else np.concatenate(values)
              for values in zip(*parts[w]))
          yield played.Episode(
              rollout.instructions[w], rollout.observations[steps, w],
              decided, truths, starts[w])
          missing[w] -= 1
        if rollout.ended[w]:
          parts[w] = []
          del starts[w]
