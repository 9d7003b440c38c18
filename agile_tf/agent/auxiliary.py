"""Auxiliary losses of the policy, such as reward prediction (appendix C).

A run's auxiliary loss is described by `Auxiliary`: an `AuxiliaryLoss`, and a
function that makes the data that it is trained on. The data are made once for a
run and shared by all threads; each thread draws samples with a generator of its
own.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from agile_tf.agent import losses
from agile_tf.agent import networks
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import worlds


class Samples(NamedTuple):
  """The inputs of an auxiliary loss, K samples for each of W workers."""
  codes: rollouts.Array  # int32 [W, K, slots]
  observations: rollouts.Array  # uint8 [W, K, ...]
  labels: rollouts.Array  # [W, K, ...], what the loss compares outputs with


class Data(Protocol):
  """The data that an auxiliary loss is trained on, shared by all threads."""

  def add_and_sample(self, rng: np.random.Generator, rollout: rollouts.Rollout,
                     decisions: np.ndarray) -> Samples:
    """Adds what is needed of a rollout; draws samples for its W workers.

    `decisions` says which states counted as goal states, bool [R, W].
    """

  def state(self) -> dict[str, np.ndarray]:
    """Returns its contents, for a checkpoint."""

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned."""


class AuxiliaryLoss(NamedTuple):
  """The loss itself, which is added to the policy's."""
  name: str  # Its metric is called '{name}_loss'.
  cost: float  # The weight of its mean over a worker's samples.
  # Takes the policy's output for the samples, [W, K, ...] each, and their
  # labels; returns the loss of each sample, float32 [W, K].
  function: Callable[[networks.PolicyOutput, tf.Tensor], tf.Tensor]


class Auxiliary(NamedTuple):
  """An auxiliary loss of the policy, and a function that makes its data."""
  loss: AuxiliaryLoss
  # Makes the data for a world and, if the run has them, goal examples.
  make: Callable[[worlds.World, worlds.GoalExamples | None], Data]


# N states: their codes, their observations, and whether they count as goals.
Triples = tuple[np.ndarray, np.ndarray, np.ndarray]


class RewardPrediction:
  """The data of reward prediction: the states of all policy workers.

  Half of a worker's samples from the buffer are states that counted as goal
  states, as soon as the buffer has states of both kinds.
  """

  def __init__(self, buffer: replay.ReplayBuffer, batch_size: int,
               others: Callable[[np.random.Generator], Triples] | None = None):
    """Takes the buffer that all workers share.

    Args:
      buffer: An empty buffer.
      batch_size: How many samples of a worker are drawn from it.
      others: Draws further samples, any number of them, which are not from the
        buffer. It is called once for each worker.
    """
    self._buffer = buffer
    self._batch_size = batch_size
    self._others = others

  def add_and_sample(self, rng: np.random.Generator, rollout: rollouts.Rollout,
                     decisions: np.ndarray) -> Samples:
    self._buffer.add(*rollout.pairs(), rollout.played(decisions))
    batches = [self._batch(rng) for _ in range(len(rollout.codes))]
    return Samples(*(np.stack(parts) for parts in zip(*batches)))

  def _batch(self, rng: np.random.Generator) -> Triples:
    """Draws the samples of one worker."""
    batch = self._buffer.sample_balanced(rng, self._batch_size)
    if self._others is None:
      return batch
    codes, observations, positive = map(
        np.concatenate, zip(batch, self._others(rng)))
    return codes, observations, positive

  def state(self) -> dict[str, np.ndarray]:
    return self._buffer.state()

  def load(self, state: dict[str, np.ndarray]) -> None:
    self._buffer.load(state)


def reward_prediction(cost: float, batch_size: int, replay_size: int
                     ) -> Auxiliary:
  """Returns reward prediction, which learns which states counted as goals."""
  def make(world: worlds.World, goals: worlds.GoalExamples | None
          ) -> RewardPrediction:
    del goals
    return RewardPrediction(replay.of_world(replay_size, world), batch_size)

  return Auxiliary(
      AuxiliaryLoss('reward_prediction', cost, _prediction_loss), make)


def _prediction_loss(output: networks.PolicyOutput, positive: tf.Tensor
                    ) -> tf.Tensor:
  return losses.reward_prediction(output.reward_logits, positive)
