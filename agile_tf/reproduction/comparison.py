"""The paper's table of hyperparameters beside a run's values.

Differences are marked with a star and listed, with the run's reason (--why). A
second table has the settings that the paper's table does not state.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, NamedTuple

from agile_tf import config as config_lib
from agile_tf.reproduction import paper
from gridlu import tasks

_HEADERS = (
    ' ', 'Group', 'Hyperparameter', 'paper pi', 'this run', 'paper D',
    'this run')
_OTHER_HEADERS = (' ', 'Setting', 'this run', 'default')
_TITLE = "The paper's hyperparameters (appendix C) and this run's"
_OTHER_TITLE = "Settings that the paper's table does not state"
_NO_DIFFERENCE = "Nothing differs from the paper's table."
_MARK = '*'
_UNUSED = 'unused'

# Settings of the goal examples, and those that are unused if these come from a
# file.
_OF_GENERATED_GOALS = ('dataset_size', 'dataset_seed', 'dataset_carrying')
# Settings that only a run that trains a discriminator uses, apart from those in
# the discriminator's column of the paper's table.
_OF_DISCRIMINATOR = (
    'anticipated_negative_rate', 'first_anticipated_negative_rate',
    'anticipated_negative_rate_steps', 'all_workers_write',
    'steps_per_discriminator_update', 'discriminator_head_start',
    'discriminator_optimizer', 'discriminator_actors', 'mismatched_share')
_OF_MODELLED_REWARD = ('reward_form', 'discriminator_model')
_OF_REWARD_PREDICTION = (
    'reward_prediction_cost', 'reward_prediction_batch_size',
    'reward_prediction_replay_size', 'reward_prediction_of',
    'reward_prediction_balanced', 'reward_prediction_goals')
# Of a curriculum.
_OF_FIRST_STEPS = ('first_instructions', 'first_distance')


class Difference(NamedTuple):
  """A setting whose value differs from the paper's table."""
  setting: str
  paper: str
  this_run: str


def table_settings() -> frozenset[str]:
  """Returns the names of the settings that the paper's table states."""
  return frozenset(
      cell.setting for row in paper.HYPERPARAMETERS
      for cell in (row.policy, row.discriminator) if cell and cell.setting)


def differences(config: config_lib.Config) -> list[Difference]:
  """Returns the settings in which a run differs from the paper's table.

  Settings that the run does not use are left out.
  """
  unused = _unused(config)
  return [
      Difference(cell.setting, _text(paper.value(cell, config.world)),
                 _text(getattr(config, cell.setting)))
      for row in paper.HYPERPARAMETERS
      for cell in (row.policy, row.discriminator)
      if cell and cell.setting and cell.setting not in unused and
      getattr(config, cell.setting) != paper.value(cell, config.world)]


def table_text(config: config_lib.Config) -> str:
  """Returns both tables and the list of differences for a terminal."""
  notes = [
      f'{_MARK} --{setting}: {here} here, {there} in the paper'
      for setting, there, here in differences(config)]
  return '\n'.join([
      f'{_TITLE}\n',
      *_aligned(_HEADERS, _paper_rows(config)), '',
      *(notes or [_NO_DIFFERENCE]),
      *_why(config),
      f'\n{_OTHER_TITLE}\n',
      *_aligned(_OTHER_HEADERS, _other_rows(config))])


def table_markdown(config: config_lib.Config) -> str:
  """Returns the same as `table_text` in Markdown, for TensorBoard."""
  notes = [
      f'- `--{setting}`: {here} here, {there} in the paper'
      for setting, there, here in differences(config)]
  other = [
      [mark, *(f'`{value}`' if value else '' for value in values)]
      for mark, *values in _other_rows(config)]
  return '\n'.join([
      f'### {_TITLE}\n',
      *_piped(_HEADERS, _paper_rows(config)), '',
      *(notes or [_NO_DIFFERENCE]), '',
      *_why(config),
      f'\n### {_OTHER_TITLE}\n',
      *_piped(_OTHER_HEADERS, other)])


def _paper_rows(config: config_lib.Config) -> list[list[str]]:
  different = {difference.setting for difference in differences(config)}
  rows = []
  for group, hyperparameter, *cells in paper.HYPERPARAMETERS:
    differs = any(cell and cell.setting in different for cell in cells)
    rows.append([_MARK if differs else '', group, hyperparameter])
    for cell, is_discriminator in zip(cells, (False, True), strict=True):
      rows[-1] += [
          _text(paper.value(cell, config.world)) if cell else '-',
          _this_run(cell, is_discriminator, config)]
  return rows


def _this_run(cell: paper.Cell | None, is_discriminator: bool,
              config: config_lib.Config) -> str:
  """Returns the run's value for a cell of the table."""
  if cell is None:
    return '-'
  if (cell.setting in _unused(config) or
      is_discriminator and not config.trains_discriminator):
    return _UNUSED
  return _text(getattr(config, cell.setting) if cell.setting else cell.value)


def _other_rows(config: config_lib.Config) -> list[list[str]]:
  unused = _unused(config)
  rows = []
  for field in dataclasses.fields(config):
    if field.metadata['of_run'] or field.name in table_settings():
      continue
    value = getattr(config, field.name)
    is_used = field.name not in unused
    rows.append([
        _MARK if is_used and value != field.default else '', field.name,
        _text(value) if is_used else _UNUSED, _text(field.default)])
  return rows


def _why(config: config_lib.Config) -> list[str]:
  """Returns the line with --why, or that a run that differs gives none."""
  if config.why:
    return [f'Why: {config.why}']
  if differences(config):
    return ['Why: not given (--why is empty).']
  return []


def _unused(config: config_lib.Config) -> frozenset[str]:
  """Returns the settings that have no effect, given the others."""
  unused: set[str] = set()
  if not config.trains_discriminator:
    unused.update(_OF_DISCRIMINATOR)
    unused.update(
        row.discriminator.setting for row in paper.HYPERPARAMETERS
        if row.discriminator and row.discriminator.setting)
  if config.reward == 'environment':
    unused.update(_OF_MODELLED_REWARD)
  if not config.reward_prediction:
    unused.update(_OF_REWARD_PREDICTION)
  if config.world not in tasks.TASKS:
    unused.update(config_lib.of_gridlu())
  elif not tasks.find(config.world).has_ground_truth:
    unused.add('solved_starts')
  if config.policy_optimizer == 'adam' and (
      config.discriminator_optimizer == 'adam' or
      not config.trains_discriminator):
    unused.add('first_mean_square')
  if config.held_out == 'none':
    unused.update(('held_out_share', 'held_out_seed'))
  if not config.first_steps:
    unused.update(_OF_FIRST_STEPS)
  if not config.needs_goal_examples:
    unused.add('dataset')
  if config.dataset or not config.needs_goal_examples:
    unused.update(_OF_GENERATED_GOALS)
  return frozenset(unused)


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
  lines.insert(1, [
      '-' * width if header.strip() else ''
      for header, width in zip(headers, widths, strict=True)])
  return [
      '  '.join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _piped(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns a table's lines in Markdown."""
  lines = [headers, ['---'] * len(headers), *rows]
  return ['| ' + ' | '.join(line) + ' |' for line in lines]
