"""Which worker of a run iterates when, in one thread or in several.

The schedule is the clock that all threads share. It counts policy steps and the
iterations of the discriminator's worker, keeps their ratio, and ends the run
after its last step. It can pause all workers between two iterations, so that a
checkpoint is consistent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import contextlib
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

from absl import logging

from gridlu import program

_DISCRIMINATOR = 'discriminator'
# Seconds in one iteration after which a worker is reported. With several
# threads a run that must save or end then ends with an error.
STALL_SECONDS = 600.0


class StalledError(program.UserError):
  """A worker that does not finish its iteration in time."""


class Turn(NamedTuple):
  """An iteration in progress."""
  worker: str
  thread: int
  start: float  # By the monotonic clock.

  def describe(self) -> str:
    """Returns how long it has taken, with its thread's stack trace."""
    return (
        f'{self.worker} has been in one iteration for '
        f'{time.monotonic() - self.start:.0f} seconds. It is here:\n' +
        ''.join(traceback.format_stack(
            sys._current_frames().get(self.thread))))


class Schedule:
  """Counts and paces the iterations of workers: 'policy', 'discriminator'."""

  def __init__(self, total_steps: int, ratio: int, head_start: int = 0):
    """Begins at step 0 of a run that ends at `total_steps`.

    `ratio` is the policy steps for each iteration of the discriminator's
    worker, after the `head_start` iterations before the first policy step. 0
    sets no ratio.
    """
    self.steps = 0  # Policy steps made.
    self.iterations = 0  # Of the discriminator's worker.
    self.error: BaseException | None = None  # The first one of any thread.
    self._total_steps = total_steps
    self._ratio = ratio
    self._head_start = head_start
    self._changed = threading.Condition()
    self._turns: dict[int, Turn] = {}  # By thread.
    self._paused = False
    self._stopped = False

  @property
  def iterations_after_head_start(self) -> int:
    """Iterations of the discriminator's worker; negative in its head start."""
    return self.iterations - self._head_start

  def may(self, kind: str) -> bool:
    """Returns whether the ratio lets a worker of this kind iterate."""
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

  @property
  def turns(self) -> list[Turn]:
    """The iterations in progress."""
    with self._changed:
      return list(self._turns.values())

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
    """Waits until this thread's worker may; False if the run is over."""
    with self._changed:
      self._changed.wait_for(
          lambda: self.finished or not self._paused and self.may(kind))
      if self.finished:
        return False
      self._enter(threading.current_thread().name)
      return True

  def _enter(self, worker: str) -> None:
    thread = threading.get_ident()
    self._turns[thread] = Turn(worker, thread, time.monotonic())

  def end(self, kind: str, steps: int = 0, error: BaseException | None = None
         ) -> None:
    """Counts this thread's iteration, or ends the run with its error."""
    with self._changed:
      self._turns.pop(threading.get_ident(), None)
      if error is not None:
        self.error = self.error or error
        self._stopped = True
      elif kind == _DISCRIMINATOR:
        self.iterations += 1
      else:
        self.steps += steps
      self._changed.notify_all()

  def due(self, kinds: Iterable[str]) -> list[str]:
    """Returns which of these may iterate; none if the run is over."""
    with self._changed:
      return [] if self.finished else [kind for kind in kinds if self.may(kind)]

  @contextlib.contextmanager
  def turn(self, kind: str) -> Iterator[None]:
    """Lasts for an iteration that was due, and that `end` counts later."""
    with self._changed:
      self._enter(kind)
    try:
      yield
    finally:
      with self._changed:
        del self._turns[threading.get_ident()]

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Pauses all workers between two iterations.

    Raises:
      StalledError: if an iteration in progress takes `STALL_SECONDS` more.
    """
    with self._changed:
      self._paused = True
    try:
      with self._changed:
        left = STALL_SECONDS
        # A suspended process is not a hung one: it loses one of the seconds.
        while not self._changed.wait_for(
            lambda: not self._turns, min(left, 1.0)) and left > 0:
          left -= 1
        if self._turns:
          raise StalledError(
              f'{len(self._turns)} of the workers did not end their iterations '
              f'in {STALL_SECONDS:.0f} seconds.')
      yield
    finally:
      with self._changed:
        self._paused = False
        self._changed.notify_all()


def drive(schedule: Schedule, read: Callable[[], Any],
          policy: Sequence[Callable[[Any], int]],
          discriminator: Callable[[Any], None] | None,
          tick: Callable[[], None], together: bool = True,
          num_devices: int = 1) -> None:
  """Iterates a run's workers until the run is over.

  Each iteration takes what `read` returned at its beginning. The policy's
  workers return the policy steps made. If there are several, each has a thread
  of its own, and these are dealt over the devices. A single one iterates in
  lockstep with the discriminator's: `together`, or one after the other. `tick`
  is called repeatedly in this thread. After `STALL_SECONDS` in one iteration a
  worker is reported; with several threads the end of the run waits as long.

  Raises:
    Exception: the first exception of any thread.
    StalledError: else, if it still has not ended its iteration.
  """
  over = threading.Event()
  # A thread of its own also notices when the main thread hangs.
  watchdog = threading.Thread(
      target=_watch, args=(schedule, over), name='watchdog', daemon=True)
  watchdog.start()
  try:
    if len(policy) == 1:
      _in_lockstep(schedule, read, policy[0], discriminator, tick, together)
    else:
      _in_threads(schedule, read, policy, discriminator, tick, num_devices)
  except SystemExit as error:  # The program would seem to have succeeded.
    raise RuntimeError(
        f'Something in an iteration called exit({error.code!r}).') from error
  finally:
    over.set()
    watchdog.join()


def _watch(schedule: Schedule, over: threading.Event) -> None:
  """Warns of an iteration each time that `STALL_SECONDS` have passed in it.

  They are counted, because a process that was suspended is not a hung one.
  """
  second = min(1.0, STALL_SECONDS / 4)
  spent: dict[Turn, float] = {}
  while not over.wait(second):
    spent = {turn: spent.get(turn, 0.0) + second for turn in schedule.turns}
    for turn, seconds in spent.items():
      if seconds // STALL_SECONDS > (seconds - second) // STALL_SECONDS:
        logging.warning('%s', turn.describe())


def _in_lockstep(schedule: Schedule, read: Callable[[], Any],
                 policy: Callable[[Any], int],
                 discriminator: Callable[[Any], None] | None,
                 tick: Callable[[], None], together: bool) -> None:
  """Iterates both workers in lockstep until the run is over.

  If both may, they iterate from the same parameters. Who may depends only on
  the counts. So the result does not depend on their speed, and a resumed run
  continues in the same order.
  """
  workers: dict[str, Callable[[Any], int | None]] = {'policy': policy}
  if discriminator is not None:
    workers[_DISCRIMINATOR] = discriminator

  def iterate(kind: str) -> int:
    with schedule.turn(kind):
      return workers[kind](parameters) or 0

  # The first steps trace the policy's programs. The names under which compiled
  # programs are kept depend on the order, so nothing else is traced meanwhile.
  run: Callable[..., Iterable[int]] = map
  with futures.ThreadPoolExecutor(len(workers)) as pool:
    while due := schedule.due(workers):
      parameters = read()
      for kind, steps in zip(due, list(run(iterate, due))):
        schedule.end(kind, steps)
        if together and steps:
          run = pool.map
      tick()


def _in_threads(schedule: Schedule, read: Callable[[], Any],
                policy: Sequence[Callable[[Any], int]],
                discriminator: Callable[[Any], None] | None,
                tick: Callable[[], None], num_devices: int) -> None:
  """Iterates each worker in a thread of its own until the run is over."""
  def work(kind: str, iterate: Callable[[Any], int | None],
           alone: contextlib.AbstractContextManager) -> None:
    while schedule.begin(kind):
      try:
        with alone:
          steps = iterate(read()) or 0
        if steps:
          alone = contextlib.nullcontext()
      except BaseException as error:  # The main thread raises it.
        schedule.end(kind, error=error)
        return
      schedule.end(kind, steps)

  # The first steps on a device compile the programs for all of its threads,
  # which take turns until then. If they waited for that inside TensorFlow, it
  # would warn of retracing.
  compiling = [threading.Lock() for _ in range(num_devices)]
  jobs: list[tuple] = [
      (f'policy-{i}', 'policy', iterate, compiling[i % num_devices])
      for i, iterate in enumerate(policy)]
  if discriminator is not None:
    jobs.append((_DISCRIMINATOR, _DISCRIMINATOR, discriminator,
                 contextlib.nullcontext()))
  # Daemons, so that one that hangs does not keep the process alive.
  workers = [threading.Thread(target=work, name=name, args=job, daemon=True)
             for name, *job in jobs]
  for worker in workers:
    worker.start()
  try:
    while not schedule.finished:
      tick()
      schedule.wait(0.2)
    _end(schedule, workers)
  except StalledError as error:
    schedule.stop()
    if schedule.error is None:
      stacks = '\n'.join(turn.describe() for turn in schedule.turns)
      raise StalledError(
          f'{error}\n{stacks}\nThe run has ended. It was not saved, because an '
          'iteration was not complete. The same command resumes it from its '
          'last checkpoint.') from error
  except BaseException:
    with contextlib.suppress(StalledError):
      _end(schedule, workers)
    raise
  if schedule.error is not None:
    raise schedule.error


def _end(schedule: Schedule, threads: Sequence[threading.Thread]) -> None:
  """Stops all threads; StalledError if a last iteration takes too long."""
  schedule.stop()
  with schedule.paused():
    for thread in threads:
      thread.join()
