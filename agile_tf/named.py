"""Functions of users, which flags name as 'package.module:function'.

A user's code may do what would end or mislead a run without a word: it may call
exit(), change the current directory, or define a flag that the program has too.
Each of these is an error that names the code. Other exceptions go to the user,
with their traceback.
"""

from collections.abc import Callable, Iterator
import contextlib
import importlib
import inspect
import os
import pkgutil
import re
import sys
from typing import Any

from absl import flags

from gridlu import program

_Error = type[program.UserError]


@contextlib.contextmanager
def running(code: str, error_type: _Error) -> Iterator[None]:
  """Raises an error if a user's code, such as 'step()', ends the program."""
  try:
    yield
  except SystemExit as error:
    raise error_type(
        f'{code} called exit({error.code!r}), which would end the program; '
        'expected that it returns, or raises an exception.') from error


@contextlib.contextmanager
def loading(code: str, error_type: _Error) -> Iterator[None]:
  """The same as `running`; it is also an error to change the directory."""
  before = os.getcwd()
  with running(code, error_type):
    yield
  if (now := os.getcwd()) != before:
    os.chdir(before)
    raise error_type(
        f'{code} changed the current directory from {before} to {now}, where '
        'relative paths, such as that of --run_dir, lead elsewhere; expected '
        'that it changes back, as `with contextlib.chdir(...):` does, or uses '
        'absolute paths.')


def find(name: str, *arguments: Any, label: str, expected: str,
         error_type: _Error) -> Callable[..., Any]:
  """Imports and returns the function 'package.module:function'.

  Its module is in the current directory, installed, or on PYTHONPATH.

  Args:
    name: The name of the function.
    *arguments: The arguments that it must take.
    label: How errors begin, such as '--model=package.module:function'.
    expected: What the name should be, which errors say.
    error_type: The class of errors.

  Raises:
    UserError: There is no such function, or its module calls exit(), changes
      the current directory or defines a flag of this program. The error is an
      `error_type`.
  """
  if os.getcwd() not in sys.path:  # It is in the path of `python -m`.
    sys.path.insert(0, os.getcwd())
  module, _, path = name.partition(':')

  def wrong(problem: Any) -> program.UserError:
    return error_type(
        f'{label} cannot be loaded ({problem}). Expected {expected}. Its '
        'module is in this directory, installed, or on PYTHONPATH.')

  if not all(map(str.isidentifier, f'{module}.{path}'.split('.'))):
    raise wrong('that is not the name of a function in a module')
  try:
    with loading(f'{label}: importing {module}', error_type):
      importlib.import_module(module)
  except ModuleNotFoundError as error:
    is_asked_for = f'{module}.'.startswith(f'{error.name}.')
    if not is_asked_for:  # The module imports something that is missing.
      raise
    raise wrong(error) from error
  except flags.DuplicateFlagError as error:
    found = re.search(r"The flag '(\w+)'", str(error))
    raise error_type(
        f'{label}: importing {module} defines the flag '
        f'--{found[1] if found else "?"}, which this program has too. Give it '
        "another name, or define it under `if __name__ == '__main__':`."
        ) from error
  try:
    function = pkgutil.resolve_name(name)
    inspect.signature(function).bind(*arguments)
  except (AttributeError, TypeError, ValueError) as error:
    raise wrong(error) from error
  return function


def name(function: Callable[..., Any]) -> str:
  """Returns 'package.module:function', or this of its type if it has none.

  `find` need not find it again: a lambda has such a name, too.
  """
  kind = function if hasattr(function, '__qualname__') else type(function)
  return f'{kind.__module__}:{kind.__qualname__}'
