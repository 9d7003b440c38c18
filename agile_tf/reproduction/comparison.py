"""The paper's table of hyperparameters beside a run's values.

Differences are marked with a star and listed. A second table has the settings
that the paper's table does not state.
"""

from collections.abc import Sequence
import dataclasses
import textwrap
from typing import Any

from agile_tf import config as config_lib
from agile_tf.reproduction import paper
from gridlu import tasks

_HEADERS = (
    ' ', 'Group', 'Hyperparameter', 'paper pi', 'this run', 'paper D',
    'this run')
_OTHER_HEADERS = (' ', 'Setting', 'this run', 'default')
_OTHER_TITLE = "Settings that the paper's table does not state"
_MARK = '*'
_UNUSED = 'unused'

_OF_GENERATED_GOALS = ('dataset_size', 'dataset_seed')
# Settings that only a run that trains a discriminator uses, apart from those in
# the discriminator's column of the paper's table.
_OF_DISCRIMINATOR = (
    'anticipated_negative_rate', 'all_workers_write',
    'steps_per_discriminator_update', 'dataset', *_OF_GENERATED_GOALS)
_OF_REWARD_PREDICTION = (
    'reward_prediction_cost', 'reward_prediction_batch_size',
    'reward_prediction_replay_size')


_COLUMNS = ([row.policy for row in paper.HYPERPARAMETERS],
            [row.discriminator for row in paper.HYPERPARAMETERS])
_IN_DISCRIMINATORS_COLUMN = [
    cell.setting for cell in _COLUMNS[1] if cell and cell.setting]


def differences(config: config_lib.Config) -> dict[str, tuple[str, str]]:
  """Returns the settings that differ from the paper: its value and the run's.

  Settings that the run does not use are left out.
  """
  unused = _unused(config)
  return {
      cell.setting: (_text(there), _text(here))
      for row in paper.HYPERPARAMETERS
      for cell in (row.policy, row.discriminator)
      if cell and cell.setting and cell.setting not in unused and
      (here := getattr(config, cell.setting)) != (
          there := paper.value(cell, config.world))}


def table_text(config: config_lib.Config, recipe: Any = None) -> str:
  """Returns both tables and the list of differences.

  `recipe` is a dataclass of settings that the paper does not have, or None.
  """
  notes = [f'{_MARK} --{setting}: {here} here, {there} in the paper'
           for setting, (there, here) in differences(config).items()]
  return '\n'.join([
      "The paper's hyperparameters (appendix C) and this run's\n",
      *_aligned(_HEADERS, _paper_rows(config)), '',
      *(notes or ["Nothing differs from the paper's table."]),
      f'\n{_OTHER_TITLE}\n',
      *_aligned(_OTHER_HEADERS, _other_rows(config, recipe))])


def table_markdown(config: config_lib.Config, recipe: Any = None) -> str:
  """Returns the same as a block of Markdown, for TensorBoard."""
  return textwrap.indent(table_text(config, recipe), '    ', lambda _: True)


def _paper_rows(config: config_lib.Config) -> list[list[str]]:
  unused = _unused(config)
  different = differences(config)
  rows = []
  for group, hyperparameter, *cells in paper.HYPERPARAMETERS:
    differs = any(cell and cell.setting in different for cell in cells)
    rows.append([_MARK if differs else '', group, hyperparameter])
    for cell, is_used in zip(
        cells, (True, config.trains_discriminator), strict=True):
      if cell is None:
        rows[-1] += ['-', '-']
        continue
      here = getattr(config, cell.setting) if cell.setting else cell.value
      rows[-1] += [
          _text(paper.value(cell, config.world)),
          _text(here) if is_used and cell.setting not in unused else _UNUSED]
  return rows


def _other_rows(config: config_lib.Config, recipe: Any) -> list[list[str]]:
  unused = _unused(config)
  in_table = {cell.setting for column in _COLUMNS for cell in column if cell}
  rows = []
  for field in dataclasses.fields(config):
    if field.metadata['of_run'] or field.name in in_table:
      continue
    value = getattr(config, field.name)
    is_used = field.name not in unused
    rows.append([
        _MARK if is_used and value != field.default else '', field.name,
        _text(value) if is_used else _UNUSED, _text(field.default)])
  for field in dataclasses.fields(recipe) if recipe is not None else ():
    value = getattr(recipe, field.name)
    if value != field.default:
      rows.append([_MARK, field.name, _text(value), _text(field.default)])
  return rows


def _unused(config: config_lib.Config) -> set[str]:
  """Returns the settings that have no effect, given the others."""
  has_truth = config.world in tasks.TASKS and (
      tasks.find(config.world).has_ground_truth)
  groups: list[tuple[bool, Sequence[str]]] = [
      (not config.trains_discriminator, _OF_DISCRIMINATOR),
      (not config.trains_discriminator, _IN_DISCRIMINATORS_COLUMN),
      (config.reward == 'environment', ['reward_form']),
      (not config.reward_prediction, _OF_REWARD_PREDICTION),
      (config.world not in tasks.TASKS, config_lib.of_gridlu()),
      (not has_truth, ['solved_starts']),
      (config.held_out == 'none', ['held_out_share', 'held_out_seed']),
      (bool(config.dataset), _OF_GENERATED_GOALS)]
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
  lines.insert(1, [
      '-' * width if header.strip() else ''
      for header, width in zip(headers, widths, strict=True)])
  return [
      '  '.join(map(str.ljust, line, widths)).rstrip() for line in lines]
