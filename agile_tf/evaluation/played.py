"""Played episodes, and the success rate of many with its interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
  """A played episode."""
  instruction: str
  final: np.ndarray  # uint8, the final state as the world observes it
  decisions: np.ndarray | None  # bool [n], the reward model's
  truth: np.ndarray | None  # bool [n], by the ground truth or the checker
  start: np.ndarray | None = None  # uint8, the first state

  @property
  def success(self) -> bool:
    """Whether the final state is a goal state; False if that is not known."""
    return self.truth is not None and bool(self.truth[-1])


def interval(successes: int, count: int) -> tuple[float, float]:
  """Returns Wilson's 95 % confidence interval of a rate.

  Args:
    successes: How many of them.
    count: Of how many, at least 1.
  """
  z = 1.959964
  rate = successes / count
  center = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
  half = z / (1 + z**2 / count) * np.sqrt(
      rate * (1 - rate) / count + z**2 / (4 * count**2))
  return max(0.0, center - half), min(1.0, center + half)


def between(ends: Sequence[float]) -> str:
  """Formats an interval of a rate for people."""
  low, high = ends
  return f'{100 * low:.1f} to {100 * high:.1f} %'
