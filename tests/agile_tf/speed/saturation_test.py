"""Tests the simulation of a cluster where its speed is known."""

from absl.testing import absltest
from absl.testing import parameterized

from agile_tf.speed import saturation

_INPUTS = saturation.Inputs(
    device_seconds=0.1, chief_seconds=0.01, bytes=1e6, steps=15)


class SaturationTest(parameterized.TestCase):

  @parameterized.parameters(
      # Two threads keep one device busy.
      (1, 1e9, 15 / 0.1), (4, 1e9, 4 * 15 / 0.1),
      # The chief handles 100 rollouts a second.
      (64, 1e9, 15 * 100),
      # The network carries 10 of them.
      (64, 1e7, 15 * 10))
  def test_what_is_slowest_decides(self, servers, bytes_per_second, speed):
    self.assertAlmostEqual(
        saturation.steps_per_second(_INPUTS, servers, bytes_per_second), speed,
        delta=0.03 * speed)

  def test_one_thread_waits_for_everything(self):
    self.assertAlmostEqual(
        saturation.steps_per_second(_INPUTS, 1, 1e8, threads=1),
        15 / (0.1 + 0.01 + 0.01), delta=1)

  def test_table(self):
    lines = saturation.table(_INPUTS, servers=(1, 2), gigabits=(1,)).split('\n')
    self.assertLen(lines, 4)
    self.assertEqual(lines[0], '| servers | 1 Gbit/s |')
    self.assertEqual(lines[2], '| 1 | 150 steps/s |')

  def test_report(self):
    text = saturation.report(_INPUTS, 0.001, 0.1, 225)
    for part in (
        '15 steps: 100.0 ms of a device, 1.0 MB', 'take 500 updates a second',
        'and 1000 by themselves', '--policy_workers=10', '| 1 | 150 steps/s |',
        'needs 100 ms of the chief for 225 policy steps',
        'no cluster makes more than 2,250 steps/s'):
      self.assertIn(part, text)


if __name__ == '__main__':
  absltest.main()
