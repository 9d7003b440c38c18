"""The clock that all threads share: it decides which worker may iterate.

It counts policy steps and the iterations of the discriminator's worker, keeps
their ratio, and ends the run after its last step. The launcher can pause all
workers between two iterations, so that a checkpoint is consistent.
"""

from collections.abc import Iterator
import contextlib
import math
import threading

from gridlu import program

_DISCRIMINATOR = 'discriminator'


class StalledError(program.UserError):
  """A worker that does not finish its iteration in time."""


class Schedule:
  """Counts and paces the iterations of a run's workers.

  Attributes:
    steps: Policy steps made.
    iterations: Iterations of the discriminator's worker.
    error: The first exception of any thread, if there was one.
  """

  def __init__(self, total_steps: int, ratio: int, head_start: int = 0):
    """Begins at step 0.

    Args:
      total_steps: The step at which the run ends.
      ratio: Policy steps for each iteration of the discriminator's worker;
        0 sets no ratio.
      head_start: Iterations of the discriminator's worker before the first
        policy step. The ratio holds for those that follow.
    """
    self.steps = 0
    self.iterations = 0
    self.error: BaseException | None = None
    self._total_steps = total_steps
    self._ratio = ratio
    self._head_start = head_start
    self._changed = threading.Condition()
    self._running = 0
    self._paused = False
    self._stopped = False

  @property
  def iterations_after_head_start(self) -> int:
    """Iterations of the discriminator's worker; negative in its head start."""
    return self.iterations - self._head_start

  def may(self, kind: str) -> bool:
    """Returns whether the ratio lets 'policy' or 'discriminator' iterate."""
    iterations = self.iterations_after_head_start
    if iterations < 0:
      return kind == _DISCRIMINATOR
    if not self._ratio:
      return True
    if kind == _DISCRIMINATOR:
      return iterations * self._ratio <= self.steps
    return self.steps < (iterations + 1) * self._ratio

  @property
  def finished(self) -> bool:
    """Whether the run is over or has been stopped."""
    return self._stopped or self.steps >= self._total_steps

  def stop(self) -> None:
    """Ends the run: threads finish their iterations and begin no others."""
    with self._changed:
      self._stopped = True
      self._changed.notify_all()

  def wait(self, seconds: float) -> None:
    """Waits until the run is over, but no longer than this."""
    with self._changed:
      self._changed.wait_for(lambda: self.finished, seconds)

  def begin(self, kind: str) -> bool:
    """Waits until a worker ('policy' or 'discriminator') may iterate.

    Returns:
      Whether it may; False if the run is over.
    """
    with self._changed:
      self._changed.wait_for(
          lambda: self.finished or not self._paused and self.may(kind))
      if self.finished:
        return False
      self._running += 1
      return True

  def end(self, kind: str, steps: int = 0) -> None:
    """Records the end of an iteration.

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
    """Pauses all workers between two iterations.

    Args:
      seconds: How long to wait for iterations in progress.

    Raises:
      StalledError: if one of them takes longer.
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
    """Ends an iteration that has failed, and the run."""
    with self._changed:
      self.error = self.error or error
      self._running -= 1
      self._stopped = True
      self._changed.notify_all()
