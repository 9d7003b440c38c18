"""Ctrl-C and other signals: the first stops a run, a second ends it at once.

Terminals that close send SIGHUP, and batch systems SIGTERM, SIGUSR1 or SIGUSR2.

Python calls a handler only when the main thread returns from TensorFlow, which
compiles for minutes and may hang. The signal's number arrives in a socket at
once, where another thread reads it and answers.
"""

import os
import signal
import socket
import threading
import time
from typing import Any

from absl import logging

from agile_tf.training import threads
from gridlu import program

# Wrappers such as timeout(1) send a signal to the process and to its group, so
# that it arrives twice. Within this time, it counts as the same signal.
_SAME_SIGNAL_SECONDS = 1.0


class Signals:
  """Handles the signals in a `with` block: they raise KeyboardInterrupt.

  Only the main thread of a process can. In another one this does nothing.
  """

  def __init__(self):
    self.stopped = False  # Whether one has arrived.
    self._schedule: threads.Schedule | None = None
    self._start = 0  # The policy steps when it began.
    self._handlers: dict[int, Any] = {}

  def __enter__(self) -> 'Signals':
    if threading.current_thread() is not threading.main_thread():
      return self
    self._handlers = {
        number: signal.signal(number, self._stop)
        for number in program.stop_signals()}
    reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    self._wakeup = signal.set_wakeup_fd(self._writer.fileno())
    threading.Thread(
        target=self._listen, args=(reader,), name='signals', daemon=True
        ).start()
    return self

  def __exit__(self, *_: object) -> None:
    if not self._handlers:
      return
    if self.stopped:
      time.sleep(_SAME_SIGNAL_SECONDS)  # A second copy must not end the exit.
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(self._wakeup)
    self._writer.close()  # Ends the thread.

  def stop_instead(self, schedule: threads.Schedule) -> None:
    """Lets signals stop a schedule instead, from now on."""
    self._schedule, self._start = schedule, schedule.steps
    if self.stopped:  # Python has swallowed the exception.
      schedule.stop()

  def _listen(self, reader: socket.socket) -> None:
    """Logs the first signal and ends the process at the second."""
    first = None
    with reader:
      while number := reader.recv(1):
        if number[0] not in self._handlers:
          continue
        if first is None:
          first = time.monotonic()
          self._answer(signal.Signals(number[0]).name)
        elif time.monotonic() - first > _SAME_SIGNAL_SECONDS:
          os._exit(128 + number[0])

  def _answer(self, name: str) -> None:
    what = 'stopping before the run begins'
    if self._schedule is not None:
      self._schedule.stop()
      what = 'saving and stopping'
      if self._schedule.steps == self._start:
        what += ' after this iteration, which may have to compile for minutes'
    logging.info('%s: %s. A second one ends the process at once, without '
                 'saving.', name, what)

  def _stop(self, *_: Any) -> None:
    """Stops the run, from the main thread."""
    if self.stopped:
      return
    self.stopped = True
    if self._schedule is None:
      raise KeyboardInterrupt
    self._schedule.stop()
