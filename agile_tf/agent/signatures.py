"""The signatures of the compiled programs, and the data that they exchange.

Each program is a pure function from tensors to tensors. It takes a snapshot of
parameters and may return gradients; `agile_tf.agent.optimizers` then updates
the shared parameters. T is the number of steps of a rollout, W that of workers,
and P that of a network's parameters.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

Array: TypeAlias = np.ndarray | tf.Tensor


class Pairs(NamedTuple):
  """N pairs of instruction and state."""
  codes: Array  # int32 [N, slots]
  observations: Array  # uint8 [N, ...]


class Replayed(NamedTuple):
  """Reward prediction's samples, K for each of W workers."""
  codes: Array  # int32 [W, K, slots]
  observations: Array  # uint8 [W, K, ...]
  positive: Array  # bool [W, K]


class Act(Protocol):
  """Chooses an action for each worker."""

  def __call__(self, theta: tf.Tensor, observations: Array, codes: Array,
               gumbel: Array) -> tf.Tensor:
    """Returns the actions.

    Args:
      theta: float32 [P].
      observations: uint8 [W, ...].
      codes: int32 [W, slots].
      gumbel: float32 [W, actions], noise.

    Returns:
      int32 [W].
    """


class Play(Protocol):
  """Plays a whole rollout."""

  def __call__(
      self, theta: tf.Tensor, observations: Array, codes: Array,
      truth_codes: Array, gumbel: Array, mask: Array
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the parts of a rollout.

    Args:
      theta: float32 [P].
      observations: uint8 [W, ...], s_0.
      codes: int32 [W, slots].
      truth_codes: int32 [W, K], the instructions for the ground truth.
      gumbel: float32 [T, W, actions], noise.
      mask: bool [T, W]. Where it is False, the state does not change.

    Returns:
      Observations uint8 [T + 1, W, ...]; actions int32 [T, W]; whether
      s_1 ... s_T are goal states, bool [T, W] (all False if the world gives no
      reward); and `results` as in `rollouts.Rollout`.
    """


class Decide(Protocol):
  """D's decisions, without a reward."""

  def __call__(self, phi: tf.Tensor, observations: Array,
               codes: Array) -> tf.Tensor:
    """Returns which states D accepts as goal states.

    Args:
      phi: float32 [P].
      observations: uint8 [T + 1, W, ...].
      codes: int32 [W, slots].

    Returns:
      bool [T, W], for s_1 ... s_T.
    """


class ModelReward(Protocol):
  """Line 6 of Algorithm 2."""

  def __call__(self, phi: tf.Tensor, observations: Array,
               codes: Array) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rewards of s_1 ... s_T.

    Args:
      phi: float32 [P].
      observations: uint8 [T + 1, W, ...].
      codes: int32 [W, slots].

    Returns:
      The rewards, float32 [T, W], and the decisions, bool [T, W].
    """


class PolicyGradients(Protocol):
  """Line 7 of Algorithm 2, for each worker."""

  def __call__(
      self, theta: tf.Tensor, observations: Array, codes: Array,
      actions: Array, rewards: Array, discounts: Array, mask: Array,
      entropy_weight: np.float32 | float, results: Sequence[tf.Tensor],
      replayed: Replayed | None
  ) -> tuple[Sequence[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns a gradient for each worker.

    Args:
      theta: float32 [P].
      observations: uint8 [T + 1, W, ...].
      codes: int32 [W, slots].
      actions: int32 [T, W].
      rewards: float32 [T, W], 0 where masked.
      discounts: float32 [T, W].
      mask: float32 [T, W].
      entropy_weight: alpha. If it changes from call to call, the program is
        still the same.
      results: As in `rollouts.Rollout`.
      replayed: None without reward prediction.

    Returns:
      W gradients, float32 [P], or one that is averaged; and the terms of the
      loss by name, float32 [W], each a mean over steps.
    """


class DiscriminatorGradients(Protocol):
  """Lines 9 to 11 of Algorithm 1."""

  def __call__(self, phi: tf.Tensor, goals: Pairs, candidates: Pairs,
               drawn: np.int32, mismatched: Pairs | None = None
              ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the gradient of the discriminator's loss.

    Args:
      phi: float32 [P].
      goals: N goal examples.
      candidates: M >= N - K pairs from B. Of the first `drawn`, the N - K that
        D rates lowest are trained on, as negatives.
      drawn: From N - K to M. If it changes from call to call, the program is
        still the same.
      mismatched: K negatives that are not from B; None for K = 0.

    Returns:
      The gradient, float32 [P]; and by name the loss (the mean over the 2 N
      examples), the share of goals that D accepts and the share of negatives
      that it rejects, float32 [].
    """
