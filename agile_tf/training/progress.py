"""Shows how far a run is: a bar in a terminal, or a line a minute in a file."""

import sys
from typing import Any, TextIO

from absl import logging
import tqdm

_FORMAT = ('{percentage:5.1f} % {n_fmt} of {total_fmt} steps, {rate_fmt}, '
           '{remaining} left{postfix}')
_LINE_SECONDS = 60.0


class _Above:
  """Stands for stderr: writes log lines above the bar."""

  def __init__(self, stderr: TextIO):
    self._stderr = stderr

  def write(self, text: str) -> None:
    tqdm.tqdm.write(text, file=self._stderr, end='')

  def flush(self) -> None:
    self._stderr.flush()


class _Lines:
  """Stands for a terminal: logs what it is given."""

  def write(self, text: str) -> None:
    line = text.strip()
    if line:
      logging.info('%s', line)

  def flush(self) -> None:
    """Does nothing: each line is complete."""


class Progress:
  """The progress of a run on stderr."""

  def __init__(self, steps: int, total_steps: int):
    """Begins at one step of a run that ends at another."""
    self._in_terminal = sys.stderr is not None and sys.stderr.isatty()
    options: dict[str, Any] = dict(dynamic_ncols=True)
    if not self._in_terminal:
      options = dict(file=_Lines(), mininterval=_LINE_SECONDS, miniters=1,
                     delay=1e-9)  # No line before the first minute.
    self._bar = tqdm.tqdm(
        total=total_steps, initial=steps, unit=' steps', smoothing=0.05,
        bar_format=_FORMAT, unit_scale=True, **options)
    self._handler = logging.get_absl_handler().python_handler
    self._stream = self._handler.stream
    if self._in_terminal:
      self._handler.setStream(_Above(self._stream))
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
