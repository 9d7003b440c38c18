"""Tests for threads: the schedule, and workers that fail, hang or are slow."""

import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import parameterized
import dm_env
import numpy as np
import pytest
import tensorflow as tf

from agile_tf.training import threads
from agile_tf.training import train
from agile_tf.worlds import checks

_PATIENCE = 20  # Seconds after which a thread counts as hanging.


class ScheduleTest(parameterized.TestCase):

  def _start(self, *functions):
    started = [
        threading.Thread(target=function, daemon=True)
        for function in functions]
    for thread in started:
      thread.start()
    return started

  def _join(self, started):
    for thread in started:
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

  def _assert_goes_on(self, clock):
    """A worker may begin: there is no pause any more."""
    begun = []
    self._join(self._start(lambda: begun.append(clock.begin('policy'))))
    self.assertEqual(begun, [True])

  @parameterized.parameters(
      # Ratio 10. The discriminator's worker iterates once, and then waits.
      (0, 0, True, True), (9, 0, True, True), (10, 0, False, True),
      (0, 1, True, False), (9, 1, True, False), (10, 1, True, True),
      (19, 1, True, True), (20, 1, False, True), (20, 3, True, False))
  def test_the_ratio_decides_who_may_iterate(
      self, steps, iterations, policy, discriminator):
    clock = threads.Schedule(1000, 10)
    clock.steps, clock.iterations = steps, iterations
    self.assertEqual(clock.may('policy'), policy)
    self.assertEqual(clock.may('discriminator'), discriminator)

  @parameterized.parameters((10, 0, 16), (100, 0, 1), (0, 0, 7), (10, 3, 19))
  def test_a_branch_begins_where_its_own_ratio_would_be(
      self, ratio, head_start, iterations):
    clock = threads.Schedule(1000, ratio, head_start)
    clock.begin_at(165, 7)
    self.assertEqual((clock.steps, clock.iterations), (165, iterations))
    self.assertTrue(clock.may('discriminator'))
    self.assertTrue(clock.may('policy'))

  def test_in_a_head_start_only_the_discriminator_iterates(self):
    clock = threads.Schedule(1000, 10, head_start=3)
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
    free = threads.Schedule(1000, 0, head_start=1)
    self.assertFalse(free.may('policy'))
    free.iterations = 1
    self.assertTrue(free.may('policy'))

  def test_one_kind_of_worker_always_may(self):
    clock, free = threads.Schedule(1000, 3), threads.Schedule(1000, 0)
    for steps, iterations in itertools.product(range(30), range(12)):
      for each in clock, free:
        each.steps, each.iterations = steps, iterations
      self.assertTrue(clock.may('policy') or clock.may('discriminator'))
      self.assertTrue(free.may('policy') and free.may('discriminator'))

  @parameterized.parameters((1, 400, 20), (6, 3000, 30))
  def test_threads_hold_the_ratio(self, count, total, ratio):
    clock = threads.Schedule(total, ratio)
    log = []
    self._join(self._start(
        *[self._worker(clock, 'policy', 5, log) for _ in range(count)],
        self._worker(clock, 'discriminator', 0, log)))
    # Workers complete the iterations that are in progress at the end.
    self.assertBetween(clock.steps, total, total + 5 * (count - 1))
    self.assertBetween(
        clock.iterations, total // ratio - 1, total // ratio + 2)
    for _, steps, iterations in log:
      # The other worker may have iterated once more when this reads the counts.
      self.assertBetween(
          steps - ratio * iterations, -ratio, ratio + 5 * count)

  def test_finish_wakes_waiting_threads(self):
    clock = threads.Schedule(20, 1000)
    started = self._start(
        self._worker(clock, 'discriminator'), lambda: clock.wait(10**6))
    started[1].join(0.05)
    self.assertTrue(started[1].is_alive())
    self.assertFalse(clock.finished)
    for _ in range(2):
      self.assertTrue(clock.begin('policy'))
      clock.end('policy', 10)
    self._join(started)
    self.assertTrue(clock.finished)
    self.assertFalse(clock.begin('policy'))
    self.assertFalse(clock.begin('discriminator'))
    self.assertEqual((clock.steps, clock.iterations), (20, 1))

  def test_no_worker_iterates_while_paused(self):
    clock = threads.Schedule(10**9, 30)
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

    started = self._start(
        *[lambda i=i: worker('policy', i) for i in range(4)],
        lambda: worker('discriminator', 4))
    self._join(self._start(pause))
    clock.stop()
    self._join(started)
    self.assertEmpty(wrong)
    self.assertGreater(len(set(counts)), 5)  # They go on in between.

  def test_a_pause_waits_for_a_running_iteration_but_not_for_ever(self):
    clock = threads.Schedule(1000, 0)
    self.assertTrue(clock.begin('policy'))
    with mock.patch.object(threads, 'STALL_SECONDS', 0.05):
      with self.assertRaisesRegex(threads.StalledError, '1 of the workers'):
        with clock.paused():
          self.fail('paused')
    paused = threading.Event()

    def pause():
      with clock.paused():
        paused.set()

    thread, = self._start(pause)
    self.assertFalse(paused.wait(0.05))
    clock.end('policy', 1)
    self._join([thread])
    self.assertTrue(paused.is_set())
    self._assert_goes_on(clock)

  def test_pause_ends_with_an_error(self):
    clock = threads.Schedule(1000, 0)
    with self.assertRaises(KeyError), clock.paused():
      raise KeyError
    self._assert_goes_on(clock)

  def test_stop_lets_iterations_end_and_none_begin(self):
    clock = threads.Schedule(1000, 0)
    self.assertTrue(clock.begin('policy'))
    clock.stop()
    self.assertTrue(clock.finished)
    self.assertFalse(clock.begin('policy'))
    clock.end('policy', 7)
    self.assertEqual(clock.steps, 7)
    paused = threads.Schedule(1000, 0)
    with paused.paused():
      started = self._start(self._worker(paused, 'policy', 1))
      paused.stop()
      self._join(started)
    self.assertEqual(paused.steps, 0)

  def test_an_error_ends_the_run_and_the_first_error_is_the_cause(self):
    clock = threads.Schedule(1000, 10)
    cause, failed = ValueError('the cause'), threading.Event()

    def fail_later():
      clock.begin('policy')
      failed.wait(_PATIENCE)
      clock.end('policy', error=ValueError('a consequence'))

    started = self._start(
        self._worker(clock, 'discriminator'), lambda: clock.wait(_PATIENCE),
        fail_later)
    self.assertTrue(clock.begin('policy'))
    clock.end('policy', error=cause)
    failed.set()
    self._join(started)
    self.assertIs(clock.error, cause)
    self.assertTrue(clock.finished)
    self.assertEqual(clock.steps, 0)
    self.assertEmpty(clock.turns)
    with clock.paused():  # Does not wait for the failed iteration.
      pass


def _drive(clock, iterate, tick=lambda: None, count=4, discriminator=None):
  """Drives policy workers, which are numbers."""
  train.loop(clock, threads.Crew(
      lambda: None, tuple(lambda _, i=i: iterate(i) for i in range(count)),
      discriminator), tick)


class DriveTest(parameterized.TestCase):

  @parameterized.product(
      where=('policy', 'discriminator', 'main'), count=(1, 3),
      error=(RuntimeError('injected'), SystemExit(0),
             StopIteration('injected')))
  def test_an_exception_in_a_thread_ends_the_run(self, where, count, error):
    calls, before = [], {*threading.enumerate()}

    def iterate(who, *_):
      calls.append(who)
      if who == where and calls.count(who) == 3:
        raise error
      return 5

    policy, discriminator, main = (
        functools.partial(iterate, who)
        for who in ('policy', 'discriminator', 'main'))
    with self.assertRaisesRegex(
        (RuntimeError, StopIteration), r'injected|called exit\(0\)'):
      train.loop(
          threads.Schedule(10**9, 10),
          threads.Crew(lambda: None, count * (policy,), discriminator), main)
    self.assertEmpty({*threading.enumerate()} - before)

  @parameterized.parameters(0.0, 0.02)
  def test_in_lockstep_the_result_does_not_depend_on_speed(self, seconds):
    clock, log = threads.Schedule(30, 6), []
    state = {'policy': 0, 'discriminator': 0}

    def iterate(kind, read):
      time.sleep(seconds if kind == 'policy' else 0.02 - seconds)
      log.append((clock.steps, kind, read))
      state[kind] += 1
      return 4

    train.loop(clock, threads.Crew(
        lambda: tuple(state.values()),
        (functools.partial(iterate, 'policy'),),
        functools.partial(iterate, 'discriminator')), lambda: None)
    # Both read what was there before; at 4, 16 and 28 the policy may alone.
    self.assertEqual(sorted(log), [
        (0, 'discriminator', (0, 0)), (0, 'policy', (0, 0)),
        (4, 'policy', (1, 1)),
        (8, 'discriminator', (2, 1)), (8, 'policy', (2, 1)),
        (12, 'discriminator', (3, 2)), (12, 'policy', (3, 2)),
        (16, 'policy', (4, 3)),
        (20, 'discriminator', (5, 3)), (20, 'policy', (5, 3)),
        (24, 'discriminator', (6, 4)), (24, 'policy', (6, 4)),
        (28, 'policy', (7, 5))])

  def test_without_a_ratio_one_thread_iterates_both_equally_often(self):
    clock = threads.Schedule(30, 0)
    train.loop(clock, threads.Crew(
        lambda: None, (lambda _: 3,), lambda _: None), lambda: None)
    self.assertEqual((clock.steps, clock.iterations), (30, 10))

  @parameterized.parameters(True, False)
  def test_in_lockstep_both_iterate_together_or_one_after_the_other(
      self, together):
    meeting, inside, calls = threading.Barrier(2), set(), []

    def iterate(kind, _):
      inside.add(kind)
      calls.append(kind)
      if together and calls.count(kind) > 1:  # The first ones trace.
        meeting.wait(_PATIENCE)
      else:
        time.sleep(0.01)
        self.assertEqual(inside, {kind})
        inside.discard(kind)
      return 5 if kind == 'policy' else None

    clock = threads.Schedule(15, 5)
    train.loop(clock, threads.Crew(
        lambda: None, (functools.partial(iterate, 'policy'),),
        functools.partial(iterate, 'discriminator'), together), lambda: None)
    self.assertEqual((clock.steps, clock.iterations), (15, 3))

  @parameterized.parameters('save', 'stop', 'error', 'other')
  def test_a_worker_that_hangs_ends_a_run_that_needs_it(self, what):
    release, released, begun = threading.Event(), [], set()
    self.addCleanup(release.set)

    def iterate(worker):
      begun.add(worker)  # All have had their first turn, which is alone.
      if worker == 2 and clock.steps > 20 and len(begun) == 4:
        release.wait(60)
        released.append(worker)
      if what == 'other' and worker == 1 and clock.steps > 40:
        raise KeyError('injected')
      time.sleep(0.001)
      return 1

    def tick():
      if what != 'other' and clock.steps > 40:
        if what == 'stop':
          clock.stop()
        elif what == 'error':
          raise KeyError('injected')
        else:
          with clock.paused():
            self.fail('paused')

    clock = threads.Schedule(10**9, 0)
    fails = what in ('error', 'other')
    expected = KeyError if fails else threads.StalledError
    with (mock.patch.object(threads, 'STALL_SECONDS', 0.5),
          self.assertRaises(expected) as caught):
      _drive(clock, iterate, tick)
    self.assertEmpty(released)  # It did not wait for the worker.
    self.assertTrue(clock.finished)
    if not fails:
      message = str(caught.exception)
      self.assertIn('policy-2 has been in one iteration for', message)
      self.assertIn('release.wait(60)', message)
      self.assertIn('The run has ended. It was not saved', message)
      self.assertNotIn('policy-1 ', message)

  def test_it_is_said_what_a_run_waits_for(self):
    release, inside = threading.Event(), threading.Event()
    self.addCleanup(release.set)

    def wait(*_):
      inside.set()
      release.wait(_PATIENCE)
      return dm_env.restart({
          'image': np.zeros([24, 24, 3], np.uint8), 'instruction': 'go'})

    environment = checks.CheckedEnvironment(
        mock.Mock(spec=['reset', 'action_spec'], reset=wait), (24, 24, 3), True)
    for iterate, expected in (
        (environment.reset, "the environment's reset()"),
        (lambda: tf.nest.map_structure(wait, 1), 'TensorFlow'),
        (wait, '')):
      clock = threads.Schedule(10, 0)
      self.assertEqual(clock.waits_for(), '')

      def run(clock=clock, iterate=iterate):
        with clock.turn('policy'):
          iterate()

      thread = threading.Thread(target=run)
      thread.start()
      self.assertTrue(inside.wait(_PATIENCE))
      self.assertEqual(clock.waits_for(), expected)
      release.set()
      thread.join()
      inside.clear()
      release.clear()

  @parameterized.parameters(
      (1, 0, 'policy'), (2, 1, 'policy-1'), (1, 'D', 'discriminator'))
  def test_a_slow_worker_is_reported_again_and_again_and_goes_on(
      self, count, slow, name):
    clock, calls, reported = threads.Schedule(10**9, 0), [], []

    def iterate(worker):
      calls.append(worker)
      if worker == slow and calls.count(worker) == 3:
        start = time.monotonic()
        while len(logs.output) < 2 and time.monotonic() - start < _PATIENCE:
          time.sleep(.01)
        reported.append(time.monotonic() - start)
      time.sleep(0.001)
      return 1

    def tick():
      if calls.count(slow) > 3:
        clock.stop()

    with (mock.patch.object(threads, 'STALL_SECONDS', 0.5),
          self.assertLogs('absl', 'WARNING') as logs):
      _drive(clock, iterate, tick, count, lambda _: iterate('D'))
    self.assertLen(logs.output, 2)
    self.assertGreater(reported[0], 0.8)  # One each half a second.
    for report in logs.output:
      self.assertIn(f'{name} has been in', report)
      self.assertIn('time.sleep(.01)', report)
    self.assertGreater(calls.count(slow), 3)

  @pytest.mark.slow
  def test_a_suspended_process_is_not_a_hung_one(self):
    code = """
import os, signal, threading, time
from agile_tf.training import machine
machine.import_tensorflow()  # It prints nothing so.
from agile_tf.training import threads

def iterate():
  clock.begin('policy')
  threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGSTOP)).start()
  for _ in range(10):
    time.sleep(0.1)
  clock.end('policy', 1)

clock = threads.Schedule(10, 0)
threading.Thread(target=iterate).start()
while not clock.turns:
  time.sleep(0.01)
threads.STALL_SECONDS = 2.0
with clock.paused():
  pass
"""
    process = subprocess.Popen(
        [sys.executable, '-c', code], stderr=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    time.sleep(5)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    self.assertEqual((process.returncode, errors), (0, ''))

  def test_each_iteration_reads_anew(self):
    seen, counter = [], itertools.count()
    train.loop(threads.Schedule(60, 0), threads.Crew(
        lambda: next(counter), (lambda read: seen.append(read) or 1,) * 3,
        None), lambda: None)
    self.assertLen({*seen}, len(seen))

  def test_first_iterations_are_one_at_a_time(self):
    """The first one compiles for the others."""
    firsts: dict[int, tuple[float, float]] = {}

    def iterate(worker):
      start = time.monotonic()
      time.sleep(.02)
      firsts.setdefault(worker, (start, time.monotonic()))
      return 1

    _drive(threads.Schedule(100, 0), iterate)
    self.assertLen(firsts, 4)
    for (_, end), (start, _) in itertools.pairwise(sorted(firsts.values())):
      self.assertLessEqual(end, start)
