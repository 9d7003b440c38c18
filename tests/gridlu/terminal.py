"""A program at a terminal of its own (a pseudo-terminal), for tests."""

import functools
import io
import os
import signal
import sys
import termios
from typing import Any

import pexpect


class Terminal:
  """A terminal, 80x24 unless told, and the program that runs in it."""

  def __init__(self, *arguments: str, term: str = 'xterm', columns: int = 80,
               rows: int = 24, **environment: str):
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ('COLUMNS', 'LINES')}
    self._program = pexpect.spawn(
        sys.executable, ['-m', *arguments], encoding='utf-8',
        timeout=300,  # On a busy machine too.
        dimensions=(rows, columns),
        env=inherited | {'TERM': term} | environment,
        # Tests that a shell runs in the background ignore it.
        preexec_fn=functools.partial(
            signal.signal, signal.SIGINT, signal.SIG_DFL))
    self._settings = termios.tcgetattr(self._program.child_fd)
    self._program.logfile_read = io.StringIO()

  def __enter__(self) -> 'Terminal':
    return self

  def __exit__(self, *unused: Any) -> None:
    self._program.close(force=True)

  @property
  def output(self) -> str:
    """What the program has written since the last `press`."""
    return self._program.logfile_read.getvalue()

  def resize(self, columns: int, rows: int) -> None:
    """Gives the terminal another size."""
    self._program.setwinsize(rows, columns)

  def expect(self, text: str) -> None:
    """Waits until the program has written a text since the last `press`."""
    if text not in self.output:
      self._program.expect_exact(text)

  def press(self, keys: str) -> None:
    """Types; forgets what has been written before."""
    self._program.logfile_read = io.StringIO()
    self._program.send(keys)

  def kill(self, number: int) -> None:
    """Sends the program a signal."""
    self._program.kill(number)

  def wait(self) -> int:
    """Waits for the program to end; returns its exit status."""
    self._program.expect(pexpect.EOF)
    return self._program.wait()

  @property
  def restored(self) -> bool:
    """Whether the terminal's settings are those from before the program."""
    return termios.tcgetattr(self._program.child_fd) == self._settings
