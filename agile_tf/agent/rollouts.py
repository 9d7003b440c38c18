"""Rollouts: T steps of W workers, acted from one snapshot of the policy.

What index t means. An episode of n actions has n + 1 states s_0 ... s_n. The
action a_t is chosen in s_t and leads to s_{t+1}, and everything that is said
of step t (its reward, the pair in B, reward prediction's sample, the
discriminator's decision) is said of s_{t+1}. The first state of an episode is
acted from and never rewarded. A rollout has T actions and the T + 1 states
around them; the next one begins with this one's last state. A rollout ends
with its episode; steps after that, if T has not passed yet, are masked.

`agile_tf.agent.actors` plays them.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf


class Rollout(NamedTuple):
  """T steps of W workers."""
  observations: np.ndarray  # uint8 [T + 1, W, ...], s_0 ... s_T
  codes: np.ndarray  # int32 [W, slots], the encoded instructions
  actions: np.ndarray  # int32 [T, W]
  true_rewards: np.ndarray  # float32 [T, W], the environment's
  discounts: np.ndarray  # float32 [T, W], the environment's; 1 where masked
  mask: np.ndarray  # float32 [T, W], 1 for steps that were played
  ended: np.ndarray  # bool [W], whether the episode ended with this rollout
  instructions: tuple[str, ...]  # W of them
  # What the policy's convolutions gave at s_0 ... s_{T-1}, float32
  # [T, h, w, W, channels] each, for the gradient to reuse; empty if they were
  # not kept.
  results: tuple[tf.Tensor, ...] = ()

  @property
  def steps(self) -> int:
    """How many environment steps were played."""
    return int(self.mask.sum())

  @property
  def active(self) -> np.ndarray:
    """The workers that played, int [at most W]."""
    return np.flatnonzero(self.mask.any(axis=0))

  def successes(self, truth: np.ndarray) -> np.ndarray:
    """Whether the episodes that ended here ended in a goal state, bool [n].

    Args:
      truth: bool [T, W], which of s_1 ... s_T are goal states.
    """
    ended = np.flatnonzero(self.ended)
    last = self.mask[:, ended].sum(axis=0).astype(int) - 1
    return truth[last, ended]

  def played(self, values: np.ndarray) -> np.ndarray:
    """Selects the played steps of [T, W, ...] as [steps, ...]."""
    return values[self.mask > 0]

  def pairs(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns codes int32 [steps, slots] and observations [steps, ...]."""
    length = len(self.actions)
    codes = np.repeat(self.codes[None], length, axis=0)
    return self.played(codes), self.played(self.observations[1:])


class Reward(NamedTuple):
  """What a rollout earns."""
  values: np.ndarray  # float32 [T, W]
  decisions: np.ndarray  # bool [T, W], which states count as goal states


class Actor(Protocol):
  """Plays the episodes of W workers."""

  def play(self, theta: tf.Tensor) -> Rollout:
    """Plays one rollout of each worker with these policy parameters."""
    ...

  def state(self) -> list[Any]:
    """Returns the workers' episodes and generators, for JSON."""
    ...

  def load(self, state: list[Any]) -> None:
    """Restores what `state` returned."""
    ...
