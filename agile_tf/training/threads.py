"""Iterates a run's workers: in turn in one thread, or in a thread each."""

from collections.abc import Callable, Sequence
import contextlib
import functools
import threading
from typing import TYPE_CHECKING

from agile_tf.training import health
from agile_tf.training import schedule as schedule_lib

if TYPE_CHECKING:
  from agile_tf.training import trainer as trainer_lib


def drive(trainer: 'trainer_lib.Trainer', tick: Callable[[], None],
          stall_minutes: float = 10.0) -> None:
  """Iterates all workers until the run is over, in the run's threads.

  Args:
    trainer: The run.
    tick: A function that this thread calls repeatedly.
    stall_minutes: The minutes in one iteration after which a worker is
      reported, and that the end of the run waits for a worker.

  Raises:
    Exception: the first exception of any thread. For SystemExit, which would
      end the program as if it had succeeded, RuntimeError is raised.
  """
  run = in_lockstep if len(trainer.policy_workers) == 1 else in_threads
  with health.Watchdog(60 * stall_minutes) as watchdog:
    try:
      run(trainer, tick, watchdog)
    except SystemExit as error:
      raise RuntimeError(
          f'Something in an iteration called exit({error.code!r}).') from error


def in_lockstep(trainer: 'trainer_lib.Trainer', tick: Callable[[], None],
                watchdog: health.Watchdog) -> None:
  """Iterates all workers in turn, in this thread, until the run is over."""
  schedule = trainer.schedule
  while not schedule.finished:
    # The next worker depends only on the counts, so that a resumed run
    # continues in the same order.
    if (trainer.discriminator_worker is not None and
        schedule.may('discriminator')):
      if schedule.begin('discriminator'):
        with watchdog.iteration('discriminator'):
          trainer.iterate_discriminator()
        schedule.end('discriminator')
    elif schedule.begin('policy'):
      with watchdog.iteration('policy'):
        steps = trainer.iterate_policy(0)
      schedule.end('policy', steps)
    tick()


def in_threads(trainer: 'trainer_lib.Trainer', tick: Callable[[], None],
               watchdog: health.Watchdog) -> None:
  """Iterates each worker in a thread of its own until the run is over.

  Raises:
    StalledError: if a worker hangs when the run must save or end.
    Exception: the first exception of any thread.
  """
  schedule = trainer.schedule

  def work(kind: str, iterate: Callable[[], int | None],
           alone: contextlib.AbstractContextManager) -> None:
    name = threading.current_thread().name
    while schedule.begin(kind):
      try:
        with alone, watchdog.iteration(name):
          steps = iterate() or 0
        if steps:
          alone = contextlib.nullcontext()
      except BaseException as error:  # The main thread raises it.
        schedule.abandon(error)
        return
      schedule.end(kind, steps)

  # The first steps on a device compile the programs for all of its threads,
  # which take turns until then. If they waited for that inside TensorFlow, it
  # would warn of retracing.
  compiling = [threading.Lock() for _ in trainer.devices]
  jobs: list[tuple[str, str, Callable[[], int | None],
                   contextlib.AbstractContextManager]] = [
      (f'policy-{i}', 'policy',
       functools.partial(trainer.iterate_policy, i),
       compiling[i % len(compiling)])
      for i in range(len(trainer.policy_workers))]
  if trainer.discriminator_worker is not None:
    jobs.append(
        ('discriminator', 'discriminator', trainer.iterate_discriminator,
         contextlib.nullcontext()))
  # Daemons, so that one that hangs does not keep the process alive.
  threads = [
      threading.Thread(target=work, name=name, args=job, daemon=True)
      for name, *job in jobs]
  for thread in threads:
    thread.start()
  try:
    while not schedule.finished:
      tick()
      schedule.wait(0.2)
    _end(schedule, threads, watchdog.limit)
  except schedule_lib.StalledError as error:
    schedule.stop()
    raise schedule_lib.StalledError(
        f'{error}\n{watchdog.stacks()}\nThe run has ended. It was not saved, '
        'because an iteration was not complete. The same command resumes it '
        'from its last checkpoint. If iterations of this length are normal, '
        'make --stall_minutes larger.') from error
  except BaseException:
    with contextlib.suppress(schedule_lib.StalledError):
      _end(schedule, threads, watchdog.limit)
    raise
  if schedule.error is not None:
    raise schedule.error


def _end(schedule: schedule_lib.Schedule, threads: Sequence[threading.Thread],
         seconds: float) -> None:
  """Stops all threads and waits for them.

  Raises:
    StalledError: if a last iteration takes longer than this.
  """
  schedule.stop()
  with schedule.paused(seconds):
    for thread in threads:
      thread.join()
