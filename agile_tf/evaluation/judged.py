"""How good a reward model is, from its probabilities D(c, s)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agile_tf.training import metrics

THRESHOLDS = (0.5, 0.8, 0.9, 0.95)

POLICY_STATES = 'policy_states'


def by_threshold(probabilities: Mapping[str, np.ndarray],
                 truth: np.ndarray | None = None,
                 thresholds: Sequence[float] = THRESHOLDS
                ) -> list[dict[str, float]]:
  """Returns what D accepts, and its errors, for each threshold.

  Args:
    probabilities: D(c, s) of states, float32 [N], by their kind:
      'policy_states', and those that
      `agile_tf.training.held_out_goals.GoalTest.probabilities` returns.
    truth: Which of the policy's states are goal states, bool [N]; None if
      nobody knows.
    thresholds: What D must exceed to accept a state.

  Returns:
    For each threshold, in ascending order, the 'threshold' and the share of
    each kind that is accepted, such as 'policy_states_accepted'; with a truth
    also the keys of `metrics.decision_errors`, of the policy's states.
  """
  rows = []
  for threshold in sorted(set(thresholds)):
    row = {'threshold': threshold, **{
        f'{kind}_accepted': float(np.mean(values > threshold))
        for kind, values in probabilities.items()}}
    if truth is not None:
      row |= metrics.decision_errors(
          probabilities[POLICY_STATES] > threshold, truth)
    rows.append(row)
  return rows


def reliability(probabilities: np.ndarray, truth: np.ndarray, bins: int = 10
               ) -> list[dict[str, Any]]:
  """Returns how often a state is a goal state, by the probability that D gives.

  If D is reliable, the share of goal states and the mean probability are equal
  in each bin.

  Args:
    probabilities: D(c, s), float32 [N].
    truth: Which states are goal states, bool [N].
    bins: How many equally wide bins there are from 0 to 1.

  Returns:
    For each bin that has a state: its bounds 'low' and 'high'; the number of
    its 'states'; their 'mean_probability'; and the share 'goal_states' of them
    that are goal states. A probability at a bound belongs to the higher bin,
    and 1 belongs to the last.
  """
  values = probabilities.astype(np.float64)
  bin_of_state = np.minimum((values * bins).astype(int), bins - 1)
  counts, sums, goals = (np.bincount(bin_of_state, weights, bins)
                         for weights in (None, values, truth))
  return [{'low': i / bins, 'high': (i + 1) / bins, 'states': int(counts[i]),
           'mean_probability': sums[i] / counts[i],
           'goal_states': goals[i] / counts[i]}
          for i in np.flatnonzero(counts).tolist()]
