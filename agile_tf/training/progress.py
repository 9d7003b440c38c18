"""Shows how far a run is: a bar in a terminal, or a line a minute in a file."""

from collections.abc import Callable
import functools
import sys
from typing import Any

from absl import logging
import tqdm

_FORMAT = ('{percentage:5.1f} % {n_fmt} of {total_fmt} steps, {rate_fmt}, '
           '{remaining} left{postfix}')
_LINE_SECONDS = 60.0


class _Stream:
  """A file that passes what is written to a function."""

  def __init__(self, write: Callable[[str], None]):
    self.write = write

  def flush(self) -> None:
    """Does nothing: the function keeps nothing back."""


def _log(text: str) -> None:
  if line := text.strip():
    logging.info('%s', line)


class Progress:
  """The progress of a run on stderr."""

  def __init__(self, steps: int, total_steps: int):
    """Begins at one step of a run that ends at another."""
    self._in_terminal = sys.stderr is not None and sys.stderr.isatty()
    options: dict[str, Any] = dict(dynamic_ncols=True)
    if not self._in_terminal:
      options = dict(file=_Stream(_log), mininterval=_LINE_SECONDS,
                     miniters=1, delay=1e-9)  # No line before the first minute.
    self._bar = tqdm.tqdm(
        total=total_steps, initial=steps, unit=' steps', smoothing=0.05,
        bar_format=_FORMAT, unit_scale=True, **options)
    self._handler = logging.get_absl_handler().python_handler
    self._stream = self._handler.stream
    if self._in_terminal:
      # Log lines then appear above the bar.
      self._handler.setStream(_Stream(functools.partial(
          tqdm.tqdm.write, file=self._stream, end='')))
    self._begun = False

  def update(self, steps: int) -> None:
    """Shows that the run is at this step."""
    # The last rollouts may exceed the total. tqdm would then show no total.
    more = min(steps, self._bar.total) - self._bar.n
    if more and not self._begun:
      # The time that is left does not depend on how long compilation took.
      self._begun = True
      self._bar.initial += more
      self._bar.unpause()
    if more:
      self._bar.update(more)

  def note(self, text: str) -> None:
    """Shows a text behind the progress."""
    self._bar.set_postfix_str(text, refresh=self._in_terminal)

  def close(self) -> None:
    """Ends the bar, or writes the last line."""
    self._bar.close()
    if self._in_terminal:
      self._handler.setStream(self._stream)
