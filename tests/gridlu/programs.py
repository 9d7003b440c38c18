"""Calls the project's programs within a test's process.

A process of their own would import everything again, which takes seconds. Tests
of signals, exit codes and imports still start one.
"""

import contextlib
import io
import sys
import types
from typing import NamedTuple
from unittest import mock

from gridlu import program


class Result(NamedTuple):
  """What a process would have left."""
  returncode: int
  stdout: str
  stderr: str


def call(module: types.ModuleType, *arguments: str) -> Result:
  """Returns what `python -m MODULE ARGUMENTS` prints, but for --help.

  A traceback is not printed: the test gets the exception.
  """
  name = module.__name__

  def run(function, flags_parser):
    function(flags_parser([name, *arguments]))

  code: int | str = 0
  with (mock.patch.object(program.app, 'run', run),
        mock.patch.object(sys, 'argv', [name, *arguments]),
        mock.patch.object(sys.modules['__main__'], '__doc__', ''),
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors):
    try:
      module.main()
    except SystemExit as error:
      code = error.code or 0
      if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
  return Result(code, output.getvalue(), errors.getvalue())
