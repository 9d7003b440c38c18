"""The flagfiles of launch/ by name: --preset=relations."""

from collections.abc import Iterator, Sequence
import os

from absl import flags

from gridlu import flagfiles
from gridlu import program

_HERE = os.path.dirname(os.path.abspath(__file__))
# An installed package has a copy of launch/.
_FOLDER = os.path.join(_HERE, 'flagfiles')
if not os.path.isdir(_FOLDER):
  _FOLDER = os.path.join(os.path.dirname(_HERE), 'launch')


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
  """Yields arguments, with flags in the place of flagfiles and presets.

  Raises:
    UserError: There is no such preset or flagfile, or a line of it is no flag.
  """
  return flagfiles.expand(arguments, {'preset': flagfile})
