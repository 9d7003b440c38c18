"""How the project's programs start, and how they report a user's mistakes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import errno
import functools
import logging as python_logging
import os
import re
import shutil
import signal
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging

_NARROWEST = 20  # Absl indents --help, so it needs about this many columns.
_LONGEST_TEXT = 100_000  # The most characters that are printed at once.
# A disk is full, or a limit of the user's (`ulimit -f`) is reached, or the disk
# may not be written, or it fails.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class UserError(ValueError):
  """An error that the user can fix: a program prints only its message."""


Main = Callable[..., None]
# Takes arguments and replaces those that stand for several flags, such as
# --preset, by these flags.
Expand = Callable[[Sequence[str]], Iterable[str]]


def installing(extra: str) -> str:
  """Returns a sentence that says how an optional part is installed."""
  return ("In the folder of the project's clone, .venv/bin/pip install -e "
          f"'.[{extra}]' installs it.")


class _PathParser(flags.ArgumentParser):
  """Replaces ~ and $VARIABLES: in a flagfile no shell does."""

  def parse(self, argument: str) -> str:
    return clean_path(argument)


def clean_path(path: str) -> str:
  """Returns the shortest spelling of a path, without ~ and $VARIABLES."""
  if not path:
    return ''
  return os.path.normpath(os.path.expanduser(os.path.expandvars(path)))


def path_text(name: str, path: Any) -> str:
  """Returns the path that a function got by this name, as a string.

  Raises:
    UserError: It cannot be the path of a file or a directory.
  """
  with contextlib.suppress(TypeError):  # It is no path at all.
    text = os.fsdecode(path)
    if '\0' not in text:
      return text
  raise UserError(
      f'{name} is {path!r:.100}: expected a path, as a string without null '
      'characters or a pathlib.Path.')


def define_path(name: str, default: str | None, text: str,
                required: bool = False) -> None:
  """Defines a flag whose value is the path of a file or a directory."""
  flags.DEFINE(_PathParser(), name, default, text, required=required,
               serializer=flags.ArgumentSerializer())


class _Formatter(python_logging.Formatter):
  """Shows messages as sentences, and says which ones are warnings."""

  def format(self, record: python_logging.LogRecord) -> str:
    text = printable(super().format(record))
    if record.levelno < python_logging.WARNING:
      return text
    return f'{record.levelname.capitalize()}: {text}'


def main(define_flags: Callable[[], None] = lambda: None,
         arguments: bool = False, expand: Expand = iter
        ) -> Callable[[Main], Callable[[], None]]:
  """Decorates a program's main function; calling it starts the program.

  The program refuses arguments that are not flags, unless it takes `arguments`.
  It exits with the message of a `UserError`. For a disk that cannot be written
  it prints one line, and for a closed pipe nothing. Ctrl-C exits with code 130,
  and --help with 0.

  Args:
    define_flags: Defines its flags, which --help lists. This is at the start
      and not on import, because flags of several programs have the same names.
    arguments: Whether it takes arguments that are not flags.
    expand: Replaces arguments that stand for several flags. All programs read
      their flagfiles so, by `flagfiles.expand` or `presets.expand`.
  """
  def decorate(function: Main) -> Callable[[], None]:
    @functools.wraps(function)
    def start() -> None:
      for name in 'stdout', 'stderr':
        if getattr(sys, name) is None:  # It was closed.
          setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
        with contextlib.suppress(AttributeError):  # A notebook lacks it.
          # A letter that the terminal's encoding lacks is then escaped.
          getattr(sys, name).reconfigure(errors='backslashreplace')
      known, is_parsed = {*flags.FLAGS}, flags.FLAGS.is_parsed()
      define_flags()
      own = {*flags.FLAGS} - known
      for name in own:  # --help lists the key flags of a program.
        flags.FLAGS.register_key_flag_for_module(
            sys.argv[0], flags.FLAGS[name])
      # --help begins with this text. A console script has none.
      sys.modules['__main__'].__doc__ = sys.modules[function.__module__].__doc__
      try:
        with _reported():
          app.run(functools.partial(_call, function, arguments),
                  flags_parser=functools.partial(_parse, expand=expand))
      finally:  # A notebook runs several programs.
        for name in own:
          delattr(flags.FLAGS, name)
        if not is_parsed:
          flags.FLAGS.unparse_flags()

    return start

  return decorate


def _call(function: Main, arguments: bool, argv: Sequence[str]) -> None:
  """Calls a main function."""
  logging.get_absl_handler().setFormatter(_Formatter())
  if arguments:
    function(argv[1:])
  elif argv[1:]:
    raise UserError(
        f'Unknown arguments: {" ".join(argv[1:])}. All options are flags; '
        '--help lists them.')
  else:
    function()


@contextlib.contextmanager
def _reported() -> Iterator[None]:
  """Ends the program with a message for the errors of its block."""
  try:
    try:
      yield
    finally:
      sys.stdout.flush()
  except UserError as error:
    sys.exit(f'Error: {printable(str(error))}')
  except KeyboardInterrupt:
    print('Interrupted.', file=sys.stderr)
    sys.exit(128 + signal.SIGINT)
  except BrokenPipeError:  # `| head` closes the pipe early.
    _close_output()
    sys.exit(1)
  except OSError as error:
    if error.errno not in _DISK_ERRORS:
      raise
    _close_output()
    sys.exit(f'Error: {error.filename or "the output"} cannot be written: '
             f'{error.strerror}.')


def _close_output() -> None:
  """Lets Python end without another attempt to print what is left."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
  """Escapes characters that could control a terminal; keeps line ends.

  It also escapes those that are not seen and those that turn the direction of a
  line. The middle of a very long text is left out.
  """
  if len(text) > _LONGEST_TEXT:
    half, left_out = _LONGEST_TEXT // 2, len(text) - _LONGEST_TEXT
    text = (f'{text[:half]}... [{left_out:,} characters are left out] ...'
            f'{text[-half:]}')
  return ''.join(
      x if x.isprintable() or x == '\n' else x.encode('unicode_escape').decode()
      for x in text)


def shown(value: Any) -> str:
  """Returns a short form of any value on one line, for an error message."""
  try:
    text = ' '.join(repr(value).split())
  except Exception:  # It is nested too deeply, too large, or a user's own.
    text = f'something of type {type(value).__name__}, which has no text form'
  return text if len(text) <= 200 else f'{text[:200]}...'


def _parse(arguments: Sequence[str], expand: Expand) -> list[str]:
  """Reads the flags; returns the program's name and its other arguments."""
  if shutil.get_terminal_size().columns < _NARROWEST:
    os.environ['COLUMNS'] = str(_NARROWEST)
  try:
    return flags.FLAGS([*arguments[:1], *expand(arguments[1:])])
  except SystemExit:  # After --help absl exits with 1, as after an error.
    sys.exit(0)
  except UserError as error:
    sys.exit(f'Error: {printable(str(error))}')
  except (flags.Error, ValueError) as error:  # Absl raises both.
    problem = printable(str(error).removeprefix('ERROR:: '))
    if missing := re.findall(r'Flag --(\w+) must have a value other', problem):
      problem = f'--{" and --".join(missing)} must be given'
    end = '' if problem.endswith(('.', '?')) else '.'
    sys.exit(f'Error: {problem}{end} --help lists all flags.')
