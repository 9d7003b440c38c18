"""Ctrl-C and other signals: the first stops a run, a second ends it at once.

Terminals that close send SIGHUP, and batch systems SIGTERM, SIGUSR1 or SIGUSR2.

Python calls a handler only when the main thread returns from TensorFlow, which
compiles for minutes and may hang. The signal's number arrives in a socket at
once, where another thread reads it and answers.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
import socket
import threading
import time
from typing import Any

from absl import logging

from agile_tf import stopping
from agile_tf.training import threads

# Wrappers such as timeout(1) send a signal to the process and to its group, so
# that it arrives twice. Within this time, it counts as the same signal. Nobody
# presses Ctrl-C twice so fast.
_SAME_SIGNAL_SECONDS = 0.25


class Signals:
  """Handles the signals in a `with` block: they raise KeyboardInterrupt.

  Only the main thread of a process can handle signals. In another one this does
  nothing.
  """

  def __init__(self):
    self.stopped = False  # Whether the main thread has handled one.
    self._schedule: threads.Schedule | None = None
    self._deferred = ''  # The argument of `deferred`, within its block.
    self._handlers: dict[int, Any] = {}

  def __enter__(self) -> 'Signals':
    if threading.current_thread() is not threading.main_thread():
      return self
    self._handlers = {
        number: signal.signal(number, self._stop)
        for number in stopping.signals()}
    reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    self._former_wakeup = signal.set_wakeup_fd(self._writer.fileno())
    threading.Thread(
        target=self._listen, args=(reader,), name='signals', daemon=True
        ).start()
    return self

  def __exit__(self, *_: object) -> None:
    if not self._handlers:
      return
    if self.stopped:
      # A copy of the same signal must not meet the old handlers, which may end
      # the process before it has exited in order.
      time.sleep(_SAME_SIGNAL_SECONDS)
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(self._former_wakeup)
    self._writer.close()  # Ends the thread.

  def stop_instead(self, schedule: threads.Schedule) -> None:
    """Lets signals stop a schedule instead, from now on."""
    self._schedule = schedule
    if self.stopped:
      # A signal has arrived, and its KeyboardInterrupt was raised where Python
      # ignores exceptions, such as in a __del__.
      schedule.stop()

  @contextlib.contextmanager
  def deferred(self, what: str) -> Iterator[None]:
    """Lets a signal in the block raise KeyboardInterrupt at its end.

    An import of TensorFlow that is broken off ends in a segmentation fault.
    The answer to the signal says that the run stops as soon as `what`, such as
    'its files are open'.
    """
    self._deferred = what
    try:
      yield
    finally:
      self._deferred = ''
    if self.stopped:
      raise KeyboardInterrupt

  def _listen(self, reader: socket.socket) -> None:
    """Logs the first signal and ends the process at the second."""
    answered = False
    with reader:
      while number := reader.recv(1):
        if number[0] not in self._handlers:
          continue
        if answered:
          os._exit(128 + number[0])
        answered = True
        self._answer(signal.Signals(number[0]).name)
        time.sleep(_SAME_SIGNAL_SECONDS)
        # This drops all copies that have arrived. This thread may be late, so a
        # second signal that is among them cannot be told apart.
        with contextlib.suppress(BlockingIOError):
          reader.recv(1000, socket.MSG_DONTWAIT)

  def _answer(self, name: str) -> None:
    what = 'stopping before the run begins'
    if self._deferred:
      what += f', as soon as {self._deferred}'
    if self._schedule is not None:
      self._schedule.stop()
      what = 'saving and stopping'
      if waits := self._schedule.waits_for():
        what += f' after this iteration, which waits for {waits}'
    logging.info('%s: %s. A second one ends the process at once, without '
                 'saving.', name, what)

  def _stop(self, *_: Any) -> None:
    """Stops the run at the first signal. Python calls it in the main thread."""
    if self.stopped:
      return
    self.stopped = True
    if self._schedule is not None:
      self._schedule.stop()
    elif not self._deferred:
      raise KeyboardInterrupt
