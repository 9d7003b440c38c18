"""The replay buffers: the discriminator's B, and that of reward prediction.

Both are rings of fixed size, where new entries replace the oldest. They store
observations as compactly as the world can (27 bytes for a GridLU state, whose
image has 9,408).
"""

from collections.abc import Mapping, Sequence
import threading
from typing import Any, NamedTuple

import numpy as np

from agile_tf.agent import instructions
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from gridlu import archives


class Candidates(NamedTuple):
  """The candidates for the N negatives of one update of D.

  The negatives are all `unrated` pairs, and besides them the pairs from B that
  D rates lowest (line 9 of Algorithm 1), so many that there are N in all.
  """
  pairs: rollouts.Pairs  # M pairs from B.
  # int32 []: D chooses among this many of the M pairs, the first ones. None if
  # it chooses among all.
  num_counted: rollouts.Array | None = None
  # At most N pairs that become negatives without being rated by D; None if
  # there are none.
  unrated: rollouts.Pairs | None = None


class ReplayBuffer:
  """A ring of triples that threads share: instruction, state, `positive`.

  `positive` says whether the state counted as a goal state when it was reached.
  B makes no use of it. Reward prediction draws half of its samples from
  positive states.
  """

  def __init__(self, capacity: int, num_slots: int,
               observation_shape: Sequence[int],
               limits: Mapping[str, tuple[Any, Any]] = {}):
    """Makes an empty buffer of `capacity` triples.

    `limits` are the least and the most that 'codes' or 'observations' can be,
    which `load` checks.
    """
    self._capacity = capacity
    self._limits = limits
    self._arrays: dict[str, np.ndarray] = {
        'codes': np.zeros([capacity, num_slots], np.int32),
        'observations': np.zeros([capacity, *observation_shape], np.uint8),
        'positive': np.zeros([capacity], np.bool_)}
    self._added = 0
    self._lock = threading.Lock()

  def __len__(self) -> int:
    return min(self._added, self._capacity)

  def add(self, codes: np.ndarray, observations: np.ndarray,
          positive: np.ndarray | None = None) -> None:
    """Adds N triples. In a full buffer they replace the oldest ones.

    `positive`, bool [N], says which counted as goal states; B needs none.
    """
    if positive is None:
      positive = np.zeros([len(codes)], np.bool_)
    with self._lock:
      # Of more triples than the buffer can hold, the last ones stay.
      numbers = (self._added + np.arange(len(codes)))[-self._capacity:]
      for array, new in zip(
          self._arrays.values(), (codes, observations, positive)):
        array[numbers % self._capacity] = new[-self._capacity:]
      self._added += len(codes)

  def sample(self, rng: np.random.Generator, count: int) -> rollouts.Pairs:
    """Draws pairs uniformly with replacement.

    Raises ValueError if there are none.
    """
    with self._lock:
      rows = rng.integers(len(self), size=count)
      codes, observations, _ = self._take(rows)
      return rollouts.Pairs(codes, observations)

  def sample_balanced(self, rng: np.random.Generator, count: int
                     ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws triples with replacement, half of them positive.

    If `count` is odd, the smaller half is positive. Until there are triples
    of both kinds, all are equally likely. Raises ValueError if there are none.
    """
    with self._lock:
      positive = self._arrays['positive'][:len(self)]
      kinds = [np.flatnonzero(~positive), np.flatnonzero(positive)]
      if not all(map(len, kinds)):
        kinds = [np.arange(len(positive))] * 2
      return self._take(np.concatenate([
          rng.choice(kinds[0], count - count // 2),
          rng.choice(kinds[1], count // 2)]))

  def _take(self, rows: np.ndarray
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    codes, observations, positive = (
        array[rows] for array in self._arrays.values())
    return codes, observations, positive

  def state(self) -> dict[str, np.ndarray]:
    """Returns the contents, for a checkpoint."""
    with self._lock:
      return {
          name: array[:len(self)].copy()
          for name, array in self._arrays.items()
      } | {'added': np.array(self._added)}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned, in a buffer of the same capacity.

    If the state is another buffer's, or beyond the limits, it raises ValueError
    and changes nothing.
    """
    added = int(archives.expect(state, 'added', np.int64, []))
    size = min(added, self._capacity)
    restored = {
        name: archives.expect(
            state, name, array.dtype, [size, *array.shape[1:]])
        for name, array in self._arrays.items()}
    for name, (least, most) in self._limits.items():
      array = restored[name]
      wrong = np.argwhere((array < least) | (array > most))
      if wrong.size:
        place = tuple(wrong[0].tolist())
        raise ValueError(
            f'{name}{list(place)} is {array[place]}; expected a number from '
            f'{least} to {np.broadcast_to(most, array.shape)[place]}')
    with self._lock:
      for name, part in restored.items():
        self._arrays[name][:size] = part
      self._added = added


def of_world(capacity: int, world: worlds.World) -> ReplayBuffer:
  """Returns an empty buffer for the instructions and states of a world."""
  limits: dict[str, tuple[Any, Any]] = {
      'codes': (instructions.NOTHING, len(world.grammar.tokens))}
  if world.largest_observation is not None:
    limits['observations'] = 0, np.array(world.largest_observation)
  return ReplayBuffer(
      capacity, len(world.grammar.slots), world.observation_shape, limits)
