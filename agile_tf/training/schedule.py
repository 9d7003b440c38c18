"""Who may iterate, and when: the clock that all threads share.

It counts policy steps and the discriminator worker's iterations, holds their
ratio, ends the run after its last step, and lets the launcher pause everybody
between two iterations so that a checkpoint is consistent.
"""

from collections.abc import Iterator
import contextlib
import math
import threading

from gridlu import program

_DISCRIMINATOR = 'discriminator'


class StalledError(program.UserError):
  """A worker that does not come to the end of its iteration."""


class Schedule:
  """Counts and paces the iterations of a run's workers.

  Attributes:
    steps: Policy steps made.
    iterations: Iterations of the discriminator's worker.
    error: The first exception of any thread, if there was one.
  """

  def __init__(self, total_steps: int, ratio: int):
    """Begins at step 0.

    Args:
      total_steps: When the run ends.
      ratio: Policy steps for each iteration of the discriminator's worker;
        0 paces nobody.
    """
    self.steps = 0
    self.iterations = 0
    self.error: BaseException | None = None
    self._total_steps = total_steps
    self._ratio = ratio
    self._changed = threading.Condition()
    self._running = 0
    self._paused = False
    self._stopped = False

  def may(self, kind: str) -> bool:
    """Whether a worker ('policy' or 'discriminator') is not ahead."""
    if not self._ratio:
      return True
    if kind == _DISCRIMINATOR:
      return self.iterations * self._ratio <= self.steps
    return self.steps < (self.iterations + 1) * self._ratio

  @property
  def finished(self) -> bool:
    """Whether the run is over or has been stopped."""
    return self._stopped or self.steps >= self._total_steps

  def stop(self) -> None:
    """Lets every thread finish its iteration and no other begin."""
    with self._changed:
      self._stopped = True
      self._changed.notify_all()

  def wait(self, seconds: float) -> None:
    """Waits until the run is over, but not longer than this."""
    with self._changed:
      self._changed.wait_for(lambda: self.finished, seconds)

  def begin(self, kind: str) -> bool:
    """Waits until a worker may iterate.

    Returns:
      False if the run is over.
    """
    with self._changed:
      self._changed.wait_for(
          lambda: self.finished or not self._paused and self.may(kind))
      if self.finished:
        return False
      self._running += 1
      return True

  def end(self, kind: str, steps: int = 0) -> None:
    """Says that an iteration is over.

    Args:
      kind: 'policy' or 'discriminator'.
      steps: The policy steps that it made.
    """
    with self._changed:
      self._running -= 1
      if kind == _DISCRIMINATOR:
        self.iterations += 1
      else:
        self.steps += steps
      self._changed.notify_all()

  @contextlib.contextmanager
  def paused(self, seconds: float = math.inf) -> Iterator[None]:
    """Holds everybody between two iterations.

    Args:
      seconds: How long those that are in one may take.

    Raises:
      StalledError: if one takes longer.
    """
    with self._changed:
      self._paused = True
    try:
      with self._changed:
        if not self._changed.wait_for(
            lambda: not self._running, min(seconds, threading.TIMEOUT_MAX)):
          raise StalledError(
              f'{self._running} of the workers did not end their iterations in '
              f'{seconds:.0f} seconds.')
      yield
    finally:
      with self._changed:
        self._paused = False
        self._changed.notify_all()

  def abandon(self, error: BaseException) -> None:
    """Ends an iteration that has failed, and with it the run."""
    with self._changed:
      self.error = self.error or error
      self._running -= 1
      self._stopped = True
      self._changed.notify_all()
