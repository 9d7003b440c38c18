"""A program at a terminal of its own (a pseudo-terminal), for tests."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Any

_SECONDS = 60  # After which a test gives up, on a busy machine too.


def _take_terminal() -> None:
  """Lets Ctrl-C, Ctrl-Z and a new size reach the program that begins here."""
  # Tests that a shell runs in the background ignore it.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
  """A terminal, 80x24 unless told, and the program that runs in it.

  Attributes:
    output: Everything that the program has written so far.
  """

  def __init__(self, *arguments: str, term: str = 'xterm', columns: int = 80,
               rows: int = 24, **environment: str):
    self._master, self._slave = pty.openpty()
    self.resize(columns, rows)
    self._settings = termios.tcgetattr(self._slave)
    self.output = ''
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ('NO_COLOR', 'COLUMNS', 'LINES')}
    self._process = subprocess.Popen(
        [sys.executable, '-m', *arguments], stdin=self._slave,
        stdout=self._slave, stderr=self._slave, start_new_session=True,
        preexec_fn=_take_terminal,
        env=inherited | {'TERM': term} | environment)

  def __enter__(self) -> 'Terminal':
    return self

  def __exit__(self, *unused: Any) -> None:
    self._process.kill()
    self._process.wait()
    os.close(self._master)
    os.close(self._slave)

  def resize(self, columns: int, rows: int) -> None:
    """Gives the terminal another size."""
    fcntl.ioctl(self._slave, termios.TIOCSWINSZ,
                struct.pack('HHHH', rows, columns, 0, 0))

  def _read(self) -> bool:
    """Reads what there is; returns whether there was something."""
    if not select.select([self._master], [], [], .1)[0]:
      return False
    self.output += os.read(self._master, 65536).decode()
    return True

  def expect(self, text: str) -> None:
    """Waits until the program has written a text since the last `press`."""
    deadline = time.monotonic() + _SECONDS
    while text not in self.output:
      self._read()
      if time.monotonic() > deadline or self._process.poll() is not None:
        while self._read():
          pass
        if text not in self.output:
          raise AssertionError(f'{text!r} is not in {self.output!r}.')

  def press(self, keys: str) -> None:
    """Types; forgets what has been written before."""
    self.output = ''
    os.write(self._master, keys.encode())

  def terminate(self) -> None:
    """Sends the program the signal to end."""
    self._process.terminate()

  def wait(self) -> int:
    """Waits for the program to end; returns its exit status."""
    deadline = time.monotonic() + _SECONDS
    while self._process.poll() is None:
      self._read()
      if time.monotonic() > deadline:
        raise AssertionError(f'The program does not end: {self.output!r}.')
    while self._read():
      pass
    return self._process.returncode

  @property
  def restored(self) -> bool:
    """Whether the terminal's settings are those from before the program."""
    return termios.tcgetattr(self._slave) == self._settings
