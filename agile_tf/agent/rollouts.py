"""Rollouts: R steps of W workers, acted from one snapshot of the policy.

The index t: an episode of n actions has n + 1 states s_0 ... s_n. The action
a_t is chosen in s_t and leads to s_{t+1}. Everything else about step t (its
reward, its pair in B, the discriminator's decision and its sample for reward
prediction) refers to s_{t+1}. So the first state of an episode has no reward.

A rollout has R actions and the R + 1 states around them. From here on s_0 is
its first state, wherever in the episode that is. The next rollout begins with
its last state, unless the episode has ended. A rollout never crosses the end of
an episode: if that comes before R steps, the remaining steps are masked.
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
  """R steps of W workers."""
  observations: np.ndarray  # uint8 [R + 1, W, ...], s_0 ... s_R
  codes: np.ndarray  # int32 [W, slots], the encoded instructions
  actions: np.ndarray  # int32 [R, W]
  true_rewards: np.ndarray  # float32 [R, W], the environment's
  discounts: np.ndarray  # float32 [R, W], the environment's; 1 where masked
  mask: np.ndarray  # float32 [R, W], 1 for steps that were played
  ended: np.ndarray  # bool [W], whether the episode ended with this rollout
  instructions: tuple[str, ...]  # W texts
  # Arrays [R, W, ...] that the policy network computed in s_0 ... s_{R-1} and
  # that its gradient need not compute again; there may be none.
  activations: tuple[tf.Tensor, ...] = ()
  # Which of s_1 ... s_R are goal states, bool [R, W]. The ground truth says it,
  # or a checker, on whose verdict nothing is trained; None if there is neither.
  # The values of masked steps have no meaning.
  truth: np.ndarray | None = None

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

    `truth` says which of s_1 ... s_R are goal states, bool [R, W].
    """
    ended = np.flatnonzero(self.ended)
    last = self.mask[:, ended].sum(axis=0).astype(int) - 1
    return truth[last, ended]

  def played(self, values: np.ndarray) -> np.ndarray:
    """Returns the values [R, W, ...] of the played steps, [steps, ...]."""
    return values[self.mask > 0]

  def pairs(self, with_first: bool = False) -> Pairs:
    """Returns the instruction and the following state of each played step.

    If `with_first`, the states in which the active workers began come first.
    """
    codes = np.repeat(self.codes[None], len(self.actions), axis=0)
    pairs = Pairs(self.played(codes), self.played(self.observations[1:]))
    if not with_first:
      return pairs
    active = self.active
    return Pairs(
        np.concatenate([self.codes[active], pairs.codes]),
        np.concatenate([self.observations[0, active], pairs.observations]))
