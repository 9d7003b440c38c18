"""The flagfiles of launch/ by name, from any directory: --preset=relations."""

from collections.abc import Iterator, Sequence
import os

from absl import flags

from gridlu import program

_HERE = os.path.dirname(os.path.abspath(__file__))
# An installed package has a copy of launch/.
_FOLDER = os.path.join(_HERE, 'flagfiles')
if not os.path.isdir(_FOLDER):
  _FOLDER = os.path.join(os.path.dirname(_HERE), 'launch')
_FLAG = '--preset'


def names() -> list[str]:
  """Returns the names of all presets, sorted."""
  return sorted(name.removesuffix('.flags') for name in os.listdir(_FOLDER)
                if name.endswith('.flags'))


def flagfile(name: str) -> str:
  """Returns the path of a preset's flagfile."""
  if name not in names():
    raise program.UserError(
        f'{_FLAG}={name}: expected one of {", ".join(names())}.')
  return os.path.join(_FOLDER, f'{name}.flags')


def _check_flagfile(argument: str) -> None:
  name = argument.partition('=')[2]
  preset = os.path.basename(name).removesuffix('.flags')
  if (argument == f'--flagfile={name}' and preset in names() and
      not os.path.exists(program.clean_path(name))):
    raise program.UserError(
        f'There is no {name} here. {_FLAG}={preset} has its flags in any '
        'directory.')


def define_flag(values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines --preset for the program's --help; `expand` replaces it."""
  flags.DEFINE_enum(
      'preset', None, names(), 'Reads the flags of an experiment; flags after '
      'it override them. --flagfile=PATH reads your own.', flag_values=values)


def expand(arguments: Sequence[str]) -> list[str]:
  """Returns a command line with --flagfile=PATH for --preset=NAME.

  Flags after it override the preset, as with --flagfile.
  """
  def expanded() -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
      flag, is_set, name = argument.partition('=')
      if argument == '--':
        yield argument
        yield from rest
      elif flag in (_FLAG, _FLAG[1:]):
        yield f'--flagfile={flagfile(name if is_set else next(rest, ""))}'
      else:
        _check_flagfile(argument)
        yield argument

  return list(expanded())
