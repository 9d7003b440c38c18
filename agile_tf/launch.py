"""Trains an agent: builds a run, starts its threads, and stops cleanly.

  python -m agile_tf.launch --flagfile=launch/relations.flags

A run lives in one directory: `config.json`, `metrics.csv`, TensorBoard events
and `checkpoints/`. The same command resumes it. Ctrl-C, SIGTERM and SIGHUP
(sent when a terminal closes) save and end it; an exception in any thread ends
it with its traceback.
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
from agile_tf.training import cluster as cluster_lib
from agile_tf.training import health
from agile_tf.training import machine
from agile_tf.training import metrics
from agile_tf.training import placement
from agile_tf.training import recorder
from agile_tf.training import remote
from agile_tf.training import run_lock
from agile_tf.training import schedule as schedule_lib
from agile_tf.training import serving
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
from gridlu import program
from gridlu import recording
from gridlu import rendering


def make_run_dir(config: config_lib.Config) -> None:
  """Creates the run's directory if it does not exist.

  Raises:
    ConfigError: if it has no name, or cannot be created or written.
  """
  if not config.run_dir:
    raise config_lib.ConfigError(
        "--run_dir is empty; name a directory for the run's files, for example "
        '--run_dir=runs/relations.')
  try:
    os.makedirs(config.run_dir, exist_ok=True)
    with tempfile.TemporaryFile(dir=config.run_dir):
      pass
  except OSError as error:
    raise config_lib.ConfigError(
        f'--run_dir={config.run_dir} cannot be written: {error}. Choose a '
        'writable directory.') from error


def check_same_run(config: config_lib.Config) -> str:
  """Returns the path of a run's `config.json`, after checking its settings.

  Neither the file nor the directory is changed.

  Raises:
    ConfigError: if the directory contains a run with other settings, or
      checkpoints but no settings.
  """
  path = os.path.join(config.run_dir, 'config.json')
  try:
    there = config_lib.load(path)
  except config_lib.MissingError:
    if checkpoints.steps(config.run_dir):
      raise config_lib.ConfigError(
          f'--run_dir={config.run_dir} has checkpoints but no config.json with '
          'their settings. Put it back, or choose another --run_dir.'
          ) from None
    return path
  differences = config_lib.differences(there, config)
  if differences:
    raise config_lib.ConfigError(
        f'--run_dir={config.run_dir} contains a run with other settings:\n  ' +
        '\n  '.join(differences) +
        '\nTo resume that run, use its settings. For a new run, choose another '
        '--run_dir.')
  return path


def _threads_for(num_workers: int, cores: int) -> int:
  """Returns the fewest threads that use all cores and divide the workers."""
  return min(n for n in range(1, num_workers + 1)
             if not num_workers % n and n >= min(cores, num_workers))


class Run:
  """Writes the metrics, pictures and checkpoints of a run when they are due."""

  def __init__(self, config: config_lib.Config, trainer: trainer_lib.Trainer,
               check_lock: Callable[[], None]):
    """Opens the files and resumes from the newest checkpoint, if there is one.

    Args:
      config: The run's settings.
      trainer: The run's trainer, at step 0.
      check_lock: A function that raises an error if this process no longer
        holds the run's directory; see `run_lock.hold`. It is called before each
        row and each checkpoint.
    """
    self._config = config
    self._check_lock = check_lock
    self._trainer = trainer
    self._schedule = trainer.schedule
    self._image_steps = 0
    if checkpoints.recover(config.run_dir, self._restore):
      logging.info('Resuming from step %d.', self._schedule.steps)
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
    # The step before any program is compiled; None once all are.
    self._compiling_at: int | None = steps

  def _restore(self, checkpoint: checkpoints.Checkpoint) -> None:
    """Restores a checkpoint; see `checkpoints.recover`."""
    self._trainer.load(checkpoint)
    self._image_steps = checkpoint.values.get('image_steps', 0)

  def tick(self) -> None:
    """Writes what is due. Only the main thread calls this."""
    config, steps = self._config, self._schedule.steps
    self._writer.progress(steps)
    if self._compiling_at is not None and steps > self._compiling_at:
      self._compiling_at = None
      logging.info('The first steps took %.0f s, mostly for compilation.',
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
    """Logs new warnings: those that the previous row did not give."""
    warnings = health.warnings(values, self._trainer.world.num_actions)
    for kind, text in warnings.items():
      if kind not in self._warned:
        logging.warning('At step %d: %s', values['steps'], text)
    self._warned = set(warnings)

  def _show(self, episode: recorder.Recording, steps: int) -> None:
    """Writes an episode to TensorBoard as a picture and as an animation."""
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
      TrainingError: if a number in it is not finite. Then nothing is saved.
      StalledError: if a worker does not finish its iteration in time.
    """
    with self._schedule.paused(60 * self._config.stall_minutes):
      if self._schedule.error is not None:
        return
      # First, because a resumed run writes no row for earlier steps.
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
# that it arrives twice. Within this time, it counts as the same signal.
_SAME_SIGNAL_SECONDS = 2.0


class _Signals:
  """Handles Ctrl-C, SIGTERM and SIGHUP: save and stop; a second ends at once.

  Attributes:
    schedule: What a signal stops. While it is None, a signal raises
      KeyboardInterrupt.
  """

  def __init__(self):
    self.schedule: schedule_lib.Schedule | None = None
    self._stopped = False
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it.
      numbers.append(signal.SIGHUP)
    self._handlers = {
        number: signal.signal(number, self._stop) for number in numbers}
    # Python calls a handler only when the main thread returns from TensorFlow,
    # which may hang. The number of the signal arrives in this socket at once,
    # where another thread reads it.
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
    """Restores the previous handlers, unless a signal has arrived.

    In that case its second copy may still arrive, and must not disturb the
    exit.
    """
    if self._stopped:
      return
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(self._wakeup)
    self._writer.close()  # Ends the thread.


def build(config: config_lib.Config, check_lock: Callable[[], None],
          workers: remote.Workers | None = None
         ) -> tuple[trainer_lib.Trainer, Run]:
  """Returns a run, at its start or at its newest checkpoint.

  Args:
    config: The run's settings.
    check_lock: See `Run`.
    workers: The run's workers on other machines.

  Raises:
    ConfigError, CheckpointError, GoalDatasetError, MetricsError or WorldError:
      if the run cannot be set up.
  """
  here = machine.prepare(config)
  config_path = check_same_run(config)
  frozen = initial = None
  # A checkpoint of the run itself contains these networks already.
  if not checkpoints.steps(config.run_dir):
    if config.reward == 'frozen':
      frozen = _load_result('reward_model', config.reward_model)
    if config.initial_policy:
      initial = _load_result('initial_policy', config.initial_policy)
  started = time.monotonic()
  if workers is not None:
    workers.start()
  trainer = trainer_lib.Trainer(
      config, frozen, initial, placement.Placement(
          here.devices, workers.devices if workers is not None else tuple))
  if workers is not None:
    workers.check(trainer.world)
  run = Run(config, trainer, check_lock)
  config_lib.save(config, config_path)  # Last: a failed start leaves no run.
  logging.info(
      'Built in %.0f s: %d policy workers in %d threads%s on %s.',
      time.monotonic() - started, config.policy_workers, config.policy_threads,
      ' and a discriminator' if config.trains_discriminator else '',
      here.description)
  if config.policy_threads > here.parallel:
    logging.info(
        '--policy_threads=%d is more than the %d threads that this machine can '
        'run at the same time. --policy_threads=%d trains the same %d workers '
        'and may be faster.', config.policy_threads, here.parallel,
        _threads_for(config.policy_workers, here.parallel),
        config.policy_workers)
  return trainer, run


def _load_result(flag: str, run_dir: str) -> checkpoints.Checkpoint:
  """Returns another run's newest checkpoint; warns if it is not its last."""
  checkpoint = checkpoints.load(run_dir)
  step = checkpoint.values['steps']
  total = checkpoint.values.get('config', {}).get('steps', step)
  if step < total:
    logging.warning(
        '--%s=%s is not finished: its checkpoint of step %d of %d is used.',
        flag, run_dir, step, total)
  return checkpoint


def train(config: config_lib.Config,
          cluster: cluster_lib.Cluster | None = None) -> None:
  """Carries out a run, from its start or from its newest checkpoint.

  Args:
    config: The run's settings.
    cluster: The run's workers on other machines. They end with the run, unless
      that ends with an error.

  Raises:
    ConfigError, CheckpointError, GoalDatasetError, MetricsError,
      RunLockError or WorldError: if the run cannot be set up.
    CheckpointError or MetricsError: if its files can no longer be written.
    TrainingError: if a loss, a gradient or a parameter is not finite.
  """
  make_run_dir(config)
  with run_lock.hold(config.run_dir) as check_lock, remote.workers(
      cluster or cluster_lib.Cluster(), config) as workers:
    _train(config, check_lock, workers)


def _train(config: config_lib.Config, check_lock: Callable[[], None],
           workers: remote.Workers) -> None:
  signals = _Signals()
  try:
    try:
      trainer, run = build(config, check_lock, workers)
      if not trainer.schedule.finished:
        workers.wait()
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
      'Stopped at step %d of %d; everything is saved in %s.',
      trainer.schedule.steps, config.steps, config.run_dir)


@program.main()
def main(argv: Sequence[str]) -> None:
  """Reads the flags and trains."""
  del argv
  logging.set_verbosity(logging.INFO)
  config = config_lib.from_flags(flags.FLAGS)
  cluster = cluster_lib.find(config, os.environ)
  if cluster.task:
    serving.serve(cluster, config)
  else:
    train(config, cluster)


if __name__ == '__main__':
  program.run(main, config_lib.define_flags)
