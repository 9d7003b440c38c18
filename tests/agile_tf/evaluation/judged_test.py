"""Tests for the numbers that say how good a reward model is."""

from absl.testing import absltest
import numpy as np

from agile_tf.evaluation import judged


def _drawn(count, seed=0):
  """Returns probabilities, some of them on the borders of bins, and a truth."""
  rng = np.random.default_rng(seed)
  values = rng.random(count).astype(np.float32)
  values[::7] = rng.choice([0, 0.25, 0.5, 0.75, 1], len(values[::7]))
  return values, rng.random(count) < values


class JudgedTest(absltest.TestCase):

  def test_shares_by_threshold_are_those_of_a_loop(self):
    (values, truth), (goals, _) = _drawn(200), _drawn(30, 1)
    rows = judged.by_threshold(
        {'policy_states': values, 'held_out_goals': goals}, truth,
        (0.9, 0.5, 0.8, 0.95, 0.5))
    self.assertEqual([row['threshold'] for row in rows], [0.5, 0.8, 0.9, 0.95])
    for row in rows:
      right = wrong = missed = accepted = 0
      for value, goal in zip(values.tolist(), truth.tolist()):
        accepts = value > row['threshold']
        accepted += accepts
        right += accepts == goal
        wrong += accepts and not goal
        missed += goal and not accepts
      for name, count in (
          ('policy_states_accepted', accepted),
          ('reward_model_accuracy', right), ('false_positives', wrong),
          ('false_negatives', missed)):
        self.assertAlmostEqual(row.pop(name), count / 200, msg=name)
      self.assertAlmostEqual(row.pop('held_out_goals_accepted'), sum(
          value > row['threshold'] for value in goals.tolist()) / 30)
      self.assertEqual([*row], ['threshold'])
    self.assertEqual([*judged.by_threshold({'policy_states': values})[0]],
                     ['threshold', 'policy_states_accepted'])

  def test_reliability_is_that_of_a_loop(self):
    for bins in 4, 10:
      values, truth = _drawn(200)
      if bins == 10:  # One bin has no state.
        truth, values = truth[values != 0.25], values[values != 0.25]
        keep = (values < 0.2) | (values >= 0.3)
        values, truth = values[keep], truth[keep]
      expected = []
      for i in range(bins):
        inside = [
            (value, goal) for value, goal in zip(
                values.tolist(), truth.tolist())
            if i / bins <= value < (i + 1) / bins or
            value == 1 and i == bins - 1]
        if inside:
          expected.append([i / bins, (i + 1) / bins, len(inside), *(
              sum(each) / len(inside) for each in zip(*inside))])
      rows = judged.reliability(values, truth, bins)
      self.assertEqual([*rows[0]], [
          'low', 'high', 'states', 'mean_probability', 'goal_states'])
      self.assertLen(rows, bins - (bins == 10))
      np.testing.assert_allclose([[*row.values()] for row in rows], expected)
      self.assertEqual(sum(row['states'] for row in rows), len(values))


if __name__ == '__main__':
  absltest.main()
