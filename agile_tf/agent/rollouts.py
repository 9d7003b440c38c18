"""Rollouts: T steps of W workers, acted from one snapshot of the policy.

The index t: an episode of n actions has n + 1 states s_0 ... s_n. The action
a_t is chosen in s_t and leads to s_{t+1}. Everything else about step t (its
reward, its pair in B, the discriminator's decision and its sample for reward
prediction) refers to s_{t+1}. So the first state of an episode has no reward.

A rollout has T actions and the T + 1 states around them; the next rollout
begins with its last state. A rollout ends with its episode. If that is before
T steps, the remaining steps are masked.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

Array: TypeAlias = np.ndarray | tf.Tensor


class Pairs(NamedTuple):
  """N pairs of instruction and state."""
  codes: Array  # int32 [N, slots]
  observations: Array  # uint8 [N, ...]


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
  # The outputs of the policy's convolutions at s_0 ... s_{T-1}, float32
  # [T, h, w, W, channels] each, which the gradient reuses; empty if they were
  # not kept.
  results: tuple[tf.Tensor, ...] = ()

  @property
  def steps(self) -> int:
    """The number of steps that were played, by all workers."""
    return int(self.mask.sum())

  @property
  def active(self) -> np.ndarray:
    """The indices of the workers that played, int [at most W]."""
    return np.flatnonzero(self.mask.any(axis=0))

  def successes(self, truth: np.ndarray) -> np.ndarray:
    """Returns which of the n episodes that ended here succeeded, bool [n].

    `truth` says which of s_1 ... s_T are goal states, bool [T, W].
    """
    ended = np.flatnonzero(self.ended)
    last = self.mask[:, ended].sum(axis=0).astype(int) - 1
    return truth[last, ended]

  def played(self, values: np.ndarray) -> np.ndarray:
    """Returns the values [T, W, ...] of the played steps, [steps, ...]."""
    return values[self.mask > 0]

  def pairs(self) -> Pairs:
    """Returns the instruction and the following state of each played step."""
    codes = np.repeat(self.codes[None], len(self.actions), axis=0)
    return Pairs(self.played(codes), self.played(self.observations[1:]))
