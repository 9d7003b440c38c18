"""Warnings about a run: suspicious metrics, and workers that hang."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import sys
import threading
import time
import traceback
from typing import Any

from absl import logging
import numpy as np

# Below this share of the maximum entropy, a policy hardly explores.
_COLLAPSED = 0.01
# A discriminator that accepts (or rejects) more than this share of both the
# goals and the negatives makes the same decision for every state.
_SAME = 0.99


def warnings(row: Mapping[str, Any], num_actions: int) -> dict[str, str]:
  """Returns warnings about suspicious metrics.

  Args:
    row: A row of metrics.
    num_actions: How many actions the policy has.

  Returns:
    Messages by kind, such as 'entropy'.
  """
  found = {}
  if row.get('entropy', np.inf) < _COLLAPSED * np.log(num_actions):
    found['entropy'] = (
        f"The policy's entropy is {row['entropy']:.2g}, and its maximum "
        f'{np.log(num_actions):.2g}: the policy hardly explores any more. A '
        'larger --entropy_weight keeps it exploring.')
  goals, negatives = (
      row.get(name, np.nan)
      for name in ('goals_accepted', 'negatives_rejected'))
  if goals > _SAME and negatives < 1 - _SAME:
    found['discriminator'] = (
        'The discriminator accepts every state as a goal state. If this lasts, '
        'update it more often (a smaller --steps_per_discriminator_update).')
  elif goals < 1 - _SAME and negatives > _SAME:
    found['discriminator'] = (
        'The discriminator accepts no state as a goal state. If this lasts, '
        'use a smaller --anticipated_negative_rate.')
  return found


class Watchdog:
  """Reports workers whose iteration takes too long, without stopping them.

  It is a context manager, and has a thread of its own, so that it also notices
  when the main thread hangs.

  Attributes:
    limit: The seconds that an iteration may take.
  """

  def __init__(self, limit_seconds: float,
               report: Callable[[str], None] = logging.warning):
    """Takes the limit, and what receives a text after each such period."""
    self.limit = limit_seconds
    self._report = report
    self._lock = threading.Lock()
    # By thread: the worker's name, when its iteration began, and when it is
    # next late.
    self._running: dict[int, tuple[str, float, float]] = {}
    self._closed = threading.Event()
    self._thread = threading.Thread(
        target=self._watch, name='watchdog', daemon=True)

  def __enter__(self) -> 'Watchdog':
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._closed.set()
    self._thread.join()

  @contextlib.contextmanager
  def iteration(self, name: str) -> Iterator[None]:
    """Watches one iteration of a worker: the block, in the worker's thread."""
    thread, now = threading.get_ident(), time.monotonic()
    with self._lock:
      self._running[thread] = name, now, now + self.limit
    try:
      yield
    finally:
      with self._lock:
        del self._running[thread]

  def stacks(self) -> str:
    """Returns which workers are in an iteration, with their stack traces."""
    return '\n'.join(self._describe(late=False))

  def _watch(self) -> None:
    while not self._closed.wait(min(1.0, self.limit / 4)):
      for text in self._describe(late=True):
        self._report(text)

  def _describe(self, late: bool) -> list[str]:
    """Describes the workers in an iteration: all, or those that are late."""
    now, found = time.monotonic(), []
    with self._lock:
      for thread, (name, start, due) in self._running.items():
        if late and now <= due:
          continue
        if late:
          self._running[thread] = name, start, due + self.limit
        found.append((thread, name, now - start))
    frames = sys._current_frames()
    return [
        f'{name} has been in one iteration for {seconds:.0f} seconds. It is '
        'here:\n' + ''.join(traceback.format_stack(frames.get(thread)))
        for thread, name, seconds in found]
