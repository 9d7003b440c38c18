"""The directory of a run, in which it resumes.

It has `config.json`, `metrics.csv`, TensorBoard events and `checkpoints/`.
"""

import contextlib
import time
from typing import Any

from absl import logging

from agile_tf import config as config_lib
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import diagnostics
from agile_tf.training import machine
from agile_tf.training import metrics
from agile_tf.training import progress
from agile_tf.training import recorder
from agile_tf.training import reward_models
from agile_tf.training import run_lock
from agile_tf.training import start
from agile_tf.training import trainer as trainer_lib
from agile_tf.worlds import gridlu_world

# The settings in TensorBoard's table of runs. Some are the recipe's.
_COMPARED = (
    'world', 'model', 'reward', 'reward_prediction', 'policy_learning_rate',
    'entropy_weight', 'discriminator_learning_rate', 'batch_size',
    'anticipated_negative_rate', 'dataset_size', 'optimizer', 'initialization')
_IMAGE_MINUTES = 5.0  # The time between two episodes in TensorBoard.


class RunFiles:
  """Writes the metrics, pictures and checkpoints of a run when they are due."""

  def __init__(self, plan: building.Plan, trainer: trainer_lib.Trainer,
               check_lock: run_lock.Check, table: str = ''):
    """Opens the files and resumes from the newest checkpoint, if there is one.

    The trainer is at the start of its run: at step 0, or at that of
    --branch_from. `check_lock` is what `run_lock.hold` yields, and `table` has
    the hyperparameters beside the paper's, in Markdown.
    """
    self._config = config = plan.config
    self._check_lock = check_lock
    self._trainer = trainer
    self._schedule = trainer.schedule
    if checkpoints.recover(config.run_dir, trainer.load):
      logging.info('Resuming from step %d.', self._schedule.steps)
    steps = self._schedule.steps
    self._writer = metrics.Writer(
        config.run_dir, steps, not trainer.world.has_ground_truth)
    self._writer.progress.waits_for = self._schedule.waits_for
    settings = {
        name: value for name, value in plan.settings.items()
        if name not in (config_lib.DATASET_SHA256, config_lib.SELECTED)}
    self._writer.settings(
        config.run_dir,
        {name: settings.get(name, 'paper') for name in _COMPARED},
        hyperparameters=table, configuration='\n'.join(
            f'    --{name}={value}' for name, value in settings.items()))
    self._start_time = time.monotonic()
    self._row_steps, self._row_time = steps, self._start_time
    # The steps and the discriminator's updates in the last row in which the
    # updates had risen. Before there is one, these are the step at which this
    # process begins, and 0.
    self._last_update = steps, 0
    self._exchange_test: diagnostics.ExchangeTest | None = None
    if (trainer.discriminator is not None and
        isinstance(trainer.world, gridlu_world.GridLUWorld)):
      self._exchange_test = diagnostics.ExchangeTest(trainer.world)
    # The policy steps and the discriminator's iterations when this process last
    # saved, or began. Neither number ever falls, so a larger pair means that a
    # worker has iterated since.
    self._saved = steps, self._schedule.iterations
    self._save_time = self._image_due = self._start_time
    self._rows: list[dict[str, Any]] = []  # The last rows of this process.
    # The kinds of warnings about the last row. Each is logged when it appears,
    # and again when it returns.
    self._row_warnings: set[str] = set()
    # The kinds of warnings about many rows. Each is logged only once.
    self._lasting_warnings: set[str] = set()

  def write_what_is_due(self) -> None:
    """Writes a row, a picture or a checkpoint, from the main thread."""
    steps = self._schedule.steps
    left = self._schedule.head_start_left
    if left:
      done = self._schedule.iterations
      self._writer.progress.update(
          done, done + left, 'iterations of the head start')
    else:
      self._writer.progress.update(steps, self._config.steps)
    self._write_row_if_due()
    if time.monotonic() >= self._image_due:
      episode = self._trainer.recorder.take()
      if episode is not None:
        # A policy thread can end an episode before its first steps are counted.
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
    if text := self._updates_missing(values):
      warnings['updates'] = text
    for kind, text in warnings.items():
      if kind not in self._row_warnings:
        logging.warning('At step %d: %s', steps, text)
    self._row_warnings = set(warnings)
    self._rows = [*self._rows, values][-metrics.LASTING:]
    for kind, text in metrics.lasting(self._rows).items():
      if kind not in self._lasting_warnings:
        logging.warning('At step %d: %s', steps, text)
        self._lasting_warnings.add(kind)

  def _updates_missing(self, values: dict[str, Any]) -> str:
    """Returns a warning if the discriminator should have been updated, or ''.

    It is updated once B holds as many pairs as one update draws.
    """
    if 'discriminator_updates' not in values:
      return ''
    steps, updates = values['steps'], values['discriminator_updates']
    since, before = self._last_update
    if updates > before:
      self._last_update = steps, updates
      return ''
    if steps - since <= 2 * self._config.steps_per_discriminator_update:
      return ''
    learner = self._trainer.learner
    assert learner is not None
    return (
        f'The discriminator has not been updated since step {since}. One '
        f'update draws {learner.needed} pairs from B, which '
        f'holds {len(learner.buffer)}. A smaller '
        '--steps_per_discriminator_update fills it sooner.')

  def _show(self, episode: recorder.RecordedEpisode, steps: int) -> None:
    """Writes an episode to TensorBoard."""
    images = self._trainer.world.pixels(episode.observations)
    judge = ('the ground truth' if self._trainer.discriminator is None else
             'the reward model')
    self._writer.image(
        'episode/contact sheet', recorder.sheet(episode, images, judge), steps)

  @property
  def has_iterated(self) -> bool:
    """Whether any worker has iterated, now or before."""
    now = self._schedule.steps, self._schedule.iterations
    return now > self._saved or bool(checkpoints.steps(self._config.run_dir))

  def save(self) -> None:
    """Saves a checkpoint, unless a worker has failed or nothing has happened.

    The row that is due, and the exchange test, are written with it.

    Raises:
      StalledError: if a worker of several threads does not finish in time.
    """
    with self._schedule.paused():
      if self._schedule.error is not None:
        return
      # The row comes first: a resumed run writes none for earlier steps.
      self._write_row_if_due()
      checkpoint = self._trainer.checkpoint()
    step = checkpoint.values['steps']
    if self._exchange_test is not None:
      self._writer.scalars({
          f'exchanged goal states accepted/{name}': row['accepted']
          for name, row in self._trainer.exchange_test(
              self._exchange_test).items()}, step)
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


def build(plan: building.Plan, check_lock: run_lock.Check, table: str = '',
          undisturbed: contextlib.AbstractContextManager | None = None
         ) -> tuple[trainer_lib.Trainer, RunFiles]:
  """Returns a run, at its start or at its newest checkpoint; see `RunFiles`.

  Its files are opened within `undisturbed`, a context in which signals raise no
  exception.
  """
  config = plan.config
  start.check_same_run(config.run_dir, plan.settings, plan.defaults)
  here = machine.prepare(config)
  frozen = initial = None
  # A checkpoint of the run itself contains these networks already.
  if not checkpoints.steps(config.run_dir):
    if config.reward_model:
      frozen = reward_models.checkpoint(config.reward_model)
    if config.initial_policy:
      initial = checkpoints.load(config.initial_policy)
  started = time.monotonic()
  trainer = trainer_lib.Trainer(plan, frozen, initial, here.devices)
  if config.branch and not checkpoints.steps(config.run_dir):
    trainer.branch(checkpoints.load(*config.branch))
    logging.info('Branched from %s: the run begins at step %d.',
                 config.branch_from, trainer.schedule.steps)
  with undisturbed or contextlib.nullcontext():
    run_files = RunFiles(plan, trainer, check_lock, table)
    # This comes last, so that a failed start leaves no run.
    config_lib.save(plan.settings, start.config_path(config.run_dir))
  workers, num_threads = config.policy_workers, config.policy_threads
  logging.info(
      'Built in %.0f s: %s in %s%s on %s.', time.monotonic() - started,
      progress.counted(workers, 'policy worker'),
      progress.counted(num_threads, 'thread'),
      ' and a discriminator' if config.trains_discriminator else '',
      here.description)
  if num_threads > here.parallel:
    # The most policy threads that can compute at the same time. On a CPU the
    # discriminator's worker takes one of the cores.
    most = here.parallel
    if config.trains_discriminator and here.on_cpu:
      most = max(1, most - 1)
    enough = max(n for n in range(1, most + 1) if not workers % n)
    logging.info(
        '--policy_threads=%d is more than can run at the same time here (%d). '
        '--policy_threads=%d trains the same %d workers and may be faster%s.',
        num_threads, here.parallel, enough, workers,
        # Averaged updates depend on the number of threads, so a run keeps it.
        ', in a new --run_dir' if plan.variation.averaged else
        ': stop the run, and give the command again with it')
  return trainer, run_files
