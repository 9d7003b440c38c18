"""Carries out a run in one directory, where it resumes.

It has `config.json`, `metrics.csv`, TensorBoard events and `checkpoints/`.
Signals save and end the run (see `signals`); an exception in any thread ends it
with its traceback.
"""

from collections.abc import Callable
import contextlib
import os
import time

from absl import logging

from agile_tf import config as config_lib
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import machine
from agile_tf.training import metrics
from agile_tf.training import progress
from agile_tf.training import recorder
from agile_tf.training import run_lock
from agile_tf.training import signals as signals_lib
from agile_tf.training import trainer as trainer_lib

# The settings in TensorBoard's table of runs. Some are the recipe's.
_COMPARED = (
    'world', 'model', 'reward', 'reward_prediction', 'policy_learning_rate',
    'entropy_weight', 'discriminator_learning_rate', 'batch_size',
    'anticipated_negative_rate', 'dataset_size', 'optimizer', 'initialization')
_IMAGE_MINUTES = 5.0  # From one episode in TensorBoard to the next.


def check_same_run(builder: building.Builder) -> str:
  """Returns the path of a run's `config.json`; changes nothing."""
  run_dir = builder.config.run_dir
  path = os.path.join(run_dir, 'config.json')
  try:
    there = config_lib.read(path)
  except config_lib.MissingError:
    if checkpoints.steps(run_dir):
      raise config_lib.ConfigError(
          f'--run_dir={run_dir} has checkpoints but no config.json with their '
          'settings. Put it back, or choose another --run_dir.') from None
    return path
  config_lib.restored(there, path)  # Or it says that these are no settings.
  if differences := config_lib.differences(there, builder.saved()):
    raise config_lib.ConfigError(
        f'--run_dir={run_dir} contains a run with other settings:\n  ' +
        '\n  '.join(differences) +
        '\nTo resume that run, use its settings. For a new run, choose another '
        '--run_dir.')
  return path


class RunFiles:
  """Writes the metrics, pictures and checkpoints of a run when they are due."""

  def __init__(self, builder: building.Builder, trainer: trainer_lib.Trainer,
               check_lock: Callable[[], None], table: str = ''):
    """Opens the files and resumes from the newest checkpoint, if there is one.

    The trainer is at step 0. `check_lock` is what `run_lock.hold` yields, and
    `table` has the hyperparameters beside the paper's, in Markdown.
    """
    self._config = config = builder.config
    self._check_lock = check_lock
    self._trainer = trainer
    self._schedule = trainer.schedule
    if checkpoints.recover(config.run_dir, trainer.load):
      logging.info('Resuming from step %d.', self._schedule.steps)
    steps = self._schedule.steps
    self._writer = metrics.Writer(
        config.run_dir, steps, not trainer.world.has_ground_truth)
    settings = builder.saved()
    settings |= settings.pop(config_lib.RECIPE, {})
    settings.pop(config_lib.DATASET, None)
    self._writer.settings(
        config.run_dir,
        {name: settings.get(name, 'paper') for name in _COMPARED},
        hyperparameters=table, configuration='\n'.join(
            f'    --{name}={value}' for name, value in settings.items()))
    self._start_time = time.monotonic()
    self._row_steps, self._row_time = steps, self._start_time
    self._saved = steps, self._schedule.iterations
    self._save_time = self._image_due = self._start_time
    self._warned: set[str] = set()

  def tick(self) -> None:
    """Writes what is due. Only the main thread calls this."""
    steps = self._schedule.steps
    ahead = -self._schedule.iterations_after_head_start
    if ahead > 0:
      done = self._schedule.iterations
      self._writer.progress.update(
          done, done + ahead, 'iterations of the head start')
    else:
      self._writer.progress.update(steps, self._config.steps)
    self._write_row_if_due()
    if time.monotonic() >= self._image_due:
      episode = self._trainer.recorder.take()
      if episode is not None:
        self._show(episode, max(steps, 1))
        self._image_due = time.monotonic() + 60 * _IMAGE_MINUTES
    if (time.monotonic() - self._save_time >
        60 * self._config.checkpoint_minutes):
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
    warnings = metrics.warnings(values, self._trainer.world.num_actions)
    for kind, text in warnings.items():
      if kind not in self._warned:  # By the previous row.
        logging.warning('At step %d: %s', steps, text)
    self._warned = set(warnings)

  def _show(self, episode: recorder.RecordedEpisode, steps: int) -> None:
    """Writes an episode to TensorBoard."""
    images = self._trainer.world.pixels(episode.observations)
    judge = ('the ground truth' if self._trainer.discriminator is None else
             'the reward model')
    self._writer.image(
        'episode/contact sheet', recorder.sheet(episode, images, judge), steps)

  def save(self) -> None:
    """Saves a checkpoint, unless a worker has failed.

    Raises:
      StalledError: if a worker of several threads does not finish in time.
    """
    with self._schedule.paused():
      if self._schedule.error is not None:
        return
      # First, because a resumed run writes no row for earlier steps.
      self._write_row_if_due()
      checkpoint = self._trainer.checkpoint()
    step = checkpoint.values['steps']
    self._check_lock()
    # In the discriminator's head start only its iterations are counted.
    now = step, checkpoint.values['iterations']
    if now > self._saved or not checkpoints.steps(self._config.run_dir):
      checkpoints.save(
          self._config.run_dir, step, checkpoint,
          self._config.checkpoints_kept)
    self._saved, self._save_time = now, time.monotonic()

  def close(self) -> None:
    self._writer.close()


def build(builder: building.Builder, check_lock: Callable[[], None],
          table: str = '') -> tuple[trainer_lib.Trainer, RunFiles]:
  """Returns a run, at its start or at its newest checkpoint; see `RunFiles`."""
  config = builder.config
  config_path = check_same_run(builder)
  here = machine.prepare(config)
  frozen = initial = None
  # A checkpoint of the run itself contains these networks already.
  if not checkpoints.steps(config.run_dir):
    frozen, initial = (
        checkpoints.load(run_dir) if run_dir else None
        for run_dir in (config.reward_model, config.initial_policy))
  started = time.monotonic()
  trainer = trainer_lib.Trainer(builder, frozen, initial, here.devices)
  run_files = RunFiles(builder, trainer, check_lock, table)
  # Last: a failed start leaves no run.
  config_lib.save(builder.saved(), config_path)
  workers, num_threads = config.policy_workers, config.policy_threads
  logging.info(
      'Built in %.0f s: %s in %s%s on %s.', time.monotonic() - started,
      progress.counted(workers, 'policy worker'),
      progress.counted(num_threads, 'thread'),
      ' and a discriminator' if config.trains_discriminator else '',
      here.description)
  if num_threads > here.parallel:
    # The discriminator's worker takes a core of its own, but no GPU.
    others = here.parallel - (
        config.trains_discriminator and len(here.devices) == 1)
    enough = max(n for n in range(1, max(1, others) + 1) if not workers % n)
    logging.info(
        '--policy_threads=%d is more than can run at the same time here (%d). '
        '--policy_threads=%d trains the same %d workers and may be faster, in '
        'a new --run_dir.',
        num_threads, here.parallel, enough, workers)
  return trainer, run_files


def train(builder: building.Builder, table: str = '') -> None:
  """Carries out a run, from its start or from its newest checkpoint."""
  with (run_lock.hold(builder.config.run_dir) as check_lock,
        signals_lib.Signals() as signals):
    try:
      trainer, run_files = build(builder, check_lock, table)
    except KeyboardInterrupt:
      if not signals.stopped:  # Something else raised it, such as a world.
        raise
      logging.info('Stopped before the run began; there is nothing to save.')
      return
    signals.stop_instead(trainer.schedule)
    with contextlib.closing(run_files), contextlib.closing(trainer):
      run_files.tick()
      trainer.drive(run_files.tick)
      run_files.tick()
      run_files.save()
  steps, total = trainer.schedule.steps, builder.config.steps
  logging.info(
      '%s at step %d of %d; everything is saved in %s.',
      'Finished' if steps >= total else 'Stopped', steps, total,
      builder.config.run_dir)
