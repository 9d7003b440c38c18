"""Tests for the replay buffer, against a list that forgets."""

from concurrent import futures
import time

from absl.testing import parameterized
import numpy as np

from agile_tf.agent import replay


def _triples(start, count, every=3):
  """Triples that say which they are; each `every`-th reward is positive."""
  numbers = np.arange(start, start + count)
  codes = np.stack([numbers, -numbers], 1).astype(np.int32)
  observations = np.broadcast_to(
      (numbers % 256).astype(np.uint8)[:, None, None], [count, 2, 3])
  return codes, observations, numbers % every == 0


class ReplayTest(parameterized.TestCase):

  def _assert_whole(self, codes, observations):
    """Asserts that no part of a triple has come to another."""
    np.testing.assert_array_equal(codes[:, 0], -codes[:, 1])
    np.testing.assert_array_equal(
        observations, np.broadcast_to(
            (codes[:, 0] % 256)[:, None, None], observations.shape))

  def _contents(self, buffer):
    codes, observations = buffer.sample(np.random.default_rng(0), 2000)
    self._assert_whole(codes, observations)
    return sorted(set(codes[:, 0].tolist()))

  @parameterized.parameters(
      ([3],), ([3, 4],), ([7],), ([5, 5],), ([3, 4, 3, 4, 3],),
      ([9],), ([2, 23, 1],), ([0, 4, 0],), ([14, 7],))
  def test_the_newest_entries_are_kept(self, sizes):
    buffer = replay.ReplayBuffer(7, 2, [2, 3])
    kept, start = [], 0
    for size in sizes:
      buffer.add(*_triples(start, size))
      kept = (kept + list(range(start, start + size)))[-7:]
      start += size
      self.assertLen(buffer, len(kept))
      if kept:
        self.assertEqual(self._contents(buffer), kept)

  def test_draws_are_uniform(self):
    buffer = replay.ReplayBuffer(10, 2, [2, 3])
    buffer.add(*_triples(0, 14))
    codes, _ = buffer.sample(np.random.default_rng(1), 20000)
    numbers, counts = np.unique(codes[:, 0], return_counts=True)
    self.assertEqual(numbers.tolist(), list(range(4, 14)))
    # Six standard deviations of a binomial.
    np.testing.assert_allclose(counts, 2000, atol=6 * np.sqrt(20000 * .1 * .9))

  @parameterized.parameters((4, 2), (5, 2), (1, 0), (2, 1))
  def test_half_of_the_samples_have_a_reward(self, count, expected):
    buffer = replay.ReplayBuffer(100, 2, [2, 3])
    buffer.add(*_triples(0, 120, every=40))  # 40 and 80 remain of 0, 40, 80.
    drawn = set()
    rng = np.random.default_rng(0)
    for _ in range(60):
      codes, observations, positive = buffer.sample_balanced(rng, count)
      self._assert_whole(codes, observations)
      np.testing.assert_array_equal(positive, codes[:, 0] % 40 == 0)
      self.assertEqual(positive.sum(), expected)
      drawn |= set(codes[:, 0].tolist())
    self.assertBetween(min(drawn), 20, 119)
    if expected:
      self.assertContainsSubset([40, 80], drawn)

  @parameterized.parameters(True, False)
  def test_with_one_kind_of_reward_all_entries_are_drawn(self, kind):
    buffer = replay.ReplayBuffer(10, 2, [2, 3])
    codes, observations, _ = _triples(0, 6)
    buffer.add(codes, observations, np.full([6], kind))
    codes, observations, positive = buffer.sample_balanced(
        np.random.default_rng(0), 200)
    self._assert_whole(codes, observations)
    self.assertEqual(set(codes[:, 0].tolist()), set(range(6)))
    self.assertEqual(set(positive.tolist()), {kind})

  def test_a_kind_of_reward_is_forgotten_with_its_last_entry(self):
    buffer = replay.ReplayBuffer(3, 2, [2, 3])
    buffer.add(*_triples(0, 2, every=100))
    rng = np.random.default_rng(0)
    self.assertEqual(buffer.sample_balanced(rng, 4)[2].sum(), 2)
    buffer.add(*_triples(2, 2, every=100))
    self.assertEqual(buffer.sample_balanced(rng, 4)[2].sum(), 0)

  @parameterized.parameters(4, 7, 11, 30)
  def test_a_loaded_buffer_goes_on_as_the_saved_one(self, added):
    buffer = replay.ReplayBuffer(7, 2, [2, 3])
    buffer.add(*_triples(0, added))
    state = buffer.state()
    kept = {name: value.copy() for name, value in state.items()}
    restored = replay.ReplayBuffer(7, 2, [2, 3])
    restored.load(state)
    for each in (buffer, restored):  # The ring goes on at the same place.
      each.add(*_triples(added, 2))
    self.assertEqual(self._contents(buffer), self._contents(restored))
    for draw in ('sample', 'sample_balanced'):
      for one, other in zip(*(
          getattr(each, draw)(np.random.default_rng(3), 50)
          for each in (buffer, restored))):
        np.testing.assert_array_equal(one, other)
    for name, value in kept.items():  # What was saved has not changed.
      np.testing.assert_array_equal(state[name], value, name)

  def test_nothing_is_drawn_from_an_empty_buffer(self):
    buffer = replay.ReplayBuffer(7, 2, [2, 3])
    self.assertEmpty(buffer)
    for draw in (buffer.sample, buffer.sample_balanced):
      with self.assertRaises(ValueError):
        draw(np.random.default_rng(0), 4)

  def test_entries_of_many_threads_stay_whole(self):
    class Slow(np.ndarray):  # Others run between any two accesses.

      def __getitem__(self, key):
        time.sleep(1e-4)
        return np.asarray(self)[key]

      def __setitem__(self, key, value):
        time.sleep(1e-4)
        np.asarray(self)[key] = value

    buffer = replay.ReplayBuffer(20, 2, [2, 3])
    for name, array in buffer._arrays.items():
      buffer._arrays[name] = array.view(Slow)

    def add(start):
      for i in range(25):
        buffer.add(*_triples(start + 10 * i, 10))
        for draw in buffer.sample, buffer.sample_balanced:
          self._assert_whole(*draw(np.random.default_rng(i), 10)[:2])

    with futures.ThreadPoolExecutor(4) as pool:
      list(pool.map(add, range(0, 1000, 250)))  # Raises their errors.
    self.assertLen(buffer, 20)
    self.assertEqual(buffer.state()['added'], 1000)
    self.assertLen(set(buffer.state()['codes'][:, 0].tolist()), 20)
