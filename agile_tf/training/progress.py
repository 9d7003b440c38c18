"""Shows how far a run is: a line in a terminal, or one a minute in a file."""

import collections
from collections.abc import Callable
import sys
import threading
import time

from absl import logging
import tqdm
import tqdm.contrib

from agile_tf.training import threads

_LINE_SECONDS = 60.0  # The time from one line in a file to the next.
_AVERAGED_SECONDS = 600  # The time left is estimated from so many seconds.
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


class Progress:
  """The progress of a run on stderr.

  A thread shows it, because the main thread compiles for minutes.
  """

  def __init__(self):
    self.note = ''  # A text behind the progress.
    # Says what the run waits for before anything is done; '' if it is unknown.
    self.waits_for: Callable[[], str] = lambda: ''
    # The last arguments of `update`; a total of 0 before the first one.
    self._now = (0, 0, 'steps')
    # They say what is counted now, how many were done when that began, and when
    # it began.
    self._what, self._before, self._start = '', 0, time.monotonic()
    # Each second adds a time and a count, once something has been done. So the
    # time that is left does not depend on how long compilation took.
    self._samples: collections.deque[tuple[float, int]] = collections.deque(
        maxlen=_AVERAGED_SECONDS)
    self._in_terminal = sys.stderr.isatty()
    if self._in_terminal:
      self._bar = tqdm.tqdm(bar_format='{desc}', dynamic_ncols=True)
      self._handler = logging.get_absl_handler().python_handler
      self._stream = self._handler.stream
      # Log lines then appear above the bar.
      self._handler.setStream(tqdm.contrib.DummyTqdmFile(self._stream))
    self._over = threading.Event()
    self._thread = threading.Thread(
        target=self._watch, name='progress', daemon=True)
    self._thread.start()

  def update(self, done: int, total: int, what: str = 'steps') -> None:
    """Takes how many of a total are done, and of what, such as 'steps'."""
    self._now = min(done, total), total, what

  def _watch(self) -> None:
    due = time.monotonic()
    while not self._over.wait(1.0):
      text = self._text()
      if self._in_terminal:
        self._bar.set_description_str(text)
      elif time.monotonic() >= due:
        logging.info('%s', text)
        due = max(due + _LINE_SECONDS, time.monotonic())

  def _text(self) -> str:
    """Returns the progress in words.

    It also adds a sample once something is done, and drops all samples when
    something else is counted than before.
    """
    now, (done, total, what) = time.monotonic(), self._now
    if not total:
      return f'preparing the run, for {duration(now - self._start)}'
    if what != self._what:
      self._what, self._before, self._start = what, done, now
      self._samples.clear()
    short_done, short_total = (
        str(each) if each < 1000 else tqdm.tqdm.format_sizeof(each)
        for each in (done, total))
    if done == self._before and done < total:
      waits = self.waits_for()
      if waits == threads.TENSORFLOW:
        waits += ', which compiles'  # It does so before the first step.
      reason = f' for {waits},' if waits else ''
      text = f'waiting{reason} before the next of {short_total} {what}'
      seconds = now - self._start
      return f'{text}, for {duration(seconds)}' if seconds >= 2 else text
    self._samples.append((now, done))
    text = f'{100 * done / total:.1f} %, {short_done} of {short_total} {what}'
    start, first = self._samples[0]
    if done > first:
      rate = (done - first) / (now - start)
      text += f', {rate:.3g} a second, {duration((total - done) / rate)} left'
    return f'{text}, {self.note}' if self.note else text

  def close(self) -> None:
    """Ends the line, or writes the last one."""
    self._over.set()
    self._thread.join()
    text = self._text()
    if self._in_terminal:
      self._bar.set_description_str(text)
      self._bar.close()
      self._handler.setStream(self._stream)
    elif self._samples:
      logging.info('%s', text)
