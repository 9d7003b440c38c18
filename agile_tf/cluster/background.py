"""Threads for calls of TensorFlow that may hang.

Python must not end while one of them returns from TensorFlow: that aborts the
process. So `finish` waits for those that do not hang.
"""

from collections.abc import Callable, Sequence
import threading
import time
from typing import Any

# What waiting for calls and servers may take at the end.
END_SECONDS = 10.0

_threads: list[threading.Thread] = []
_lock = threading.Lock()


def start(function: Callable[[], Any], name: str) -> None:
  """Calls a function in a thread of its own."""
  thread = threading.Thread(target=function, name=name, daemon=True)
  with _lock:
    _threads[:] = [each for each in _threads if each.is_alive()]
    _threads.append(thread)
    thread.start()


def finish() -> None:
  """Waits for all threads that end within `END_SECONDS`."""
  join([thread.join for thread in list(_threads)])


def join(joins: Sequence[Callable[[float], None]]) -> None:
  """Calls functions that wait, for `END_SECONDS` altogether."""
  end = time.monotonic() + END_SECONDS
  for each in joins:
    each(max(0.0, end - time.monotonic()))
