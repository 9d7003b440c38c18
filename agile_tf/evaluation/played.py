"""Episodes that evaluation plays, and confidence intervals of rates."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Episode(NamedTuple):
  """An episode of n steps that evaluation played."""
  instruction: str
  states: np.ndarray  # uint8 [n + 1, ...], the observations of s_0 ... s_n.
  # bool [n], whether D accepts s_1 ... s_n; None without D.
  decisions: np.ndarray | None = None
  # bool [n], whether they are goal states, by the ground truth or the checker;
  # None if the world has neither.
  truth: np.ndarray | None = None
  # float32 [n], D(c, s) of s_1 ... s_n; None without D.
  probabilities: np.ndarray | None = None

  @property
  def success(self) -> bool:
    """Whether the final state is a goal state; False if `truth` is None."""
    return self.truth is not None and bool(self.truth[-1])


def interval(successes: int, count: int) -> tuple[float, float]:
  """Returns Wilson's 95 % confidence interval of a rate, in [0, 1]."""
  z = 1.959964
  rate = successes / count
  center = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
  half = z / (1 + z**2 / count) * np.sqrt(
      rate * (1 - rate) / count + z**2 / (4 * count**2))
  return max(0.0, center - half), min(1.0, center + half)


def rate(outcomes: Sequence[bool]) -> dict[str, Any]:
  """Returns how many 'episodes', the success 'rate' and its 'interval'."""
  successes, count = sum(outcomes), len(outcomes)
  return {'episodes': count, 'rate': successes / count,
          'interval': interval(successes, count)}


def between(ends: Sequence[float]) -> str:
  """Returns the interval of a rate as text, such as '58.1 to 61.0 %'."""
  low, high = ends
  return f'{100 * low:.1f} to {100 * high:.1f} %'
