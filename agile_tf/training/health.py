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

  Use it as a context manager around a run. It has its own thread, so that it
  also notices when the main thread hangs.

  Attributes:
    limit: The time that an iteration may take, in seconds.
  """

  def __init__(self, limit_seconds: float,
               report: Callable[[str], None] = logging.warning):
    """Takes the limit.

    Args:
      limit_seconds: How long an iteration may take. A worker that exceeds this
        is reported, and again after each further period of this length.
      report: Receives the messages.
    """
    self.limit = limit_seconds
    self._report = report
    self._lock = threading.Lock()
    # By thread: the worker's name, when its iteration began, and how often that
    # was reported.
    self._running: dict[int, tuple[str, float, int]] = {}
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
    thread = threading.get_ident()
    with self._lock:
      self._running[thread] = (name, time.monotonic(), 0)
    try:
      yield
    finally:
      with self._lock:
        del self._running[thread]

  def stacks(self) -> str:
    """Returns which workers are in an iteration, with their stack traces."""
    with self._lock:
      running = [(thread, name, start)
                 for thread, (name, start, _) in self._running.items()]
    now = time.monotonic()
    return '\n'.join(
        f'{name} has been in one iteration for {now - start:.0f} seconds. It '
        f'is here:\n{_stack(thread)}' for thread, name, start in running)

  def _watch(self) -> None:
    while not self._closed.wait(min(1.0, self.limit / 4)):
      for text in self._late():
        self._report(text)

  def _late(self) -> list[str]:
    late = []
    now = time.monotonic()
    with self._lock:
      for thread, (name, start, reports) in self._running.items():
        if now - start > (reports + 1) * self.limit:
          self._running[thread] = (name, start, reports + 1)
          late.append((thread, name, now - start))
    return [
        f'{name} has been in one iteration for {seconds:.0f} seconds, more '
        f'than --stall_minutes. It is still running, here:\n{_stack(thread)}'
        for thread, name, seconds in late]


def _stack(thread: int) -> str:
  """Returns a thread's stack trace."""
  frames = sys._current_frames()  # pylint: disable=protected-access
  return ''.join(traceback.format_stack(frames.get(thread)))
