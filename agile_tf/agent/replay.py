"""The replay buffers: the discriminator's B, and that of reward prediction.

Both are rings of fixed size, where new entries replace the oldest. They store
observations as compactly as the world can (27 bytes for a GridLU state, whose
image has 9,408).
"""

from collections.abc import Sequence
import threading
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from agile_tf.agent import rollouts
from gridlu import archives

Array: TypeAlias = np.ndarray | tf.Tensor


class Pairs(NamedTuple):
  """N pairs of instruction and state."""
  codes: Array  # int32 [N, slots]
  observations: Array  # uint8 [N, ...]


class Negatives(NamedTuple):
  """What the N negatives of a batch of the discriminator are chosen from."""
  # M pairs from B. Of the first `drawn`, those that D rates lowest are
  # negatives: N of them, less the certain ones.
  candidates: Pairs
  drawn: Array  # int32 []
  certain: Pairs | None = None  # Pairs that are negatives in any case.


class Replayed(NamedTuple):
  """Reward prediction's samples, K for each of W workers."""
  codes: Array  # int32 [W, K, slots]
  observations: Array  # uint8 [W, K, ...]
  positive: Array  # bool [W, K]


class ReplayBuffer:
  """A ring of (instruction, state, reward) triples, shared by threads.

  B makes no use of the rewards. Reward prediction draws half of its samples
  from states with a positive reward.
  """

  def __init__(self, capacity: int, num_slots: int,
               observation_shape: Sequence[int]):
    """Makes an empty buffer.

    Args:
      capacity: The maximum number of triples.
      num_slots: The length of an encoded instruction.
      observation_shape: The shape of one observation.
    """
    if capacity < 1:
      raise ValueError(f'capacity is {capacity}; expected at least 1.')
    self._codes = np.zeros([capacity, num_slots], np.int32)
    self._observations = np.zeros([capacity, *observation_shape], np.uint8)
    self._positive = np.zeros([capacity], np.bool_)
    self._added = 0
    self._lock = threading.Lock()

  @property
  def capacity(self) -> int:
    """The maximum number of triples."""
    return len(self._positive)

  def __len__(self) -> int:
    return min(self._added, len(self._positive))

  def add(self, codes: np.ndarray, observations: np.ndarray,
          positive: np.ndarray | None = None) -> None:
    """Adds N triples. In a full buffer they replace the oldest ones.

    Args:
      codes: int32 [N, slots].
      observations: uint8 [N, ...].
      positive: bool [N], whether the state's reward is positive; not needed
        for B.
    """
    if positive is None:
      positive = np.zeros([len(codes)], np.bool_)
    capacity = len(self._positive)
    with self._lock:
      rows = (self._added + np.arange(len(codes)))[-capacity:] % capacity
      self._codes[rows] = codes[-capacity:]
      self._observations[rows] = observations[-capacity:]
      self._positive[rows] = positive[-capacity:]
      self._added += len(codes)

  def sample(self, rng: np.random.Generator,
             count: int) -> Pairs:
    """Draws pairs uniformly with replacement.

    Args:
      rng: Draws the indices.
      count: How many pairs to draw.

    Returns:
      `count` pairs.

    Raises:
      ValueError: if the buffer is empty.
    """
    with self._lock:
      rows = rng.integers(self._size(), size=count)
      return Pairs(self._codes[rows], self._observations[rows])

  def sample_with_rewards(self, rng: np.random.Generator, count: int
                         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws triples with replacement, half of them with a positive reward.

    If `count` is odd, the larger part has zero reward. Until both kinds exist,
    all entries are equally likely.

    Returns:
      codes int32 [count, slots], observations uint8 [count, ...] and positive
      bool [count].

    Raises:
      ValueError: if the buffer is empty.
    """
    with self._lock:
      positive = self._positive[:self._size()]
      kinds = [np.flatnonzero(~positive), np.flatnonzero(positive)]
      if not all(map(len, kinds)):
        kinds = [np.arange(len(positive))] * 2
      rows = np.concatenate([
          rng.choice(kinds[0], count - count // 2),
          rng.choice(kinds[1], count // 2)])
      return self._codes[rows], self._observations[rows], self._positive[rows]

  def _size(self) -> int:
    if not self._added:
      raise ValueError('The replay buffer is empty: nothing to draw from.')
    return len(self)

  def state(self) -> dict[str, np.ndarray]:
    """Returns the contents, for a checkpoint."""
    with self._lock:
      size = len(self)
      return {
          'codes': self._codes[:size].copy(),
          'observations': self._observations[:size].copy(),
          'positive': self._positive[:size].copy(),
          'added': np.array(self._added),
      }

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned, in a buffer of the same capacity.

    Raises:
      ValueError: if it is from another buffer. Then nothing changes.
    """
    added = int(archives.expect(state, 'added', np.int64, []))
    size = min(added, len(self._positive))
    restored = [
        (array, archives.expect(
            state, name, array.dtype, [size, *array.shape[1:]]))
        for name, array in (
            ('codes', self._codes), ('observations', self._observations),
            ('positive', self._positive))]
    with self._lock:
      for array, part in restored:
        array[:size] = part
      self._added = added


class RewardPrediction:
  """The replay that reward prediction is trained on (appendix C).

  It contains the policy workers' instructions and states, and whether each
  state was rewarded. Half of a batch is drawn from those with a reward, if
  there are any.
  """

  def __init__(self, buffer: ReplayBuffer, batch_size: int,
               rng: np.random.Generator):
    """Takes what all workers share, the size of a worker's batch and a rng."""
    self.rng = rng
    self._buffer = buffer
    self._batch_size = batch_size

  def exchange(self, rollout: rollouts.Rollout,
               decisions: np.ndarray) -> Replayed:
    """Adds a rollout and returns a batch for each of its W workers.

    `decisions` is bool [T, W], which states counted as goal states.
    """
    self._buffer.add(*rollout.pairs(), rollout.played(decisions))
    batches = [self.batch() for _ in range(len(rollout.codes))]
    return Replayed(*(np.stack(parts) for parts in zip(*batches)))

  def batch(self) -> tuple[np.ndarray, ...]:
    """Draws the codes, observations and labels of one worker."""
    return self._buffer.sample_with_rewards(self.rng, self._batch_size)
