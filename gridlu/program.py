"""How the project's programs start, and how they report a user's mistakes."""

from collections.abc import Callable, Sequence
import functools
import re
import sys

from absl import app
from absl import flags

# The flags that `run` defines count as those of the program, for its --help.
flags.disclaim_key_flags()


class UserError(ValueError):
  """An error that the user can fix: a program prints only its message."""


Main = Callable[[Sequence[str]], None]


def main(arguments: bool = False) -> Callable[[Main], Main]:
  """Decorates a program's main function of `sys.argv`: `@program.main()`.

  The program exits with the message of a `UserError`, and refuses arguments
  that are not flags, unless it takes `arguments`.
  """
  def decorate(function: Main) -> Main:
    @functools.wraps(function)
    def reporting(argv: Sequence[str]) -> None:
      try:
        if len(argv) > 1 and not arguments:
          raise UserError(
              f'Unknown arguments: {" ".join(argv[1:])}. All options are '
              'flags; --help lists them.')
        function(argv)
      except UserError as error:
        sys.exit(f'Error: {error}')

    return reporting

  return decorate


def _parse(arguments: Sequence[str],
           expand: Callable[[Sequence[str]], Sequence[str]]) -> list[str]:
  """Reads the flags; returns the program's name and its other arguments."""
  try:
    return flags.FLAGS(expand(arguments))
  except flags.Error as error:
    missing = re.findall(r'Flag --(\w+) must have a value other than None',
                         str(error))
    problem = str(error).removeprefix('ERROR:: ')
    if missing:
      problem = f'--{" and --".join(missing)} must be given'
    end = '' if problem.endswith(('.', '?')) else '.'
    sys.exit(f'Error: {problem}{end} --help lists all flags.')
  except UserError as error:
    sys.exit(f'Error: {error}')
  except UnicodeDecodeError as error:
    sys.exit(f'Error: a flagfile is not text in UTF-8 ({error}).')


def run(function: Main, define_flags: Callable[[], None],
        expand: Callable[[Sequence[str]], Sequence[str]] = tuple) -> None:
  """Starts a program, whose command line `expand` may change."""
  # Flags are not defined on import, because tests import several programs,
  # whose flags may have the same names.
  known = {*flags.FLAGS}
  define_flags()
  for name in {*flags.FLAGS} - known:
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
  # --help begins with this text. A console script has none.
  sys.modules['__main__'].__doc__ = sys.modules[function.__module__].__doc__
  app.run(function, flags_parser=functools.partial(_parse, expand=expand))
