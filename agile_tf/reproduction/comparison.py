"""A run's settings beside the paper's table of hyperparameters.

A star marks a value that differs from the paper's or, where the paper states
none, from the default.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import textwrap
from typing import Any

from agile_tf import config as config_lib
from agile_tf.reproduction import paper
from gridlu import tasks

_HEADERS = ('', 'setting', 'this run', 'paper', 'default',
            "in the paper's table (appendix C) or text")
_MARK, _UNUSED = '*', 'unused'

_OF_GENERATED_GOALS = (
    'dataset_size', 'dataset_seed', 'dataset_any_distractors',
    'dataset_carrying')
_OF_GOALS = ('dataset', *_OF_GENERATED_GOALS)
# Only a run that trains a discriminator uses these settings.
_OF_DISCRIMINATOR = (
    'anticipated_negative_rate', 'anticipated_negative_rate_steps',
    'all_workers_write', 'steps_per_discriminator_update', 'mismatched_share',
    'discriminator_actors', 'discriminator_head_start', 'held_out_goals',
    *(name for name, (_, place) in paper.HYPERPARAMETERS.items()
      if place.startswith('D:')))
_OF_REWARD_PREDICTION = (
    'reward_prediction_cost', 'reward_prediction_batch_size',
    'reward_prediction_replay_size')


def _rows(config: config_lib.Config, recipe: Any) -> Iterator[list[str]]:
  unused = _unused(config, recipe)
  of_paper = dict(paper.HYPERPARAMETERS)
  if config.world == 'arrangements':
    of_paper |= paper.OF_ARRANGEMENTS
  for field in dataclasses.fields(config):
    if field.metadata['of_run']:  # It does not change what is learned.
      continue
    name, value = field.name, getattr(config, field.name)
    expected, place = of_paper.get(name, (field.default, ''))
    is_used = name not in unused
    yield [_MARK if is_used and value != expected else '', name,
           _text(value) if is_used else _UNUSED,
           _text(expected) if place else '-', _text(field.default), place]
  for field in dataclasses.fields(recipe):
    value = getattr(recipe, field.name)
    if value != field.default and field.name not in unused:
      yield [_MARK, field.name, _text(value), '-', _text(field.default), '']


def differences(config: config_lib.Config, recipe: Any) -> list[str]:
  """Returns the settings that the table marks."""
  return [row[1] for row in _rows(config, recipe) if row[0]]


def table_text(config: config_lib.Config, recipe: Any) -> str:
  """Returns the table; `recipe` is a dataclass of settings beyond the paper."""
  rows = list(_rows(config, recipe))
  return '\n'.join([
      "A run's settings and the paper's\n", *_aligned(_HEADERS, rows), '',
      f"{_MARK} differs from the paper's value or, where this table has none "
      '(-), from the default.' if any(row[0] for row in rows) else
      "Nothing differs from the paper's values and the defaults."])


def table_markdown(config: config_lib.Config, recipe: Any) -> str:
  """Returns the same as a block of Markdown, for TensorBoard."""
  return textwrap.indent(table_text(config, recipe), '    ', lambda _: True)


def _unused(config: config_lib.Config, recipe: Any) -> set[str]:
  """Returns the settings that have no effect, given the others."""
  # Without a ground truth GridLU cannot tell which starts are goal states.
  knows_solved_starts = config.world in tasks.TASKS and (
      tasks.find(config.world).has_ground_truth)
  groups: list[tuple[bool, Sequence[str]]] = [
      (not config.trains_discriminator, _OF_DISCRIMINATOR),
      (not config.trains_discriminator and not recipe.reward_prediction_goals,
       _OF_GOALS),
      (config.reward == 'environment', ['reward_form', 'reward_threshold']),
      (not config.reward_prediction, _OF_REWARD_PREDICTION),
      (config.world not in tasks.TASKS, config_lib.marked('of_gridlu')),
      (not knows_solved_starts, ['solved_starts']),
      (config.held_out == 'none', ['held_out_share', 'held_out_seed']),
      (bool(config.dataset), _OF_GENERATED_GOALS),
      (not recipe.policy_learning_rate_steps, ['first_policy_learning_rate']),
      (not recipe.entropy_weight_steps, ['first_entropy_weight'])]
  return {name for is_unused, names in groups if is_unused for name in names}


def _text(value: Any) -> str:
  """Returns a value as short text: 40 for 40.0, '' for an empty string."""
  if isinstance(value, float) and float(f'{value:g}') == value:
    return f'{value:g}'
  return str(value) if value != '' else "''"


def _aligned(headers: Sequence[str],
             rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns a table's lines with its columns aligned."""
  lines = [headers, *rows]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  lines.insert(1, ['-' * len(header) for header in headers])
  return [
      '  '.join(map(str.ljust, line, widths)).rstrip() for line in lines]
