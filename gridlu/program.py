"""How the project's programs start, and how they report a user's mistakes."""

from collections.abc import Callable, Sequence
import functools
import sys

from absl import app
from absl import flags

# The flags that `run` defines count as those of the program, for its --help.
flags.disclaim_key_flags()


class UserError(ValueError):
  """An error that the user can fix.

  Its message names the value, what was expected and the fix. A program prints
  the message without a traceback and exits with code 1.
  """


Main = Callable[[Sequence[str]], None]


def main(arguments: bool = False) -> Callable[[Main], Main]:
  """Returns a decorator for a program's main function: `@program.main()`.

  Args:
    arguments: Whether the program takes arguments that are not flags.

  Returns:
    A decorator for a function of `sys.argv`. The decorated function exits with
    the message of a `UserError`, and refuses arguments if it takes none.
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


def run(function: Main, define_flags: Callable[[], None]) -> None:
  """Starts a program.

  Flags are defined here and not on import, because tests import several
  programs, whose flags may have the same names.

  Args:
    function: Its main function.
    define_flags: Defines its flags.
  """
  define_flags()
  app.run(function)
