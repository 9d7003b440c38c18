"""Decides which worker of a run iterates when; has the loop of several threads.

`train` has the loop of a run with one policy thread. The schedule is the clock
that all threads share. It counts policy steps and the iterations of the
discriminator's worker, keeps their ratio, and ends the run after its last step.
It can pause all workers between two iterations, so that a checkpoint is
consistent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple, TYPE_CHECKING

from absl import logging

from gridlu import program

if TYPE_CHECKING:  # The import takes seconds, and signals must not wait.
  from agile_tf.agent.workers import Snapshot

# The two kinds of workers.
POLICY, DISCRIMINATOR = 'policy', 'discriminator'
# A worker that has been in one iteration for so many seconds is reported. When
# a run of several threads saves or ends, it waits so long for iterations that
# are in progress; if one of them still goes on, the run ends with an error.
STALL_SECONDS = 600.0


class StalledError(program.UserError):
  """A worker that does not finish its iteration in time."""


class Crew(NamedTuple):
  """The workers that iterate in a run, and the snapshots they begin with."""
  # Returns theta and phi as they are now. Each iteration begins with it.
  snapshot: Callable[[], 'Snapshot']
  # Each policy thread has a function that makes an iteration of its workers,
  # from a snapshot, and returns the steps that they made.
  policy: tuple[Callable[['Snapshot'], int], ...]
  # The same for the discriminator's worker; None if there is none.
  discriminator: Callable[['Snapshot'], None] | None
  # Whether the discriminator's worker may iterate at the same time as a run's
  # only policy thread. It may if they share nothing but the snapshot, because
  # the result then does not depend on anybody's speed. With several policy
  # threads all workers iterate at the same time, whatever this says.
  side_by_side: bool = True
  num_devices: int = 1  # The policy threads are divided among these.

  @property
  def workers(self) -> dict[str, Callable[['Snapshot'], int | None]]:
    """The workers of a run with one policy thread, by kind."""
    policy, = self.policy
    workers: dict[str, Callable[[Snapshot], int | None]] = {POLICY: policy}
    if self.discriminator is not None:
      workers[DISCRIMINATOR] = self.discriminator
    return workers


class Turn(NamedTuple):
  """An iteration in progress."""
  worker: str  # The worker's name in messages, such as 'policy-3'.
  thread: int  # Python's number of the thread.
  start: float  # Seconds of the monotonic clock.

  def describe(self) -> str:
    """Returns how long it has taken, with its thread's stack trace."""
    return (
        f'{self.worker} has been in one iteration for '
        f'{time.monotonic() - self.start:.0f} seconds. It is here:\n' +
        ''.join(traceback.format_stack(
            sys._current_frames().get(self.thread))))


# The module and the methods in which a thread waits for a user's environment.
_ENVIRONMENTS = 'agile_tf.worlds.checks'
_METHODS = frozenset({'reset', 'step', 'get_state', 'set_state', 'close'})
TENSORFLOW = 'TensorFlow'  # A thread that compiles or computes waits for it.


def _waits_for(thread: int) -> str:
  """Returns what a thread waits for, in words; '' if that is not known."""
  frame = sys._current_frames().get(thread)
  in_tensorflow = False
  while frame is not None:
    module = frame.f_globals.get('__name__', '')
    if module == _ENVIRONMENTS and frame.f_code.co_name in _METHODS:
      return f"the environment's {frame.f_code.co_name}()"
    in_tensorflow |= module.partition('.')[0] == 'tensorflow'
    frame = frame.f_back
  return TENSORFLOW if in_tensorflow else ''


class Schedule:
  """Counts the iterations of workers and says when each may begin.

  The `kind` of a worker is `POLICY` or `DISCRIMINATOR`.
  """

  def __init__(self, total_steps: int, ratio: int, head_start: int = 0):
    """Begins at step 0 of a run that ends at `total_steps`.

    `head_start` is the number of iterations that the discriminator's worker
    makes before the first policy step. `ratio` is, from then on, the number of
    policy steps for each of its iterations; with 0 neither waits for the other.
    """
    self.steps = 0  # Policy steps made.
    self.iterations = 0  # The discriminator's worker has made so many.
    self.error: BaseException | None = None  # The first error of any thread.
    self._total_steps = total_steps
    self._ratio = ratio
    self._head_start = head_start
    self._changed = threading.Condition()
    self._turns: dict[int, Turn] = {}  # Keys are the threads' numbers.
    self._paused = False
    self._stopped = False

  @property
  def head_start_left(self) -> int:
    """Iterations that the discriminator's worker still has to make alone."""
    return max(0, -self.iterations_after_head_start)

  @property
  def iterations_after_head_start(self) -> int:
    """Iterations of the discriminator's worker; negative in its head start."""
    return self.iterations - self._head_start

  def begin_at(self, steps: int, iterations: int) -> None:
    """Begins a run at a step that another run, with any ratio, had reached.

    There the discriminator's worker had made `iterations`. They are kept if
    this run has no ratio. Otherwise they are set to as many as this run's ratio
    would have led to, so that an iteration of that worker is due at once. In
    both cases this run makes no head start.
    """
    self.steps = steps
    self.iterations = self._head_start + (
        steps // self._ratio if self._ratio else iterations)

  def may(self, kind: str) -> bool:
    """Returns whether the ratio lets a worker of this kind iterate."""
    iterations = self.iterations_after_head_start
    if iterations < 0:
      return kind == DISCRIMINATOR
    if not self._ratio:
      return True
    # Iteration k, counted from 0, is due from step k * ratio on. Until it is
    # made, no policy worker begins a rollout at step (k + 1) * ratio or later.
    if kind == DISCRIMINATOR:
      return iterations * self._ratio <= self.steps
    return self.steps < (iterations + 1) * self._ratio

  @property
  def finished(self) -> bool:
    """Whether the run is over: its steps are made, or it has been stopped."""
    return self._stopped or self.steps >= self._total_steps

  @property
  def turns(self) -> list[Turn]:
    """The iterations in progress."""
    with self._changed:
      return list(self._turns.values())

  def waits_for(self) -> str:
    """Returns what the iterations in progress wait for, in words, or ''.

    If one waits for TensorFlow, that is the answer: others may wait until its
    thread has compiled their programs.
    """
    found = {_waits_for(turn.thread) for turn in self.turns} - {''}
    return TENSORFLOW if TENSORFLOW in found else min(found, default='')

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
    """Waits until this thread's worker may begin an iteration.

    Returns False if the run is over.
    """
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
      elif kind == DISCRIMINATOR:
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
        # Only seconds in which the process is awake count, so a suspended
        # process does not time out.
        while not self._changed.wait_for(
            lambda: not self._turns, min(left, 1.0)) and left > 0:
          left -= 1
        # They are described before the pause ends and other workers begin.
        if self._turns:
          stacks = '\n'.join(turn.describe() for turn in self._turns.values())
          raise StalledError(
              f'{len(self._turns)} of the workers did not end their iterations '
              f'in {STALL_SECONDS:.0f} seconds.\n{stacks}')
      yield
    finally:
      with self._changed:
        self._paused = False
        self._changed.notify_all()


@contextlib.contextmanager
def watched(schedule: Schedule) -> Iterator[None]:
  """Reports iterations that take too long, while a run's workers iterate.

  After `STALL_SECONDS` in one iteration a worker is reported, again and again.
  """
  over = threading.Event()
  # It is a thread, so that it also notices when the main thread hangs.
  watchdog = threading.Thread(
      target=_watch, args=(schedule, over), name='watchdog', daemon=True)
  watchdog.start()
  try:
    yield
  except SystemExit as error:  # Otherwise the program would end unexplained.
    raise RuntimeError(
        f'Something in an iteration called exit({error.code!r}).') from error
  finally:
    over.set()
    watchdog.join()


def _watch(schedule: Schedule, over: threading.Event) -> None:
  """Warns of an iteration each time that `STALL_SECONDS` have passed in it.

  Only seconds in which the process is awake count, so a suspended process is
  not reported.
  """
  interval = min(1.0, STALL_SECONDS / 4)
  spent: dict[Turn, float] = {}
  while not over.wait(interval):
    spent = {turn: spent.get(turn, 0.0) + interval for turn in schedule.turns}
    for turn, seconds in spent.items():
      if seconds // STALL_SECONDS > (seconds - interval) // STALL_SECONDS:
        logging.warning('%s', turn.describe())


def loop(schedule: Schedule, crew: Crew, write: Callable[[], None]) -> None:
  """The loop of a run with several policy threads: each iterates by itself.

  `write` is called again and again in this thread. At the end of the run this
  function waits `STALL_SECONDS` for iterations in progress.

  Raises:
    Exception: the first exception of any thread.
    StalledError: if a worker does not end its iteration.
  """
  # The first steps on a device compile the programs for all of its threads. So
  # the threads of a device have a lock, and each iterates under it until it has
  # made steps. If threads waited for this inside TensorFlow, it would warn of
  # retracing.
  def work(kind: str, iterate: Callable[['Snapshot'], int | None],
           guard: contextlib.AbstractContextManager) -> None:
    while schedule.begin(kind):
      try:
        with guard:
          steps = iterate(crew.snapshot()) or 0
        if steps:
          guard = contextlib.nullcontext()
      except BaseException as error:  # The main thread raises it.
        schedule.end(kind, error=error)
        return
      schedule.end(kind, steps)

  def worker(name: str, *arguments: Any) -> threading.Thread:
    # It is a daemon: one that hangs does not keep the process alive.
    return threading.Thread(
        target=work, name=name, args=arguments, daemon=True)

  locks = [threading.Lock() for _ in range(crew.num_devices)]
  workers = [
      worker(f'policy-{i}', POLICY, iterate, locks[i % crew.num_devices])
      for i, iterate in enumerate(crew.policy)]
  if crew.discriminator is not None:
    workers.append(worker(DISCRIMINATOR, DISCRIMINATOR, crew.discriminator,
                          contextlib.nullcontext()))
  for thread in workers:
    thread.start()
  try:
    while not schedule.finished:
      write()
      schedule.wait(0.2)
    _end(schedule, workers)
  except StalledError as error:
    schedule.stop()
    if schedule.error is None:
      raise StalledError(
          f'{error}\nThe run has ended. It was not saved, because an '
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
