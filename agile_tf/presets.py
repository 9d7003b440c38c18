"""Flagfiles: --flagfile=PATH, and those of launch/ by name: --preset=relations.

Absl reads flagfiles too, but takes a comment behind a value for a part of it.
"""

from collections.abc import Iterator, Sequence
import os
import re

from absl import flags

from gridlu import program

_HERE = os.path.dirname(os.path.abspath(__file__))
# An installed package has a copy of launch/.
_FOLDER = os.path.join(_HERE, 'flagfiles')
if not os.path.isdir(_FOLDER):
  _FOLDER = os.path.join(os.path.dirname(_HERE), 'launch')
_LONGEST = 10**6  # The most characters of a flagfile.


def names() -> list[str]:
  """Returns the names of all presets, sorted."""
  return sorted(name.removesuffix('.flags') for name in os.listdir(_FOLDER)
                if name.endswith('.flags'))


def flagfile(name: str) -> str:
  """Returns the path of a preset's flagfile."""
  if name not in names():
    raise program.UserError(
        f'--preset={name}: expected one of {", ".join(names())}.')
  return os.path.join(_FOLDER, f'{name}.flags')


def define_flag(values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines --preset for --help; `expand` replaces it."""
  flags.DEFINE_enum(
      'preset', None, names(), 'Reads the flags of an experiment; flags after '
      'it override them. --flagfile=PATH reads your own.', values)
  flags.register_validator(
      'preset', lambda name: name is None,
      'only a command line can have it; in a flagfile give --flagfile=PATH',
      values)


def expand(arguments: Sequence[str]) -> Iterator[str]:
  """Yields arguments, with the flags of flagfiles in the place of their names.

  Raises:
    UserError: There is no such preset or flagfile, or a line of it is no flag.
  """
  rest = iter(arguments)
  for argument in rest:
    flag, is_set, value = argument.partition('=')
    if argument == '--':
      yield argument
      yield from rest
    elif flag in ('--flagfile', '-flagfile'):
      yield from _flags_in(value if is_set else next(rest, ''), ())
    elif flag in ('--preset', '-preset'):
      yield from _flags_in(
          flagfile(value if is_set else next(rest, '')), ())
    else:
      yield argument


def _flags_in(path: str, inside: tuple[str, ...]) -> Iterator[str]:
  """Yields the flags of a flagfile that is read inside these others."""
  def wrong(problem: str, number: int = 0) -> program.UserError:
    line = f', line {number}' if number else ''
    return program.UserError(f'--flagfile={path}{line}: {problem}')

  if not path.strip():
    raise wrong('the name is empty: expected the path of a flagfile.')
  path = os.path.expanduser(path.strip())
  if path in inside:
    raise wrong(f'{inside[-1]} reads it, and it reads {inside[-1]}.')
  try:
    with open(path, encoding='utf-8-sig') as file:
      text = file.read(_LONGEST + 1)
  except (OSError, ValueError) as error:
    raise wrong(f'it cannot be read ({error}).') from error
  if len(text) > _LONGEST:
    raise wrong(f'expected at most {_LONGEST:,} characters.')
  for number, line in enumerate(map(str.strip, text.split('\n')), 1):
    flag, is_set, value = line.partition('=')
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in '\'"'
    if not line or line.startswith(('#', '//')):
      continue
    if not re.fullmatch(r'--?\w+', flag):
      raise wrong(f'{line!r:.200} is no flag: expected --name=value, and '
                  'comments on lines of their own.', number)
    if re.search(r'\s#', value):
      raise wrong(f'{line!r:.200} has a comment behind the value, which would '
                  'become a part of it: put it on a line of its own.', number)
    if quoted:
      raise wrong(f'{line!r:.200} has quotes around the value, which would '
                  f'become a part of it: write {flag}={value[1:-1]:.100}.',
                  number)
    if '\0' in value:
      raise wrong(f'{line!r:.200} has the character NUL.', number)
    if flag in ('--flagfile', '-flagfile'):
      yield from _flags_in(value, (*inside, path))
    else:
      yield line
