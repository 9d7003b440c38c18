"""Watches over a run: metrics that worry, and workers that hang."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import sys
import threading
import time
import traceback
from typing import Any

from absl import logging
import numpy as np

# Below this share of the greatest possible entropy a policy hardly explores.
_COLLAPSED = 0.01
# A discriminator that accepts, or rejects, more than this of both its goals
# and its negatives says the same of everything.
_SAME = 0.99


def warnings(row: Mapping[str, Any], num_actions: int) -> dict[str, str]:
  """Looks for what should worry the owner of a run.

  Args:
    row: Of metrics.
    num_actions: How many the policy has.

  Returns:
    Messages, by a key for each kind.
  """
  found = {}
  if row.get('entropy', np.inf) < _COLLAPSED * np.log(num_actions):
    found['entropy'] = (
        f"The policy's entropy is {row['entropy']:.2g} of at most "
        f'{np.log(num_actions):.2g}: it hardly explores any more. A larger '
        '--entropy_weight keeps it exploring.')
  goals, negatives = (
      row.get(name, np.nan)
      for name in ('goals_accepted', 'negatives_rejected'))
  if goals > _SAME and negatives < 1 - _SAME:
    found['discriminator'] = (
        'The discriminator takes everything for a goal state. If this lasts, '
        'give it more updates (--steps_per_discriminator_update).')
  elif goals < 1 - _SAME and negatives > _SAME:
    found['discriminator'] = (
        'The discriminator takes nothing for a goal state. If this lasts, use '
        'a smaller --anticipated_negative_rate.')
  return found


class Watchdog:
  """Reports workers whose iteration takes too long, and ends none.

  Used as a context manager around a run; a thread of its own looks after the
  workers, so that it also sees the main thread hang.

  Attributes:
    limit: In seconds.
  """

  def __init__(self, limit_seconds: float,
               report: Callable[[str], None] = logging.warning):
    """Takes the limit.

    Args:
      limit_seconds: How long an iteration may take. Each time that it has
        passed again there is a report.
      report: Where messages go.
    """
    self.limit = limit_seconds
    self._report = report
    self._lock = threading.Lock()
    # By thread: the worker's name, when it began, how often it was reported.
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
    """Stands around an iteration of a worker, in the worker's thread."""
    thread = threading.get_ident()
    with self._lock:
      self._running[thread] = (name, time.monotonic(), 0)
    try:
      yield
    finally:
      with self._lock:
        del self._running[thread]

  def stacks(self) -> str:
    """Says which workers are in an iteration, and where."""
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
        f'than --stall_minutes. It goes on; it is here:\n{_stack(thread)}'
        for thread, name, seconds in late]


def _stack(thread: int) -> str:
  """Returns where a thread is."""
  frames = sys._current_frames()  # pylint: disable=protected-access
  return ''.join(traceback.format_stack(frames.get(thread)))
