"""How the project's programs start, and how they report a user's mistakes."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import errno
import functools
import logging as python_logging
import os
import re
import signal
import sys

from absl import app
from absl import flags
from absl import logging


class UserError(ValueError):
  """An error that the user can fix: a program prints only its message."""


Main = Callable[..., None]
# Returns the path of the flagfile of a preset's name, or raises UserError.
Preset = Callable[[str], str]


class _PathParser(flags.ArgumentParser):
  """Replaces ~ and $VARIABLES: in a flagfile no shell does."""

  def parse(self, argument: str) -> str:
    return clean_path(argument)


def clean_path(path: str) -> str:
  """Returns the shortest spelling of a path, without ~ and $VARIABLES."""
  if not path:
    return ''
  return os.path.normpath(os.path.expanduser(os.path.expandvars(path)))


def define_path(name: str, default: str | None, text: str,
                required: bool = False) -> None:
  """Defines a flag whose value is the path of a file or a directory."""
  flags.DEFINE(_PathParser(), name, default, text, required=required,
               serializer=flags.ArgumentSerializer())


class _Formatter(python_logging.Formatter):
  """Shows messages as sentences, and says which ones are warnings."""

  def format(self, record: python_logging.LogRecord) -> str:
    text = super().format(record)
    if record.levelno < python_logging.WARNING:
      return text
    return f'{record.levelname.capitalize()}: {text}'


def main(define_flags: Callable[[], None] = lambda: None,
         arguments: bool = False, preset: Preset | None = None
        ) -> Callable[[Main], Callable[[], None]]:
  """Decorates a program's main function; calling it starts the program.

  The program refuses arguments that are not flags, unless it takes `arguments`.
  It exits with the message of a `UserError`. For a full disk it prints one
  line, and for a closed pipe nothing. --help exits with code 1, as in all
  programs of absl.

  Args:
    define_flags: Defines its flags, which --help lists. This is at the start
      and not on import, because flags of several programs have the same names.
    arguments: Whether it takes arguments that are not flags.
    preset: What --preset=NAME stands for, if the program knows that flag.
  """
  def decorate(function: Main) -> Callable[[], None]:
    @functools.wraps(function)
    def start() -> None:
      for name in 'stdout', 'stderr':
        if getattr(sys, name) is None:  # It was closed.
          setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
      known, is_parsed = {*flags.FLAGS}, flags.FLAGS.is_parsed()
      define_flags()
      own = {*flags.FLAGS} - known
      for name in own:
        flags.FLAGS.register_key_flag_for_module(
            sys.argv[0], flags.FLAGS[name])
      # --help begins with this text. A console script has none.
      sys.modules['__main__'].__doc__ = sys.modules[function.__module__].__doc__
      try:
        with _reported():
          app.run(functools.partial(_call, function, arguments),
                  flags_parser=functools.partial(_parse, preset=preset))
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
    sys.exit('Interrupted.')
  except BrokenPipeError:  # Of `| head`, say.
    _close_output()
    sys.exit(1)
  except OSError as error:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
      raise
    _close_output()
    sys.exit(f'Error: {error.filename or "the output"} cannot be written: '
             f'{error.strerror}.')


def _close_output() -> None:
  """Lets Python end without another attempt to print what is left."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stop_signals() -> list[int]:
  """Returns the signals that let a run save and stop."""
  # SIGINT and SIGTERM stop a run even if they were ignored: a script's shell
  # starts background jobs with SIGINT ignored, and `kill -INT` must stop these.
  # The others stay ignored where they are, such as SIGHUP under nohup.
  return [signal.SIGINT, signal.SIGTERM, *(
      each for each in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
      if signal.getsignal(each) not in (signal.SIG_IGN, None))]


def printable(text: str) -> str:
  """Escapes what could control a terminal; keeps line ends."""
  return ''.join(
      x if x.isprintable() or x == '\n' else x.encode('unicode_escape').decode()
      for x in text)


def with_flagfiles(arguments: Sequence[str], preset: Preset | None
                  ) -> Iterator[str]:
  """Yields arguments with the flagfile that each --preset=NAME stands for."""
  rest = iter(arguments)
  for argument in rest:
    flag, is_set, value = argument.partition('=')
    if argument == '--':
      yield argument
      yield from rest
    elif flag in ('--flagfile', '-flagfile') and is_set and not value:
      raise UserError('--flagfile= is empty: expected the path of a flagfile.')
    elif preset is not None and flag in ('--preset', '-preset'):
      yield f'--flagfile={preset(value if is_set else next(rest, ""))}'
    else:
      yield argument


def _parse(arguments: Sequence[str], preset: Preset | None) -> list[str]:
  """Reads the flags; returns the program's name and its other arguments."""
  try:
    return flags.FLAGS(
        [*arguments[:1], *with_flagfiles(arguments[1:], preset)])
  except UserError as error:
    sys.exit(f'Error: {printable(str(error))}')
  except (flags.Error, ValueError) as error:  # Absl raises both.
    problem = printable(str(error).removeprefix('ERROR:: '))
    if missing := re.findall(r'Flag --(\w+) must have a value other', problem):
      problem = f'--{" and --".join(missing)} must be given'
    end = '' if problem.endswith(('.', '?')) else '.'
    sys.exit(f'Error: {problem}{end} --help lists all flags.')
