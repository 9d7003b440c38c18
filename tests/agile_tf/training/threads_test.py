"""Tests the threads of a run, with workers that fail, hang or are slow."""

import itertools
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from agile_tf.training import building
from agile_tf.training import schedule
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from tests.agile_tf import tiny


def _stand_in(clock, iterate):
  """Returns a trainer with four policy workers, which are numbers."""
  trainer = mock.Mock(schedule=clock, policy_workers=list(range(4)),
                      discriminator_worker=None, devices=('',))
  trainer.iterate_policy.side_effect = iterate
  return trainer


class ThreadsTest(parameterized.TestCase):

  @parameterized.product(
      where=('policy', 'discriminator', 'main'),
      error=(RuntimeError('injected'), SystemExit(0)))
  def test_an_exception_in_a_thread_ends_the_run(self, where, error):
    config = tiny.config(
        run_dir=self.create_tempdir().full_path, policy_workers=3,
        policy_threads=3, steps=100_000)
    trainer = trainer_lib.Trainer(building.Builder(config))
    victim = (trainer.policy_workers[1] if where == 'policy' else
              trainer.discriminator_worker)
    original, calls = victim.iterate, []

    def fail():
      calls.append(1)
      if len(calls) == 3:
        raise error

    def iterate(*steps):
      fail()
      return original(*steps)

    if where != 'main':
      victim.iterate = iterate
    with self.assertRaisesRegex(RuntimeError, r'injected|called exit\(0\)'):
      threads.drive(trainer, fail if where == 'main' else lambda: None)
    self.assertEmpty([t.name for t in threading.enumerate()
                      if t.name.startswith(('policy', 'discriminator'))])

  @parameterized.parameters('save', 'stop', 'error')
  def test_a_worker_that_hangs_ends_a_run_that_needs_it(self, what):
    release = threading.Event()
    self.addCleanup(release.set)

    def iterate(worker):
      if worker == 2 and clock.steps > 20:
        release.wait(60)
      time.sleep(0.001)
      return 1

    def tick():
      if clock.steps > 40:
        if what == 'stop':
          clock.stop()
        elif what == 'error':
          raise KeyError('injected')
        else:
          with clock.paused(0.2):
            self.fail('paused')

    clock = schedule.Schedule(10**9, 0)
    trainer = _stand_in(clock, iterate)
    expected = KeyError if what == 'error' else schedule.StalledError
    start = time.monotonic()
    with self.assertRaises(expected) as caught:
      threads.drive(trainer, tick, stall_minutes=0.2 / 60)
    self.assertLess(time.monotonic() - start, 30)
    self.assertTrue(clock.finished)
    if what != 'error':
      message = str(caught.exception)
      self.assertIn('policy-2 has been in one iteration for', message)
      self.assertIn('release.wait(60)', message)
      self.assertIn('The run has ended. It was not saved', message)
      self.assertNotIn('policy-1 ', message)

  @parameterized.parameters((2, 1), (3, 3))
  def test_a_slow_worker_is_reported_and_goes_on(self, count, num_threads):
    config = tiny.config(
        run_dir=self.create_tempdir().full_path, policy_workers=count,
        policy_threads=num_threads, steps=100_000)
    trainer = trainer_lib.Trainer(building.Builder(config))
    slow = trainer.policy_workers[-1]
    original, calls = slow.iterate, []

    def iterate(step):
      calls.append(1)
      if len(calls) == 1:
        time.sleep(1)
      return original(step)

    def tick():
      if len(calls) > 2:
        trainer.schedule.stop()

    slow.iterate = iterate
    with self.assertLogs('absl', 'WARNING') as logs:
      threads.drive(trainer, tick, stall_minutes=0.5 / 60)
    self.assertRegex('\n'.join(logs.output), 'policy.* has been in one iter')
    self.assertGreater(len(calls), 2)

  def test_first_iterations_are_one_at_a_time(self):
    """The first one compiles for the others."""
    firsts: dict[int, tuple[float, float]] = {}

    def iterate(worker):
      start = time.monotonic()
      time.sleep(.02)
      firsts.setdefault(worker, (start, time.monotonic()))
      return 1

    trainer = _stand_in(schedule.Schedule(100, 0), iterate)
    threads.drive(trainer, lambda: None)
    self.assertLen(firsts, 4)
    for (_, end), (start, _) in itertools.pairwise(sorted(firsts.values())):
      self.assertLessEqual(end, start)


if __name__ == '__main__':
  absltest.main()
