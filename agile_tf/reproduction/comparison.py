"""A run's settings beside the paper's table of hyperparameters.

A star marks a value that differs from the paper's or, where its table does not
state one, from the default.
"""

from collections.abc import Iterator
import dataclasses
import textwrap
from typing import Any

from agile_tf import config as config_lib
from agile_tf.reproduction import paper


def _rows(config: config_lib.Config, recipe: Any) -> Iterator[list[str]]:
  for field in dataclasses.fields(config):
    if field.metadata['of_run']:
      continue
    name, value = field.name, getattr(config, field.name)
    expected, published, place = field.default, '-', ''
    if name in paper.HYPERPARAMETERS:
      expected, place = paper.HYPERPARAMETERS[name]
      if config.world == 'arrangements':
        expected = paper.ARRANGEMENTS_VALUES.get(name, expected)
      published = _text(expected)
    yield ['*' if value != expected else '', name, _text(value), published,
           _text(field.default), place]
  for field in dataclasses.fields(recipe) if recipe is not None else ():
    value = getattr(recipe, field.name)
    if value != field.default:
      yield ['*', field.name, _text(value), '-', _text(field.default), '']


def _text(value: Any) -> str:
  """Returns a value as short text: 40 for 40.0, '' for an empty string."""
  if isinstance(value, float) and float(f'{value:g}') == value:
    return f'{value:g}'
  return str(value) if value != '' else "''"


def table_text(config: config_lib.Config, recipe: Any = None) -> str:
  """Returns the table; `recipe` is a dataclass of settings beyond the paper."""
  headers = ['', 'setting', 'this run', 'paper', 'default',
             "in the paper's table (appendix C)"]
  rows = list(_rows(config, recipe))
  widths = [max(map(len, column)) for column in zip(headers, *rows)]
  return '\n'.join([
      "A run's settings and the paper's\n",
      *('  '.join(map(str.ljust, line, widths)).rstrip() for line in (
          headers, ['-' * len(header) for header in headers], *rows)), '',
      '* differs from the paper or, where its table has no value, from the '
      'default.' if any(row[0] for row in rows) else
      'Nothing differs from the paper and the defaults.'])


def table_markdown(config: config_lib.Config, recipe: Any = None) -> str:
  """Returns the same as a block of Markdown, for TensorBoard."""
  return textwrap.indent(table_text(config, recipe), '    ', lambda _: True)
