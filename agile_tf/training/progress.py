"""Shows how far a run is: a line in a terminal, or one a minute in a file."""

import collections
from collections.abc import Callable
import functools
import sys
import threading
import time

from absl import logging
import tqdm

_LINE_SECONDS = 60.0  # From one line in a file to the next.
_AVERAGED_SECONDS = 600.0  # What the estimate of the time left is based on.
_UNITS = (('day', 86_400), ('hour', 3600), ('minute', 60))


def counted(count: int, what: str) -> str:
  """Returns '1 thread' or '2 threads'."""
  return f'{count} {what}{"" if count == 1 else "s"}'


def duration(seconds: float) -> str:
  """Returns a duration in words, such as '25 days' or '3 hours'."""
  for unit, size in _UNITS:
    if seconds >= 2 * size:
      return counted(round(seconds / size), unit)
  return counted(round(seconds), 'second')


class _Stream:
  """A file that passes what is written to a function."""

  def __init__(self, write: Callable[[str], None]):
    self.write = write

  def flush(self) -> None:
    """Does nothing: the function keeps nothing back."""


class Progress:
  """The progress of a run on stderr.

  A thread shows it, because the main thread compiles for minutes.
  """

  def __init__(self, compiled: Callable[[], int] = lambda: 0):
    """Takes what counts the programs that TensorFlow has begun to compile."""
    self._compiled = compiled
    self._what, self._total, self._done, self._note = 'steps', 0, 0, ''
    self._start = self._shown = time.monotonic()
    # Times and counts, once something has been done: the time that is left does
    # not depend on how long compilation took.
    self._samples: collections.deque[tuple[float, int]] = collections.deque()
    self._in_terminal = sys.stderr is not None and sys.stderr.isatty()
    if self._in_terminal:
      self._bar = tqdm.tqdm(bar_format='{desc}', dynamic_ncols=True)
      self._handler = logging.get_absl_handler().python_handler
      self._stream = self._handler.stream
      # Log lines then appear above the bar.
      self._handler.setStream(_Stream(functools.partial(
          tqdm.tqdm.write, file=self._stream, end='')))
    self._lock = threading.Lock()
    self._over = threading.Event()
    threading.Thread(target=self._watch, name='progress', daemon=True).start()

  def _watch(self) -> None:
    while not self._over.wait(1.0):
      self._show_if_due()

  def update(self, done: int, total: int, what: str = 'steps') -> None:
    """Shows that so many of a total of 'steps', say, are done."""
    now = time.monotonic()
    with self._lock:
      if what != self._what or not self._total:
        self._what, self._start = what, now
        self._samples.clear()
      elif done > self._done and (
          not self._samples or now >= self._samples[-1][0] + 1.0):
        self._samples.append((now, done))
        while now - self._samples[0][0] > _AVERAGED_SECONDS:
          self._samples.popleft()
      self._done, self._total = done, total
    self._show_if_due()

  def note(self, text: str) -> None:
    """Shows a text behind the progress."""
    self._note = text

  def _text(self, now: float) -> str:
    done, total = (
        str(count) if count < 1000 else tqdm.tqdm.format_sizeof(count)
        for count in (min(self._done, self._total), self._total))
    if not self._samples:
      return (f'compiling program {max(1, self._compiled())} before the next '
              f'of {total} {self._what}, for {duration(now - self._start)}')
    start, first = self._samples[0]
    text = (f'{100 * min(1.0, self._done / self._total):.1f} %, {done} of '
            f'{total} {self._what}')
    if self._done > first and now > start:
      rate = (self._done - first) / (now - start)
      left = max(0, self._total - self._done) / rate
      text += f', {rate:.3g} a second, {duration(left)} left'
    return f'{text}, {self._note}' if self._note else text

  def _show_if_due(self, last: bool = False) -> None:
    with self._lock:
      now = time.monotonic()
      every = 1.0 if self._in_terminal else _LINE_SECONDS
      if not self._total or (now < self._shown + every and not last):
        return
      self._shown = now
      if self._in_terminal:
        self._bar.set_description_str(self._text(now))
      else:
        logging.info('%s', self._text(now))

  def close(self) -> None:
    """Ends the line, or writes the last one."""
    self._over.set()
    if self._samples:
      self._show_if_due(last=True)
    if self._in_terminal:
      self._bar.close()
      self._handler.setStream(self._stream)
