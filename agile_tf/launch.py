"""Trains an agent: builds a run, starts its threads, stops cleanly.

  python -m agile_tf.launch --flagfile=launch/relations.flags

A run lives in one directory: `config.json`, `metrics.csv`, TensorBoard events
and `checkpoints/`. The same command goes on where it stopped. Ctrl-C, SIGTERM
and SIGHUP (a terminal that is closed) save and end it; an exception in any
thread ends it with its traceback.
"""

from collections.abc import Callable, Sequence
import dataclasses
import io
import os
import signal
import socket
import tempfile
import threading
import time
from typing import Any

from absl import flags
from absl import logging
from PIL import Image

from agile_tf import config as config_lib
from agile_tf.reproduction import comparison
from agile_tf.training import checkpoints
from agile_tf.training import health
from agile_tf.training import machine
from agile_tf.training import metrics
from agile_tf.training import recorder
from agile_tf.training import run_lock
from agile_tf.training import schedule as schedule_lib
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from gridlu import program
from gridlu import recording
from gridlu import rendering


def make_run_dir(config: config_lib.Config) -> None:
  """Makes the run's directory.

  Raises:
    ConfigError: if it cannot be used.
  """
  if not config.run_dir:
    raise config_lib.ConfigError(
        "--run_dir is empty; say where the run's files shall go, for example "
        '--run_dir=runs/relations.')
  try:
    os.makedirs(config.run_dir, exist_ok=True)
    with tempfile.TemporaryFile(dir=config.run_dir):
      pass
  except OSError as error:
    raise config_lib.ConfigError(
        f'--run_dir={config.run_dir} cannot be written: {error}. Choose a '
        'directory that can.') from error


def check_same_run(config: config_lib.Config) -> str:
  """Checks that the run in the run's directory, if there is one, is this one.

  Returns:
    The path of the run's `config.json`, which is left as it is.

  Raises:
    ConfigError: if it is another.
  """
  path = os.path.join(config.run_dir, 'config.json')
  try:
    there = config_lib.load(path)
  except config_lib.MissingError:
    if checkpoints.steps(config.run_dir):
      raise config_lib.ConfigError(
          f'--run_dir={config.run_dir} has checkpoints and no config.json that '
          'says what they are of: put it back, or choose another --run_dir.'
          ) from None
    return path
  differences = config_lib.differences(there, config)
  if differences:
    raise config_lib.ConfigError(
        f'--run_dir={config.run_dir} holds a run with other settings:\n  ' +
        '\n  '.join(differences) +
        '\nUse these settings to go on with it, or another --run_dir.')
  return path


def _threads_for(num_workers: int, cores: int) -> int:
  """The smallest number of threads that uses all cores and divides the work."""
  return min(n for n in range(1, num_workers + 1)
             if not num_workers % n and n >= min(cores, num_workers))


class Run:
  """A trainer, its files, and what has to happen now and then."""

  def __init__(self, config: config_lib.Config, trainer: trainer_lib.Trainer,
               check_lock: Callable[[], None]):
    """Opens the files; goes on from the newest checkpoint, if there is one.

    Args:
      config: The run's settings.
      trainer: At step 0.
      check_lock: Raises an error if the run's directory is not the run's own
        any more, see `run_lock.hold`. It is called before each row and save.
    """
    self._config = config
    self._check_lock = check_lock
    self._trainer = trainer
    self._schedule = trainer.schedule
    self._image_steps = 0
    if checkpoints.recover(config.run_dir, self._restore):
      logging.info('Going on from step %d.', self._schedule.steps)
    steps = self._schedule.steps
    self._writer = metrics.Writer(
        config.run_dir, steps, config.steps,
        checked=not trainer.world.has_ground_truth)
    self._writer.text('hyperparameters', comparison.table_markdown(config))
    self._writer.text('configuration', '\n'.join(
        f'    --{name}={value}'
        for name, value in dataclasses.asdict(config).items()))
    self._row_steps, self._row_time = steps, time.monotonic()
    self._start_time = self._row_time
    self._saved_steps = steps
    self._save_time = self._row_time
    self._warned: set[str] = set()
    self._compiling_at: int | None = steps  # None: all is compiled.

  def _restore(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Takes over what was saved; see `checkpoints.recover`."""
    self._trainer.load(checkpoint)
    self._image_steps = checkpoint.values.get('image_steps', 0)

  def tick(self) -> None:
    """Writes whatever is due. Only the main thread calls it."""
    config, steps = self._config, self._schedule.steps
    self._writer.progress(steps)
    if self._compiling_at is not None and steps > self._compiling_at:
      self._compiling_at = None
      logging.info('The first steps took %.0f s, most of it to compile.',
                   time.monotonic() - self._start_time)
    self._write_row_if_due()
    if steps - self._image_steps >= config.image_steps or (
        self._image_steps == 0 and steps):
      episode = self._trainer.take_episode()
      if episode is not None:
        self._show(episode, max(steps, 1))
        self._image_steps = steps
    if time.monotonic() - self._save_time > 60 * config.checkpoint_minutes:
      self.save()

  def _write_row_if_due(self) -> None:
    log_steps = self._config.log_steps
    if self._schedule.steps // log_steps <= self._row_steps // log_steps:
      return
    self._check_lock()
    values, now = self._trainer.row(), time.monotonic()
    steps = values['steps']
    values['seconds'] = now - self._start_time
    values['steps_per_second'] = (
        (steps - self._row_steps) / (now - self._row_time))
    self._writer.row(values)
    self._row_steps, self._row_time = steps, now
    self._warn(values)

  def _warn(self, values: dict[str, Any]) -> None:
    """Warns of what looks wrong; again only after it has been well."""
    warnings = health.warnings(values, self._trainer.world.num_actions)
    for kind, text in warnings.items():
      if kind not in self._warned:
        logging.warning('At step %d: %s', values['steps'], text)
    self._warned = set(warnings)

  def _show(self, episode: recorder.Recording, steps: int) -> None:
    """Writes an episode as a picture and as an animation."""
    images = self._trainer.world.pixels(episode.observations)
    notes = ['start'] + [
        f'{i + 1}: goal' if decision else f'{i + 1}'
        for i, decision in enumerate(episode.decisions)]
    self._writer.image('episode', rendering.contact_sheet(
        images, [episode.instruction, *notes[1:]]), steps)
    gif = io.BytesIO()
    recording.save_gif(
        gif, images, [f'{episode.instruction}, {note}' for note in notes])
    with Image.open(gif) as animation:
      size = animation.size
    self._writer.animation('episode_in_motion', gif.getvalue(), size, steps)

  def save(self) -> None:
    """Saves a checkpoint, unless a worker has failed.

    Raises:
      TrainingError: if a number in it is not finite; nothing is saved.
      StalledError: if a worker hangs.
    """
    with self._schedule.paused(60 * self._config.stall_minutes):
      if self._schedule.error is not None:
        return
      # Before the checkpoint, which says from where its rows are still due.
      self._write_row_if_due()
      checkpoint = self._trainer.checkpoint()
    trainer_lib.require_finite(checkpoint)
    checkpoint.values['image_steps'] = self._image_steps
    step = checkpoint.values['steps']
    self._check_lock()
    if step > self._saved_steps or not checkpoints.steps(self._config.run_dir):
      checkpoints.save(
          self._config.run_dir, step, checkpoint,
          self._config.checkpoints_kept)
    self._saved_steps, self._save_time = step, time.monotonic()

  def close(self) -> None:
    """Closes the files."""
    self._writer.close()


# Wrappers such as timeout(1) send a signal to the process and to its group, so
# that it arrives twice.
_SAME_SIGNAL_SECONDS = 2.0


class _Signals:
  """What Ctrl-C, SIGTERM and SIGHUP do: save and stop; later ones end at once.

  Attributes:
    schedule: To be stopped. Before there is one, a KeyboardInterrupt is raised.
  """

  def __init__(self):
    self.schedule: schedule_lib.Schedule | None = None
    self._stopped = False
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # As by nohup.
      numbers.append(signal.SIGHUP)
    self._handlers = {
        number: signal.signal(number, self._stop) for number in numbers}
    # Python calls a handler once the main thread is back from a program of
    # TensorFlow, which may hang; what it writes here can be read before.
    reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    self._wakeup = signal.set_wakeup_fd(self._writer.fileno())
    threading.Thread(
        target=self._end_at_the_second, args=(reader,), name='signals',
        daemon=True).start()

  def _end_at_the_second(self, reader: socket.socket) -> None:
    first = None
    with reader:
      while number := reader.recv(1):
        if number[0] not in self._handlers:
          continue
        now = time.monotonic()
        if first is None:
          first = now
        elif now - first > _SAME_SIGNAL_SECONDS:
          os._exit(128 + number[0])

  def _stop(self, number: int, _: Any) -> None:
    if self._stopped:
      return
    self._stopped = True
    if self.schedule is None:
      raise KeyboardInterrupt
    self.schedule.stop()
    logging.info('%s: saving and stopping.', signal.Signals(number).name)

  def restore(self) -> None:
    """Goes back to what they did before, unless one of them has come.

    Its second half may still come, and must not spoil the exit.
    """
    if self._stopped:
      return
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(self._wakeup)
    self._writer.close()  # Ends the thread.


def build(config: config_lib.Config, check_lock: Callable[[], None]
         ) -> tuple[trainer_lib.Trainer, Run]:
  """Sets a run up, from its start or from its newest checkpoint.

  Args:
    config: The run's settings.
    check_lock: See `Run`.

  Raises:
    ConfigError, CheckpointError, GoalDatasetError, MetricsError or WorldError:
      if that is not possible.
  """
  here = machine.prepare(config)
  config_path = check_same_run(config)
  frozen = initial = None
  if not checkpoints.steps(config.run_dir):  # Else they are in its checkpoint.
    if config.reward == 'frozen':
      frozen = _load_result('reward_model', config.reward_model)
    if config.initial_policy:
      initial = _load_result('initial_policy', config.initial_policy)
  started = time.monotonic()
  trainer = trainer_lib.Trainer(config, frozen, initial)
  run = Run(config, trainer, check_lock)
  config_lib.save(config, config_path)  # Only now is it a run.
  logging.info(
      'Built in %.0f s: %d policy workers in %d threads%s on %s.',
      time.monotonic() - started, config.policy_workers, config.policy_threads,
      ' and a discriminator' if config.trains_discriminator else '',
      here.description)
  if config.policy_threads > here.parallel:
    logging.info(
        '%d policy threads are more than the %d that this machine can compute '
        'at the same time. --policy_threads=%d trains the same %d workers and '
        'may be faster.', config.policy_threads, here.parallel,
        _threads_for(config.policy_workers, here.parallel),
        config.policy_workers)
  return trainer, run


def _load_result(flag: str, run_dir: str) -> checkpoints.Checkpoint:
  """Loads the end of another run; warns if it has not come there."""
  checkpoint = checkpoints.load(run_dir)
  step = checkpoint.values['steps']
  total = checkpoint.values.get('config', {}).get('steps', step)
  if step < total:
    logging.warning(
        '--%s=%s is not finished: what is used is of step %d of %d.', flag,
        run_dir, step, total)
  return checkpoint


def train(config: config_lib.Config) -> None:
  """Carries out a run, from its start or from its newest checkpoint.

  Raises:
    ConfigError, CheckpointError, GoalDatasetError, MetricsError,
      RunLockError or WorldError: if the run cannot be set up.
    CheckpointError or MetricsError: if its files cannot be written any more.
    TrainingError: if its numbers go wrong.
  """
  make_run_dir(config)
  with run_lock.hold(config.run_dir) as check_lock:
    _train(config, check_lock)


def _train(config: config_lib.Config, check_lock: Callable[[], None]) -> None:
  signals = _Signals()
  try:
    try:
      trainer, run = build(config, check_lock)
      signals.schedule = trainer.schedule
    except KeyboardInterrupt:
      logging.info('Stopped before the run began; there is nothing to save.')
      return
    try:
      if not trainer.schedule.finished:
        logging.info('Compiling; the first steps take a while.')
      threads.drive(trainer, run.tick, config.stall_minutes)
      run.tick()
      run.save()
    finally:
      run.close()
  finally:
    signals.restore()
  logging.info(
      'Stopped at step %d of %d; %s has it all.', trainer.schedule.steps,
      config.steps, config.run_dir)


@program.main()
def main(argv: Sequence[str]) -> None:
  """Reads the flags and trains."""
  del argv
  logging.set_verbosity(logging.INFO)
  train(config_lib.from_flags(flags.FLAGS))


if __name__ == '__main__':
  program.run(main, config_lib.define_flags)
