"""Tests for the schedule, with threads that do nothing but iterate."""

import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf.training import schedule

_PATIENCE = 20  # Seconds after which a thread counts as hanging.


class ScheduleTest(parameterized.TestCase):

  def _start(self, *functions):
    threads = [
        threading.Thread(target=function, daemon=True)
        for function in functions]
    for thread in threads:
      thread.start()
    return threads

  def _join(self, threads):
    for thread in threads:
      thread.join(_PATIENCE)
      self.assertFalse(thread.is_alive(), 'A thread hangs.')

  def _worker(self, clock, kind, steps=0, log=None):
    """Iterates until the run is over, and logs the counts at each begin."""
    def run():
      while clock.begin(kind):
        if log is not None:
          log.append((kind, clock.steps, clock.iterations))
        clock.end(kind, steps)
    return run

  @parameterized.parameters(
      # Ratio 10. The discriminator's worker iterates once, and then waits.
      (0, 0, True, True), (9, 0, True, True), (10, 0, False, True),
      (0, 1, True, False), (9, 1, True, False), (10, 1, True, True),
      (19, 1, True, True), (20, 1, False, True), (20, 3, True, False))
  def test_who_may(self, steps, iterations, policy, discriminator):
    clock = schedule.Schedule(1000, 10)
    clock.steps, clock.iterations = steps, iterations
    self.assertEqual(clock.may('policy'), policy)
    self.assertEqual(clock.may('discriminator'), discriminator)

  def test_the_first_error_is_the_cause(self):
    clock = schedule.Schedule(1000, 10)
    errors = ValueError('the cause'), ValueError('a consequence')
    for _ in errors:
      self.assertTrue(clock.begin('policy'))
    for error in errors:
      clock.abandon(error)
    self.assertIs(clock.error, errors[0])

  def test_head_start(self):
    clock = schedule.Schedule(1000, 10, head_start=3)
    for clock.iterations in range(3):
      self.assertFalse(clock.may('policy'))
      self.assertTrue(clock.may('discriminator'))
    # From here on the ratio holds, as if these iterations were the first.
    for iterations, policy, discriminator in (
        (3, True, True), (4, True, False)):
      clock.iterations = iterations
      self.assertEqual(clock.may('policy'), policy)
      self.assertEqual(clock.may('discriminator'), discriminator)
    clock.steps = 10
    self.assertTrue(clock.may('discriminator'))
    free = schedule.Schedule(1000, 0, head_start=1)
    self.assertFalse(free.may('policy'))
    free.iterations = 1
    self.assertTrue(free.may('policy'))

  def test_one_kind_of_worker_always_may(self):
    clock = schedule.Schedule(1000, 3)
    for clock.steps in range(30):
      for clock.iterations in range(12):
        self.assertTrue(clock.may('policy') or clock.may('discriminator'))

  def test_ratio_zero_lets_all_iterate(self):
    clock = schedule.Schedule(1000, 0)
    for clock.steps, clock.iterations in ((0, 50), (900, 0)):
      self.assertTrue(clock.may('policy'))
      self.assertTrue(clock.may('discriminator'))

  def test_one_of_each_holds_the_ratio(self):
    clock = schedule.Schedule(400, 20)
    log = []
    self._join(self._start(
        self._worker(clock, 'policy', 5, log),
        self._worker(clock, 'discriminator', 0, log)))
    self.assertEqual(clock.steps, 400)
    self.assertBetween(clock.iterations, 19, 21)
    for _, steps, iterations in log:
      # The other worker may have iterated once more when this reads the counts.
      self.assertBetween(steps - 20 * iterations, -20, 20 + 5)

  def test_many_threads_hold_the_ratio(self):
    clock = schedule.Schedule(3000, 30)
    log = []
    self._join(self._start(
        *[self._worker(clock, 'policy', 5, log) for _ in range(6)],
        self._worker(clock, 'discriminator', 0, log)))
    # Workers complete the iterations that are in progress at the end.
    self.assertBetween(clock.steps, 3000, 3000 + 5 * 5)
    self.assertBetween(clock.iterations, 99, 102)
    for _, steps, iterations in log:
      self.assertBetween(steps - 30 * iterations, -30, 30 + 6 * 5)

  @parameterized.parameters('policy', 'discriminator')
  def test_the_worker_that_is_ahead_waits(self, ahead):
    clock = schedule.Schedule(1000, 10)
    other = {'policy': 'discriminator', 'discriminator': 'policy'}[ahead]
    thread, = self._start(self._worker(clock, ahead, 5))
    thread.join(0.1)
    self.assertTrue(thread.is_alive())
    expected = {'policy': (10, 0), 'discriminator': (0, 1)}[ahead]
    self.assertEqual((clock.steps, clock.iterations), expected)
    self.assertTrue(clock.begin(other))
    clock.end(other, 10)
    thread.join(0.1)
    expected = {'policy': (20, 1), 'discriminator': (10, 2)}[ahead]
    self.assertEqual((clock.steps, clock.iterations), expected)
    clock.stop()
    self._join([thread])

  def test_finish_wakes_waiting_threads(self):
    clock = schedule.Schedule(20, 1000)
    threads = self._start(
        self._worker(clock, 'discriminator'), lambda: clock.wait(_PATIENCE))
    threads[1].join(0.05)
    self.assertTrue(threads[1].is_alive())
    self.assertFalse(clock.finished)
    begin = time.monotonic()
    for _ in range(2):
      self.assertTrue(clock.begin('policy'))
      clock.end('policy', 10)
    self._join(threads)
    self.assertLess(time.monotonic() - begin, _PATIENCE / 2)
    self.assertTrue(clock.finished)
    self.assertFalse(clock.begin('policy'))
    self.assertFalse(clock.begin('discriminator'))
    self.assertEqual((clock.steps, clock.iterations), (20, 1))

  def test_stop_lets_iterations_end(self):
    clock = schedule.Schedule(1000, 0)
    self.assertTrue(clock.begin('policy'))
    clock.stop()
    self.assertTrue(clock.finished)
    self.assertFalse(clock.begin('policy'))
    clock.end('policy', 7)
    self.assertEqual(clock.steps, 7)

  def test_wait_no_longer_than_this(self):
    clock = schedule.Schedule(1000, 0)
    begin = time.monotonic()
    clock.wait(0.05)
    self.assertBetween(time.monotonic() - begin, 0.04, _PATIENCE)
    self.assertFalse(clock.finished)

  def test_no_worker_iterates_while_paused(self):
    clock = schedule.Schedule(10**9, 30)
    inside, wrong = set(), []

    def worker(kind, number):
      while clock.begin(kind):
        inside.add(number)
        time.sleep(0.0005)
        inside.discard(number)
        clock.end(kind, 5)

    counts = []

    def pause():
      for _ in range(10):
        with clock.paused():
          before = clock.steps, clock.iterations
          time.sleep(0.003)
          if inside or before != (clock.steps, clock.iterations):
            wrong.append(set(inside))
          counts.append(clock.steps)
        time.sleep(0.01)

    threads = self._start(
        *[lambda i=i: worker('policy', i) for i in range(4)],
        lambda: worker('discriminator', 4))
    self._join(self._start(pause))
    clock.stop()
    self._join(threads)
    self.assertEmpty(wrong)
    self.assertGreater(len(set(counts)), 5)  # They go on in between.

  def test_pause_waits_for_a_running_iteration(self):
    clock = schedule.Schedule(1000, 0)
    self.assertTrue(clock.begin('policy'))
    paused = threading.Event()

    def pause():
      with clock.paused():
        paused.set()

    thread, = self._start(pause)
    self.assertFalse(paused.wait(0.05))
    clock.end('policy', 1)
    self._join([thread])
    self.assertTrue(paused.is_set())

  def test_a_pause_does_not_wait_for_ever(self):
    clock = schedule.Schedule(1000, 0)
    for _ in range(2):
      self.assertTrue(clock.begin('policy'))
    clock.end('policy', 1)
    with self.assertRaisesRegex(schedule.StalledError, '1 of the workers'):
      with clock.paused(0.05):
        self.fail('paused')
    begun = []  # The pause is over.
    self._join(self._start(lambda: begun.append(clock.begin('policy'))))
    self.assertEqual(begun, [True])

  def test_pause_ends_with_an_error(self):
    clock = schedule.Schedule(1000, 0)
    with self.assertRaises(KeyError), clock.paused():
      raise KeyError
    begun = []
    self._join(self._start(lambda: begun.append(clock.begin('policy'))))
    self.assertEqual(begun, [True])

  @pytest.mark.slow
  def test_many_starts_pauses_and_stops_never_hang(self):
    rng = np.random.default_rng(0)
    for _ in range(200):
      clock = schedule.Schedule(10**9, 225)
      threads = self._start(
          *[self._worker(clock, 'policy', 15) for _ in range(15)],
          self._worker(clock, 'discriminator'))
      for _ in range(rng.integers(3)):
        time.sleep(rng.uniform(0, .02))
        with clock.paused():
          counts = clock.steps, clock.iterations
          time.sleep(rng.uniform(0, .01))
          self.assertEqual((clock.steps, clock.iterations), counts)
      time.sleep(rng.uniform(0, .02))
      clock.stop()
      self._join(threads)
      # Fifteen threads and the discriminator's may each be one iteration ahead.
      self.assertAlmostEqual(
          clock.steps, 225 * clock.iterations, delta=2 * 225)

  def test_stop_while_paused(self):
    clock = schedule.Schedule(1000, 0)
    with clock.paused():
      thread, = self._start(self._worker(clock, 'policy', 1))
      clock.stop()
      self._join([thread])
    self.assertEqual(clock.steps, 0)

  def test_abandon_ends_the_run(self):
    clock = schedule.Schedule(1000, 10)
    threads = self._start(
        self._worker(clock, 'discriminator'), lambda: clock.wait(_PATIENCE))
    self.assertTrue(clock.begin('policy'))
    error = ValueError('first')
    clock.abandon(error)
    self._join(threads)
    self.assertIs(clock.error, error)
    self.assertTrue(clock.finished)
    self.assertEqual(clock.steps, 0)
    with clock.paused():  # Does not wait for the failed iteration.
      pass


if __name__ == '__main__':
  absltest.main()
