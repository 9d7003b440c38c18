"""Values that JSON can represent, checked against what is expected of them.

A `Check` raises a ValueError for a value that is not right; its message names
the place of the value. Checks are put together:

    schema.named({'steps': schema.whole(0), 'tokens': schema.each(schema.TEXT)})

fits {'steps': 5, 'tokens': ['red', 'circle']}.
"""

from collections.abc import Callable, Mapping
import contextlib
from typing import Any

import numpy as np

Check = Callable[[Any, str], None]  # It gets a value and the value's place.


def require(right: bool, value: Any, place: str, expected: str) -> None:
  """Raises a ValueError for a value that is not right."""
  if not right:
    shown = repr(value) if isinstance(value, str | int | float | None) else (
        f'a {type(value).__name__}')
    if len(shown) > 100:
      shown = f'{shown[:100]}...'
    raise ValueError(f'{place or "it"} is {shown}: expected {expected}')


def whole(low: int, high: int | None = None) -> Check:
  """Returns the check of a whole number from `low` to `high`."""
  expected = f'a whole number of at least {low}' if high is None else (
      f'a whole number from {low} to {high}')

  def check(value: Any, place: str) -> None:
    require(type(value) is int and value >= low and (
        high is None or value <= high), value, place, expected)

  return check


def count(value: Any, place: str) -> None:
  """Checks a number of things, from 1 up, which may be one of NumPy's."""
  if isinstance(value, np.generic):
    value = value.item()
  require(type(value) is int and value >= 1, value, place,
          'a whole number of at least 1.')


def number(value: Any, place: str) -> None:
  """Checks a number, which may be infinite or no number (NaN)."""
  # Whole numbers up to this limit fit into a float.
  fits = type(value) is float or type(value) is int and abs(value) < 2**1023
  require(fits, value, place, 'a number')


def of_type(wanted: type, expected: str) -> Check:
  """Returns the check that a value is of exactly this type.

  A value of a subclass does not fit: True is no int.
  """
  def check(value: Any, place: str) -> None:
    require(type(value) is wanted, value, place, expected)

  return check


TEXT = of_type(str, 'a text')
BOOL = of_type(bool, 'true or false')
NOTHING = of_type(type(None), 'null')


def generator(value: Any, place: str) -> None:
  """Checks the state of a generator that `np.random.default_rng` made."""
  _GENERATOR(value, place)
  name = value['bit_generator']
  require(name == 'PCG64', name, f'{place}.bit_generator', "'PCG64'")


def anything(value: Any, place: str) -> None:
  """Accepts every value."""
  del value, place


def each(check: Check, count: int | None = None) -> Check:
  """Returns the check of a list of so many values, each of which fits."""
  expected = 'a list' if count is None else f'a list of {count} values'

  def check_all(value: Any, place: str) -> None:
    require(type(value) is list and count in (None, len(value)), value, place,
            expected)
    for i, part in enumerate(value):
      check(part, f'{place}[{i}]')

  return check_all


def by_name(check: Check) -> Check:
  """Returns the check of an object whose values all fit."""
  def check_all(value: Any, place: str) -> None:
    require(type(value) is dict, value, place, 'values by name')
    for name, part in value.items():
      check(part, _inside(place, name))

  return check_all


def named(required: Mapping[str, Check], optional: Mapping[str, Check] = {}
         ) -> Check:
  """Returns the check of an object with these values; it may have others."""
  def check(value: Any, place: str) -> None:
    require(type(value) is dict, value, place,
            f'an object with {", ".join(required)}' if required else
            'an object')
    if missing := [name for name in required if name not in value]:
      raise ValueError(f'{place or "it"} lacks {", ".join(missing)}')
    for name, fits in (*required.items(), *optional.items()):
      if name in value:
        fits(value[name], _inside(place, name))

  return check


def either(*checks: Check) -> Check:
  """Returns the check of a value that fits one of these checks.

  If none fits, the error is that of the last check.
  """
  *others, last = checks

  def check(value: Any, place: str) -> None:
    for fits in others:
      with contextlib.suppress(ValueError):
        fits(value, place)
        return
    last(value, place)

  return check


def _inside(place: str, name: str) -> str:
  """Returns the place of a value in an object; strange names are escaped."""
  shown = name if name.isidentifier() else repr(name)[:100]
  return f'{place}.{shown}' if place else shown


_GENERATOR = named({
    'bit_generator': TEXT,
    'state': named({
        'state': whole(0, 2**128 - 1), 'inc': whole(0, 2**128 - 1)}),
    'has_uint32': whole(0, 1), 'uinteger': whole(0, 2**32 - 1)})
