"""Flagfiles: --flagfile=PATH stands for the flags in a file.

Absl reads flagfiles too, but takes a comment behind a value for a part of it,
and waits for ever where a file is a named pipe.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
import re
import types

from absl import flags

from gridlu import files
from gridlu import program

_LARGEST = 10**6  # The most bytes of a flagfile.
_MOST = 100  # The most flagfiles of a command, with those that they name.
_NONE: Mapping[str, Callable[[str], str]] = types.MappingProxyType({})


def expand(arguments: Sequence[str],
           named: Mapping[str, Callable[[str], str]] = _NONE) -> Iterator[str]:
  """Yields arguments, with the flags of flagfiles in the place of their names.

  A key of `named` is another flag that stands for a flagfile, such as 'preset',
  and the value is a function from the flag's value to the path.

  Raises:
    UserError: There is no such flagfile, or a line of it is no flag.
  """
  rest, paths = iter(arguments), list[str]()
  for argument in rest:
    flag, is_set, value = argument.partition('=')
    if argument == '--':
      yield argument
      yield from rest
    elif flag in ('--flagfile', '-flagfile'):
      yield from _flags_in(value if is_set else next(rest, ''), (), paths)
    elif flag.startswith('-') and flag.lstrip('-') in named:
      path = named[flag.lstrip('-')](value if is_set else next(rest, ''))
      yield from _flags_in(path, (), paths)
    else:
      yield argument


def _flags_in(path: str, inside: tuple[str, ...], paths: list[str]
             ) -> Iterator[str]:
  """Yields the flags of a flagfile that is read inside these others.

  `paths` are those of all flagfiles that were read so far.
  """
  def wrong(problem: str, number: int = 0) -> program.UserError:
    line = f', line {number}' if number else ''
    return program.UserError(f'--flagfile={path}{line}: {problem}')

  if not path.strip():
    raise wrong('the name is empty: expected the path of a flagfile.')
  path = os.path.expanduser(path.strip())
  if path in inside:
    raise wrong(f'{inside[-1]} reads it, and it reads {inside[-1]}. Remove one '
                'of the two lines.')
  if len(paths) == _MOST:
    raise wrong(f'it is one more than the {_MOST} flagfiles that a command may '
                'read. Do they name each other too often?')
  paths.append(path)
  try:
    text = files.read(path, _LARGEST).decode('utf-8-sig')
  except (OSError, ValueError) as error:
    raise wrong(f'it cannot be read ({error}).') from error
  if '\r' in text.replace('\r\n', '\n'):
    raise wrong('it has lines that end by a carriage return alone: save it '
                'with line ends of Unix.')
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
    if control := re.search(r'[\0-\x1f\x7f]', line):
      raise wrong(
          f'{line!r:.200} has the control character {control[0]!r}, which '
          'would become a part of the value: remove it.', number)
    name = flag.lstrip('-')
    if not is_set and name in flags.FLAGS and not flags.FLAGS[name].boolean:
      raise wrong(f'{line!r:.200} has no value: write {flag}=value.', number)
    if flag in ('--flagfile', '-flagfile'):
      yield from _flags_in(value, (*inside, path), paths)
    else:
      yield line
