"""The chief's connection to one server, which a thread watches.

If the server dies, hangs or is cut off, its devices raise `LostError`, and the
thread tries to reach it again.
"""

import contextlib
import functools
import threading
import time
from typing import Any

from absl import logging
import tensorflow as tf

from agile_tf.cluster import background
from agile_tf.cluster import devices as devices_lib
from agile_tf.cluster import notes as notes_lib
from agile_tf.cluster import roles

_BEAT_SECONDS = 2.0
# A server that does not answer the chief's beat for so long is lost.
_ANSWER_SECONDS = 30.0
# A server that fails so often without finishing a rollout ends the run.
_FAILURES = 3

# Errors of a lost device that may also be the server's own: a program that it
# cannot run.
_OWN = (tf.errors.InternalError, tf.errors.UnknownError)


class ServerError(RuntimeError):
  """A server that fails whenever it is used."""


class Link:
  """The connection to one server, which a thread of its own watches.

  Attributes:
    name: What messages call the server.
    devices: Its devices; empty while it cannot be reached.
    refused: Why it was refused; '' if it was not.
    error: Set when it has failed too often.
  """

  def __init__(self, name: str, address: str, chief: dict[str, str],
               versions: dict[str, str], seconds: float):
    """Takes the server.

    Args:
      name: What messages call it.
      address: 'HOST:PORT'.
      chief: What its notes say of this chief.
      versions: The chief's, which must be the server's too.
      seconds: --stall_minutes: what a rollout may take there.
    """
    self.name = name
    self.devices: tuple[devices_lib.RemoteDevice, ...] = ()
    self.refused = ''
    self.error: ServerError | None = None
    self._target = f'grpc://{address}'
    self._chief = chief
    self._seconds = seconds
    self._answer_seconds = min(_ANSWER_SECONDS, seconds / 2)
    self._versions = versions
    self._closing = threading.Event()
    self._done = self._told = False
    self._failures = 0
    self._lost_instance = ''
    self._beats = 0
    self._said = ''
    self._thread = threading.Thread(
        target=self._watch, name=self.name, daemon=True)

  def start(self) -> None:
    """Begins to look for the server."""
    self._thread.start()

  def close(self, done: bool) -> None:
    """Ends the connection, in the background; `join` waits for that.

    Args:
      done: Whether the server may end too.
    """
    self._done = done
    self._closing.set()

  def join(self, seconds: float) -> None:
    """Waits until it is closed, but no longer than this."""
    self._thread.join(seconds)

  def _say(self, text: str) -> None:
    """Logs a message, unless it was the last one."""
    if text != self._said:
      logging.info('%s', text)
    self._said = text

  def _watch(self) -> None:
    while not self._closing.is_set() and self.error is None:
      notes = notes_lib.Notes(self._target, self._answer_seconds)
      try:
        if self._connect(notes):
          self._beat(notes)
      except tf.errors.OpError:
        self._say(f'Waiting for {self.name}: it cannot be reached yet.')
      except Exception as error:  # pylint: disable=broad-except
        logging.exception('%s: %s', self.name, error)
      finally:
        self._drop()
        background.start(
            functools.partial(_close, notes), f'closing {self.name}')
      self._closing.wait(_BEAT_SECONDS)
    if self._done:
      self._dismiss()

  def _dismiss(self) -> None:
    """Tells the server that the run has ended, if it was not connected."""
    end = time.monotonic() + background.END_SECONDS
    while not self._told and time.monotonic() < end:
      notes = notes_lib.Notes(self._target, _BEAT_SECONDS)
      try:
        about, chief = notes.read('server'), notes.read('chief')
        if chief.get('run', self._chief['run']) != self._chief['run']:
          return  # It serves another run.
        if about and chief.get('state') != notes_lib.RESTART:
          self._write(notes, notes_lib.DONE)
          self._told = True
      except tf.errors.OpError:
        time.sleep(0.5)
      finally:
        _close(notes)

  def _write(self, notes: notes_lib.Notes, state: str, **more: Any) -> None:
    self._beats += 1
    notes.write('chief', {
        **self._chief, 'beat': self._beats, 'state': state, **more})

  def _connect(self, notes: notes_lib.Notes) -> bool:
    """Returns whether the server now serves this chief."""
    about, chief = notes.read('server'), notes.read('chief')
    if not about or chief.get('state') in (
        notes_lib.DONE, notes_lib.RESTART, notes_lib.REFUSED):
      return False  # It is starting or ending.
    differences = roles.differences(self._versions, about['versions'])
    if differences:
      self.refused = (
          f'{self.name} has other versions: {differences}. Install the same on '
          'every machine.')
      logging.error('%s', self.refused)
      self._write(notes, notes_lib.REFUSED, why=self.refused)
      return False
    if chief and chief['id'] != self._chief['id']:
      if chief['run'] != self._chief['run']:
        self._say(f'Waiting for {self.name}: it serves another run, '
                  f'{chief["run"]}.')
        return False
      # This process holds the run's directory, so that chief has ended.
      self._write(notes, notes_lib.RESTART)
      return False
    if about['instance'] == self._lost_instance:
      self._say(f'{self.name} answers again, and starts anew.')
      self._write(notes, notes_lib.RESTART)
      return False
    self._write(notes, notes_lib.RUNNING)
    self._lost_instance = about['instance']  # As soon as it is lost.
    self.devices = tuple(
        devices_lib.RemoteDevice(
            f'{self.name}, {name}', self._target, name, self._seconds)
        for name in notes.devices())
    self.refused = ''
    count = len(self.devices)
    self._say(f'{self.name} is here with {count} device'
              f'{"s" if count > 1 else ""}.')
    return True

  def _beat(self, notes: notes_lib.Notes) -> None:
    """Tells the server that the chief is there, until one of them is not."""
    try:
      while not self._closing.wait(_BEAT_SECONDS):
        self._write(notes, notes_lib.RUNNING)
        if any(device.lost.is_set() for device in self.devices):
          break
      else:
        if self._done:
          self._write(notes, notes_lib.DONE)
          self._told = True
        return
    except tf.errors.OpError:
      pass
    if not self._closing.is_set():
      self._count_failures()

  def _count_failures(self) -> None:
    """Says why the server was lost, and sets `error` at the last failure."""
    failures = [device.failure for device in self.devices if device.failure]
    why = f' ({str(failures[0]).splitlines()[0]})' if failures else ''
    self._say(f'{self.name} does not answer any more{why}. The rollouts that '
              'it had are dropped, and its threads move to the devices that '
              'are left.')
    if any(device.useful for device in self.devices):
      self._failures = 0
    elif any(isinstance(failure, _OWN) for failure in failures):
      self._failures += 1
    if self._failures == _FAILURES:
      self.error = ServerError(
          f'{self.name} has failed {_FAILURES} times, and has finished no '
          f'rollout in between. The last error: {failures[0]}')

  def _drop(self) -> None:
    devices, self.devices = self.devices, ()
    for device in devices:
      device.close()


def _close(notes: notes_lib.Notes) -> None:
  with contextlib.suppress(tf.errors.OpError):
    notes.close()
