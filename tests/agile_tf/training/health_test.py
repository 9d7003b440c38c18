"""Tests for health: suspicious metrics, and workers that hang."""

import threading
import time

from absl.testing import absltest
from absl.testing import parameterized

from agile_tf.training import health


class WarningsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(entropy=1.5, goals_accepted=.9, negatives_rejected=.9), ()),
      (dict(entropy=.015), ('entropy',)),
      (dict(entropy=.017), ()),
      (dict(goals_accepted=1., negatives_rejected=.0), ('discriminator',)),
      (dict(goals_accepted=.0, negatives_rejected=1.), ('discriminator',)),
      (dict(goals_accepted=.995, negatives_rejected=.005), ('discriminator',)),
      (dict(goals_accepted=.98, negatives_rejected=.005), ()),
      (dict(goals_accepted=.995, negatives_rejected=.02), ()),
      (dict(goals_accepted=.005, negatives_rejected=.995), ('discriminator',)),
      (dict(goals_accepted=.02, negatives_rejected=.995), ()),
      (dict(goals_accepted=.005, negatives_rejected=.98), ()),
      (dict(goals_accepted=1., negatives_rejected=1.), ()),
      (dict(goals_accepted=0., negatives_rejected=0.), ()),
      (dict(goals_accepted=1.), ()),
      (dict(negatives_rejected=1.), ()),
      (dict(), ()))
  def test_warnings(self, row, kinds):
    found = health.warnings(row, num_actions=5)
    self.assertEqual(tuple(found), kinds)
    for text in found.values():
      accepts = 'accepts every state', '(a smaller --steps_per_discriminator'
      self.assertEqual(
          [part in text for part in accepts],
          [row.get('goals_accepted', 0.0) > .5] * 2, text)


class WatchdogTest(absltest.TestCase):

  def test_a_hanging_worker_is_reported_and_goes_on(self):
    reports, release, finished = [], threading.Event(), []

    def hang(watchdog):
      with watchdog.iteration('policy-3'):
        release.wait(30)
        finished.append(True)

    with health.Watchdog(.05, reports.append) as watchdog:
      thread = threading.Thread(target=hang, args=(watchdog,))
      thread.start()
      deadline = time.monotonic() + 30
      while len(reports) < 2 and time.monotonic() < deadline:
        time.sleep(.01)
      release.set()
      thread.join()
    self.assertTrue(finished)
    self.assertGreaterEqual(len(reports), 2)
    for report in reports:
      self.assertStartsWith(report, 'policy-3 has been in one iteration for')
      self.assertIn('release.wait(30)', report)  # Where it is.

  def test_quick_workers_are_not_reported(self):
    reports = []
    with health.Watchdog(5, reports.append) as watchdog:
      for _ in range(100):
        with watchdog.iteration('policy-0'):
          pass
    self.assertEmpty(reports)

  def test_an_iteration_that_fails_is_over(self):
    reports = []
    with health.Watchdog(.05, reports.append) as watchdog:
      with self.assertRaisesRegex(RuntimeError, 'injected'):
        with watchdog.iteration('policy-0'):
          raise RuntimeError('injected')
      time.sleep(.2)
    self.assertEmpty(reports)


if __name__ == '__main__':
  absltest.main()
