"""Metrics as rows of named values: in `metrics.csv`, TensorBoard and terminal.

A `Tally` collects what workers report, from any thread. A `Writer` writes rows,
from one thread.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import csv
import itertools
import os
import re
import threading
from typing import Any

from absl import logging
import numpy as np
from tensorboard.plugins.hparams import summary_v2 as hparams
import tensorflow as tf

from agile_tf import records
from agile_tf.training import progress
from gridlu import files
from gridlu import program

# The columns of metrics.csv, in order, and their tags in TensorBoard, where a
# column with the tag '' is not shown. TensorBoard sorts tags, so the tags of
# what matters most begin with 'at a glance'. docs/runs.md explains each column.
_TAGS = {
    'steps': '',
    'seconds': '',
    'steps_per_second': 'run/steps per second',
    'episodes': 'run/episodes',
    'success_rate': 'at a glance/1 success rate',
    'modelled_reward': 'reward/modelled',
    'true_reward': 'reward/true',
    'reward_model_accuracy': 'at a glance/2 reward model accuracy',
    'false_positives': 'reward/false positives',
    'false_negatives': 'reward/false negatives',
    'policy_loss': 'policy/loss',
    'baseline_loss': 'policy/baseline loss',
    'entropy': 'policy/entropy',
    'reward_prediction_loss': 'policy/reward prediction loss',
    'imitation_loss': 'policy/imitation loss',
    'policy_gradient_norm': 'policy/gradient norm',
    'policy_filters_alive': 'policy/filters alive',
    'discriminator_loss': 'discriminator/loss',
    'goals_accepted': 'discriminator/goals accepted',
    'negatives_rejected': 'discriminator/negatives rejected',
    'held_out_goals_accepted': 'discriminator/held-out goals accepted',
    'mismatched_goals_accepted': 'discriminator/mismatched goals accepted',
    'discriminator_gradient_norm': 'discriminator/gradient norm',
    'discriminator_filters_alive': 'discriminator/filters alive',
    'discriminator_steps': 'discriminator/steps',
    'discriminator_updates': 'discriminator/updates',
    'steps_per_discriminator_update': 'discriminator/policy steps per update',
}
COLUMNS = tuple(_TAGS)
# These tags are used where success comes from a world's checker, not from a
# ground truth.
_CHECKER_TAGS = {
    'success_rate': 'checker/1 success rate',
    'reward_model_accuracy': 'checker/2 reward model accuracy',
    'true_reward': 'reward by the checker/true',
    'false_positives': 'reward by the checker/false positives',
    'false_negatives': 'reward by the checker/false negatives',
}

# A policy with less than this share of the maximum entropy hardly explores.
_COLLAPSED = 0.01
# A discriminator that accepts (or rejects) more than this share of both the
# goals and the negatives makes the same decision for every state.
_SAME = 0.99
# A sign of trouble lasts if this many rows show it one after the other.
LASTING = 20
# A policy has nothing to learn from if D accepts a smaller share of its states.
_REWARDED = 0.001
# A policy that succeeds in a smaller share of episodes fails.
_SUCCEEDING = 0.1


class Tally:
  """Weighted means of values since the last row, and counts of the run."""

  def __init__(self, *counted: str):
    self._lock = threading.Lock()
    self._sums: dict[str, float] = {}
    self._weights: dict[str, float] = {}
    self._counts = dict.fromkeys(counted, 0)

  def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
    """Adds values, each with this weight in its mean."""
    with self._lock:
      for name, value in values.items():
        self._sums[name] = self._sums.get(name, 0.0) + weight * value
        self._weights[name] = self._weights.get(name, 0.0) + weight

  def count(self, **counts: int) -> None:
    with self._lock:
      for name, count in counts.items():
        self._counts[name] += count

  def take(self) -> dict[str, float]:
    """Returns the weighted means and resets them."""
    with self._lock:
      means = {
          name: value / self._weights[name]
          for name, value in self._sums.items()}
      self._sums, self._weights = {}, {}
    return means

  @property
  def counts(self) -> dict[str, int]:
    """The counts since the start of the run."""
    with self._lock:
      return dict(self._counts)

  def state(self) -> dict[str, dict[str, float]]:
    """Returns the sums so far, for a checkpoint."""
    with self._lock:
      return {'sums': dict(self._sums), 'weights': dict(self._weights)}

  def load(self, state: dict[str, dict[str, float]], counts: dict[str, int]
          ) -> None:
    """Restores `state` and `counts`; ValueError if they do not fit."""
    if state['sums'].keys() != state['weights'].keys() or not all(
        weight > 0 for weight in state['weights'].values()):
      raise ValueError('the tally has a sum without a positive weight')
    if counts.keys() != self._counts.keys():
      raise ValueError(f'the totals are {", ".join(counts)}; expected '
                       f'{", ".join(self._counts)}')
    with self._lock:
      self._sums = dict(state['sums'])
      self._weights = dict(state['weights'])
      self._counts.update(counts)


def decision_errors(decisions: np.ndarray, truth: np.ndarray
                   ) -> dict[str, float]:
  """Compares decisions with the ground truth or checker, both bool [N].

  Each number is a share of all decisions, as in figures 4 and 8.
  """
  return {
      'reward_model_accuracy': float(np.mean(decisions == truth)),
      'false_positives': float(np.mean(decisions & ~truth)),
      'false_negatives': float(np.mean(~decisions & truth)),
  }


def warnings(row: Mapping[str, Any], num_actions: int) -> dict[str, str]:
  """Returns warnings about suspicious metrics by kind, such as 'entropy'."""
  found = {}
  if row.get('entropy', np.inf) < _COLLAPSED * np.log(num_actions):
    found['entropy'] = (
        f"The policy's entropy is {row['entropy']:.2g}, and its maximum "
        f'{np.log(num_actions):.2g}: the policy hardly explores any more. A '
        'larger --entropy_weight keeps it exploring.')
  accepted = row.get('goals_accepted', np.nan)
  rejected = row.get('negatives_rejected', np.nan)
  if accepted > _SAME and rejected < 1 - _SAME:
    found['discriminator'] = (
        'The discriminator accepts every state as a goal state. If this lasts, '
        'update it more often (a smaller --steps_per_discriminator_update).')
  elif accepted < 1 - _SAME and rejected > _SAME:
    found['discriminator'] = (
        'The discriminator accepts no state as a goal state. If this lasts, '
        'use a smaller --anticipated_negative_rate.')
  return found


def lasting(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
  """Returns warnings about what the last rows of a run all show, by kind.

  There are none for fewer than `LASTING` rows.
  """
  # A row without a value has NaN, of which no comparison is true.
  def column(name: str) -> np.ndarray:
    return np.array([row.get(name, np.nan) for row in rows[-LASTING:]])

  if len(rows) < LASTING:
    return {}
  since = f'In the last {LASTING} rows'
  # These are shares of all states.
  accepted, goal_states = column('modelled_reward'), column('true_reward')
  false_positives = column('false_positives')
  errors = false_positives + column('false_negatives')
  found = {}
  if (accepted < _REWARDED).all():
    found['unrewarded'] = (
        f'{since} the discriminator accepted less than {_REWARDED:.1%} of the '
        "policy's states, so the policy has no reward to learn from. Either it "
        'does not reach goal states by chance: let episodes begin nearer to '
        'them, or last longer. Or goal examples do not look like what the '
        'environment shows: compare their images.')
  if (false_positives > goal_states).all():
    found['fooled'] = (
        f'{since} the discriminator accepted more wrong states '
        f'({false_positives.mean():.1%} of all) than there were goal states '
        f'({goal_states.mean():.1%}), so the policy learns something else. '
        'More goal examples may help, a larger --mismatched_share if '
        'instructions are confused, or a larger --anticipated_negative_rate.')
  fails = (column('success_rate') < _SUCCEEDING).all()
  if fails and (errors < goal_states / 2).all():
    found['policy'] = (
        f'{since} less than {_SUCCEEDING:.0%} of the episodes succeeded, '
        f'although the discriminator erred in only {errors.mean():.1%} of all '
        f'states, and {goal_states.mean():.1%} were goal states. The policy '
        'has not learned from its rewards: train longer, and keep it trying '
        'with a larger --entropy_weight; or turn --reward_prediction on.')
  return found


def read(path: str) -> list[dict[str, str]]:
  """Returns the rows of a run's `metrics.csv`; none if there is no such file.

  Raises:
    UserError: it cannot be read, or is not what a run writes.
  """
  before = -1

  def check(row: dict[str, str]) -> None:
    nonlocal before
    if 'steps' not in row or not row.keys() <= _TAGS.keys():
      raise ValueError(f'its columns are {", ".join(row)}; expected steps and '
                       'other columns of a run')
    for name, text in row.items():
      number = records.number(text, name)
      if name == 'seconds' and text and not 0 <= number < np.inf:
        raise ValueError(f'seconds is {text!r}; expected 0 or more')
    if not row['steps'].isdecimal() or int(row['steps']) <= before:
      raise ValueError(f'steps is {row["steps"]!r:.100}; expected a whole '
                       f'number of more than {before}')
    before = int(row['steps'])

  try:
    return records.rows(path, check=check)
  except FileNotFoundError:
    return []
  except ValueError as error:
    raise program.UserError(
        f'{path} is not what a run writes ({error}). It was not changed. Mend '
        'or remove this line, or move the file away; a run then begins a new '
        'one.') from error
  except OSError as error:
    raise program.UserError(
        f'{path} cannot be read: {error}. It was not changed. Remove '
        'the cause and try again.') from error


class Writer:
  """Writes rows to `metrics.csv`, TensorBoard and the progress."""

  def __init__(self, run_dir: str, steps: int, checked: bool = False):
    """Opens a run's files, and removes rows that it will write again.

    The run begins or resumes at `steps`. If it is `checked`, success comes from
    a checker, not from a ground truth.
    """
    self._tags = _TAGS | (_CHECKER_TAGS if checked else {})
    self._path = os.path.join(run_dir, 'metrics.csv')
    rows = read(self._path)
    try:
      if rows and not steps:
        logging.warning(
            'There is no checkpoint of a later step, so the run begins at step '
            '0. Its rows up to step %s are now in %s. If its checkpoints have '
            'been moved, stop the run, put them back and rename the file '
            'again.', rows[-1]['steps'], self._put_aside())
      rows = [row for row in rows if int(row['steps']) <= steps]
      with files.replacing(self._path) as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    except OSError as error:
      raise self._unwritable(error) from error
    # How many seconds the run had taken before it resumed.
    self._seconds = float(
        rows[-1].get('seconds') or 0) if rows else 0.0
    self._summaries = tf.summary.create_file_writer(run_dir)
    self._warned = False
    self.progress = progress.Progress()

  def _put_aside(self) -> str:
    """Renames the file; returns its new name."""
    names = (f'{self._path}.{i}' for i in itertools.count(1))
    new = next(name for name in names if not os.path.exists(name))
    os.rename(self._path, new)
    return new

  def _unwritable(self, error: OSError) -> program.UserError:
    return program.UserError(
        f'{self._path} cannot be written ({error}). Free some disk space, or '
        'make the directory writable; the same command then resumes the run.')

  def row(self, values: Mapping[str, Any]) -> None:
    """Writes a row of values by column; columns without a value stay empty.

    `seconds` are those since the run began or resumed.
    """
    values = {**values, 'seconds': values['seconds'] + self._seconds}
    try:
      with open(self._path, 'a', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not file.tell():  # Somebody has removed the file.
          writer.writeheader()
        writer.writerow({
            name: f'{value:.6g}' if isinstance(value, float) else value
            for name, value in values.items()})
    except OSError as error:
      raise self._unwritable(error) from error
    with self._tensorboard():
      for name, value in values.items():
        if self._tags[name]:
          tf.summary.scalar(self._tags[name], value, values['steps'])
    self.progress.note = ', '.join(
        f'{label} {100 * values[name]:.1f} %'
        for name, label in (('success_rate', 'success'),
                            ('reward_model_accuracy', 'reward model'))
        if name in values)

  def settings(self, run_dir: str, compared: Mapping[str, Any], **texts: str
              ) -> None:
    """Writes texts, and settings for TensorBoard's table that compares runs.

    Runs whose directories differ only in their seed are in one row.
    """
    with self._tensorboard():
      for name, markdown in texts.items():
        tf.summary.text(name, markdown, step=0)
      hparams.hparams(
          dict(compared), trial_id=re.sub(r'_seed\d+$', '', run_dir))

  def scalars(self, values: Mapping[str, float], steps: int) -> None:
    """Writes numbers to TensorBoard alone, by their tags."""
    with self._tensorboard():
      for tag, value in values.items():
        tf.summary.scalar(tag, value, steps)

  def image(self, name: str, image: np.ndarray, steps: int) -> None:
    """Writes a picture, uint8 [H, W, 3], to TensorBoard."""
    with self._tensorboard():
      tf.summary.image(name, image[None], step=steps)

  @contextlib.contextmanager
  def _tensorboard(self) -> Iterator[None]:
    """Sets where the block's summaries go; warns once if writing them fails."""
    try:
      with self._summaries.as_default():
        yield
    except (OSError, tf.errors.OpError) as error:
      if not self._warned:
        logging.warning(
            "TensorBoard's events cannot be written (%s); metrics.csv has the "
            'numbers.', error)
      self._warned = True

  def close(self) -> None:
    """Closes TensorBoard's events and ends the progress."""
    self.progress.close()
    with self._tensorboard():
      self._summaries.close()
