"""The loop of a run: who iterates when, and what is written in between.

`train` carries out a whole run. With `--policy_threads=1` it goes through
`_loop`, where this thread plays all of the paper's 15 policy workers at once;
each of them still has a gradient and an update of its own, unless the run
averages them. With several threads it goes through `threads.loop`: there each
thread makes the same rounds with its share of the workers. The default is 15
threads with one worker each, as in the paper. What iterates is `trainer.crew`:
a function for each policy thread, and one for the discriminator's worker. One
round of either:

  0. Some runs of our recipe give the discriminator a head start. As long as it
     lasts, the discriminator's worker alone is due. At its end the policy takes
     over layers of the discriminator (`agent.variation.HeadStart`).
  1. The schedule says who is due: the ratio of policy steps to the
     discriminator's iterations decides, and whoever is ahead of it waits. This
     goes on until a signal stops the run or until the last step, beyond which
     the last round may go.
  2. A snapshot is taken of theta, the policy's parameters, and of phi, the
     discriminator's. With one thread it serves all who are due; with several,
     each thread takes its own.
  3. The worker plays a rollout, computes its gradient from the snapshot, and
     updates its network (`agile_tf.agent.workers`, the paper's algorithm
     boxes). The discriminator's worker plays a rollout too, for B, the buffer
     of states from which the discriminator's negatives are drawn; until B holds
     enough for one draw, the discriminator is not updated. In its first rollout
     every second policy worker sits out, so that they do not all end their
     episodes at once. A thread whose only worker sits out makes no steps then.
  4. The schedule counts the policy steps, and the discriminator's iterations,
     also those without an update.
  5. The main thread writes what is due: a row of metrics, a picture, or a
     checkpoint, for which all workers pause between two iterations.

An exception in a worker ends the run without saving, and its earlier
checkpoints stay. Ctrl-C ends the loop after the round, and then the run is
saved.
"""

from collections.abc import Callable
from concurrent import futures
import contextlib

from absl import logging

from agile_tf.agent.workers import Snapshot
from agile_tf.training import building
from agile_tf.training import run as run_lib
from agile_tf.training import start
from agile_tf.training import threads


def train(plan: building.Plan, table: str = '') -> None:
  """Carries out a run, from its start or from its newest checkpoint.

  Args:
    plan: The run's settings, and how it departs from the paper's AGILE.
    table: The hyperparameters compared with the paper's, in Markdown, for
      TensorBoard.
  """
  with start.begin(plan.config, plan.given, plan.defaults) as begun:
    go_on(plan, begun, table)


def go_on(plan: building.Plan, begun: start.Begun, table: str = '') -> None:
  """Carries out a run that has begun; see `train`.

  Raises:
    KeyboardInterrupt: if a signal has stopped it before its first iteration.
  """
  trainer, files = run_lib.build(
      plan, begun.check_lock, table,
      begun.signals.deferred('its files are open'))
  # From here on Ctrl-C stops the schedule, so the loop ends after its round.
  begun.signals.stop_instead(trainer.schedule)
  with contextlib.closing(files), contextlib.closing(trainer):
    files.write_what_is_due()
    loop(trainer.schedule, trainer.crew, files.write_what_is_due)
    files.write_what_is_due()
    if not files.has_iterated:  # There is no iteration to save.
      raise KeyboardInterrupt
    files.save()
  steps, total = trainer.schedule.steps, plan.config.steps
  ended = steps >= total
  logging.info(
      '%s at step %d of %d; everything is saved in %s.%s',
      'Finished' if ended else 'Stopped', steps, total, plan.config.run_dir,
      '' if ended else ' The same command goes on.')


def loop(schedule: threads.Schedule, crew: threads.Crew,
         write: Callable[[], None]) -> None:
  """Iterates a run's workers until the run is over.

  `write` is called again and again, in this thread, to write what is due. An
  iteration that takes minutes is reported.

  Raises:
    Exception: the first exception of any worker.
    StalledError: if a worker of several threads does not end its iteration.
  """
  with threads.watched(schedule):
    if len(crew.policy) > 1:
      threads.loop(schedule, crew, write)
    else:
      _loop(schedule, crew, write)


def _loop(schedule: threads.Schedule, crew: threads.Crew,
          write: Callable[[], None]) -> None:
  """The loop of a run with one policy thread.

  All who are due iterate from the same snapshot. The counts alone decide who is
  due, so the result does not depend on anybody's speed, and a resumed run
  continues in the same order.
  """
  workers = crew.workers

  def iterate(worker: str, snapshot: Snapshot) -> int:
    with schedule.turn(worker):
      return workers[worker](snapshot) or 0  # D's worker makes no policy steps.

  compiled = False
  with futures.ThreadPoolExecutor(1) as side_thread:
    while due := schedule.due(workers):
      snapshot = crew.snapshot()  # theta and phi
      steps = {}
      if len(due) == 2 and compiled and crew.side_by_side:
        other = side_thread.submit(iterate, threads.DISCRIMINATOR, snapshot)
        steps[threads.POLICY] = iterate(threads.POLICY, snapshot)
        steps[threads.DISCRIMINATOR] = other.result()
      else:
        for worker in due:
          steps[worker] = iterate(worker, snapshot)
      for worker in due:
        schedule.end(worker, steps[worker])
      # The policy's programs are compiled in its first iteration. The cache of
      # compiled programs (`machine.keep_programs`) names them by the order of
      # compilation, so the discriminator's must not be compiled at the same
      # time.
      compiled = compiled or threads.POLICY in steps
      write()
