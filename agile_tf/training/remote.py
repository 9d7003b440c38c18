"""The chief's side of a cluster: devices of servers on other machines.

A server is one of TensorFlow's. The chief opens a session on it for each of its
devices, and runs the programs of policy threads there. It sends parameters and
receives gradients; what a rollout's gradient needs of its acting stays on the
device. The chief listens nowhere.

A thread of the chief watches each server. If it dies, hangs or is cut off, its
devices raise `LostError`, and the thread tries to reach it again.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
import itertools
import os
import queue
import threading
import time
from typing import Any
import uuid

from absl import logging
import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import worlds
from agile_tf.training import cluster as cluster_lib
from agile_tf.training import notes as notes_lib
from agile_tf.training import placement

_BEAT_SECONDS = 2.0
# A server that does not answer the chief's beat for so long is lost.
_ANSWER_SECONDS = 30.0
_END_SECONDS = 10.0  # What telling the servers of the end may take.
# A server that fails so often without finishing a rollout ends the run.
_FAILURES = 3

# What these errors have in common: the server has gone, hangs, was started
# anew, or the network does not carry the message.
_LOST = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError,
         tf.errors.AbortedError, tf.errors.CancelledError,
         tf.errors.InternalError, tf.errors.UnknownError)
# Of these, what may also be the server's own: a program that it cannot run.
_OWN = (tf.errors.InternalError, tf.errors.UnknownError)


class ServerError(RuntimeError):
  """A server that fails whenever it is used."""


def _join_all(joins: Sequence[Callable[[float], None]],
              seconds: float) -> None:
  """Calls functions that wait, but no longer than this altogether."""
  end = time.monotonic() + seconds
  for join in joins:
    join(max(0.0, end - time.monotonic()))


class _Background:
  """Threads for calls of TensorFlow that may hang.

  Python must not end while one of them returns from TensorFlow: that aborts the
  process. So `join` waits for those that do not hang.
  """

  def __init__(self):
    self._threads: list[threading.Thread] = []
    self._lock = threading.Lock()

  def start(self, function: Callable[[], Any], name: str) -> None:
    """Calls a function in a thread of its own."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    with self._lock:
      self._threads = [each for each in self._threads if each.is_alive()]
      self._threads.append(thread)
      thread.start()

  def join(self, seconds: float) -> None:
    """Waits for all threads, but no longer than this altogether."""
    _join_all([thread.join for thread in self._threads], seconds)


_background = _Background()


def finish() -> None:
  """Waits until closed devices are closed, as far as their servers answer."""
  _background.join(_END_SECONDS)


def _placeholders(values: Any) -> Any:
  """Returns placeholders for arrays; None stays None."""
  return tf.nest.map_structure(
      lambda x: None if x is None else
      tf.compat.v1.placeholder(x.dtype, x.shape), values)


def _feeds(places: Any, values: Any) -> dict[Any, Any]:
  return {
      place: value.numpy() if tf.is_tensor(value) else value
      for place, value in zip(tf.nest.flatten(places), tf.nest.flatten(values))
      if place is not None}


def _concrete(program: Any, inputs: Any) -> Callable[..., Any]:
  """Returns a program as a function that can be added to any graph."""
  return program.get_concrete_function(*tf.nest.map_structure(
      lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype),
      inputs))


class RemoteDevice:
  """A device of a server; see `placement.Device`.

  Attributes:
    lost: Set when it no longer answers.
    failure: The error with which it was lost, if there was one.
    useful: Whether a gradient has come from it.
    sent: Bytes of arrays sent to it.
    received: Bytes of arrays received from it.
  """

  def __init__(self, name: str, target: str, device: str, seconds: float):
    """Takes where it is.

    Args:
      name: What messages call it.
      target: TensorFlow's name of the server.
      device: TensorFlow's name of the device there.
      seconds: What one call may take, compilation included.
    """
    self.name = name
    self.compiling: contextlib.AbstractContextManager = (
        contextlib.nullcontext())
    self.lost = threading.Event()
    self.failure: tf.errors.OpError | None = None
    self.useful = False
    self.sent = self.received = 0
    self._device = device
    self._graph = tf.Graph()
    self._options = tf.compat.v1.RunOptions(timeout_in_ms=int(1000 * seconds))
    # Isolated: the server keeps compiled programs by name, and would run an
    # earlier chief's program in place of another with the same name.
    self._session = tf.compat.v1.Session(
        target, graph=self._graph, config=tf.compat.v1.ConfigProto(
            operation_timeout_in_ms=int(1000 * seconds),
            isolate_session_state=True))
    self._building = threading.Lock()
    self._built: dict[str, tuple[Any, Any]] = {}
    self._keys = itertools.count()
    self._kept: list[Any] = []  # A tf.TensorSpec for each array that stays.

  def play(self, program: Any, *inputs: Any) -> Any:
    """See `placement.Device`. theta and the rollout's `results` stay here."""
    def build(concrete, places):
      key = tf.compat.v1.placeholder(tf.int64, [])
      *played, results = concrete(*places)
      kept = [places[0], *results]
      self._kept = [tf.TensorSpec(x.shape, x.dtype) for x in kept]
      stage = tf.raw_ops.MapStage(
          key=key, indices=np.arange(len(kept), dtype=np.int32), values=kept,
          dtypes=[x.dtype for x in kept], shared_name='kept')
      return (key, places), (played, stage)

    # If all rows sit out this rollout, what stays is never fetched. That
    # happens once for each thread at most.
    key = np.int64(next(self._keys))
    played, _ = self._run('play', program, inputs, build, key)
    return (*played, (tf.constant(key),))

  def reward(self, program: Any, *inputs: Any) -> Any:
    """See `placement.Device`."""
    return self._run(
        'reward', program, inputs,
        lambda concrete, places: (places, concrete(*places)))

  def gradients(self, program: Any, *inputs: Any) -> Any:
    """See `placement.Device`. Only the key of theta and `results` is sent."""
    _, *others, (key,), replayed = inputs

    def build(concrete, places):
      *others, replayed = places
      key = tf.compat.v1.placeholder(tf.int64, [])
      theta, *results = tf.raw_ops.MapUnstage(
          key=key, indices=np.arange(len(self._kept), dtype=np.int32),
          dtypes=[spec.dtype for spec in self._kept], shared_name='kept')
      for x, spec in zip([theta, *results], self._kept):
        x.set_shape(spec.shape)
      return (key, places), concrete(theta, *others, tuple(results), replayed)

    theta, *results = self._kept
    outputs = self._run(
        'gradients', program, (*others, replayed), build, key,
        (theta, *others, tuple(results), replayed))
    self.useful = True
    return outputs

  def _run(self, kind: str, program: Any, inputs: Any,
           build: Callable[..., tuple[Any, Any]], key: Any = None,
           specs: Any = None) -> Any:
    """Runs one kind of program, which it adds to the graph the first time."""
    with self._building:
      if kind not in self._built:
        concrete = _concrete(program, specs or inputs)
        with self._graph.as_default(), tf.device(self._device):
          self._built[kind] = build(concrete, _placeholders(inputs))
      places, fetches = self._built[kind]
    feeds = _feeds(places, inputs if key is None else (key, inputs))
    self.sent += sum(np.asarray(x).nbytes for x in feeds.values())
    outputs = self._call(lambda: self._session.run(
        fetches, feeds, options=self._options))
    arrays = [x for x in tf.nest.flatten(outputs) if x is not None]
    self.received += sum(np.asarray(x).nbytes for x in arrays)
    return tf.nest.map_structure(
        lambda x: None if x is None else tf.constant(x), outputs)

  def _call(self, function: Callable[[], Any]) -> Any:
    """Calls a function that may hang, and gives it up if the device is lost."""
    outcome: queue.SimpleQueue = queue.SimpleQueue()

    def call() -> None:
      try:
        outcome.put((function(), None))
      except BaseException as error:  # The calling thread raises it.
        outcome.put((None, error))

    _background.start(call, self.name)
    while True:
      if self.lost.is_set():
        raise placement.LostError(self.name)
      try:
        value, error = outcome.get(timeout=0.5)
      except queue.Empty:
        continue
      if isinstance(error, _LOST):
        self.failure = self.failure or error
        self.lost.set()
        raise placement.LostError(self.name) from error
      if error is not None:
        raise error
      return value

  def close(self) -> None:
    """Gives the device up."""
    self.lost.set()
    _background.start(self._close_session, f'closing {self.name}')

  def _close_session(self) -> None:
    with contextlib.suppress(tf.errors.OpError):
      self._session.close()


class _Link:
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
      seconds: --stall_minutes.
    """
    self.name = name
    self.devices: tuple[RemoteDevice, ...] = ()
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
        _background.start(
            functools.partial(_close, notes), f'closing {self.name}')
      self._closing.wait(_BEAT_SECONDS)
    if self._done:
      self._dismiss()

  def _dismiss(self) -> None:
    """Tells the server that the run has ended, if it was not connected."""
    end = time.monotonic() + _END_SECONDS
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
    differences = cluster_lib.differences(self._versions, about['versions'])
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
        RemoteDevice(f'{self.name}, {name}', self._target, name, self._seconds)
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
              'it had are dropped, and its threads move to other devices.')
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


class Servers:
  """The servers of a run, from the chief's side."""

  def __init__(self, cluster: cluster_lib.Cluster, config: config_lib.Config):
    """Takes the cluster, which has servers. `start` connects to them."""
    chief = {'id': uuid.uuid4().hex, 'run': os.path.realpath(config.run_dir)}
    versions = notes_lib.versions()
    self._seconds = 60 * config.stall_minutes
    self._threads = config.policy_threads
    self._steps_in_python = config.rollouts == 'environment'
    self._started = False
    self._links = [
        _Link(f'Server {i + 1} ({address})', address, chief, versions,
              self._seconds)
        for i, address in enumerate(cluster.servers)]

  def devices(self) -> Sequence[RemoteDevice]:
    """Returns the devices that can be used now.

    Raises:
      ServerError: if a server has failed too often.
    """
    for link in self._links:
      if link.error is not None:
        raise link.error
    return [device for link in self._links for device in link.devices
            if not device.lost.is_set()]

  def check(self, world: worlds.World) -> None:
    """Checks that the servers can play a world.

    Raises:
      ConfigError: if they cannot.
    """
    if world.compiled is None or self._steps_in_python:
      raise config_lib.ConfigError(
          'Servers on other machines play whole rollouts in one program, and '
          "this run's world is stepped in Python, on the chief. Leave "
          '--cluster and TF_CONFIG out.')

  def wait(self, own: int) -> None:
    """Waits until all servers are there, but no longer than --stall_minutes.

    Args:
      own: The chief's own devices for policy threads.

    Raises:
      ConfigError: if a server has other versions than the chief.
    """
    end = time.monotonic() + self._seconds
    while missing := [link for link in self._links if not link.devices]:
      for link in missing:
        if link.refused:
          raise config_lib.ConfigError(link.refused)
      if time.monotonic() > end:
        logging.warning(
            'The run begins without %s. It is used as soon as it is there.',
            ' and '.join(link.name for link in missing))
        break
      time.sleep(0.2)
    devices = len(self.devices()) + own
    if devices > self._threads:
      logging.warning(
          '%d devices, but --policy_threads=%d: the last ones have nothing to '
          'do.', devices, self._threads)

  def start(self) -> None:
    """Begins to connect. TensorFlow must have been set up before."""
    for link in self._links:
      link.start()
    self._started = True

  def close(self, done: bool) -> None:
    """Ends the connections.

    Args:
      done: Whether the servers may end too. Otherwise they wait for the chief
        to return.
    """
    links = self._links if self._started else []
    for link in links:
      link.close(done)
    _join_all([link.join for link in links], _END_SECONDS)
    finish()


@contextlib.contextmanager
def servers(cluster: cluster_lib.Cluster, config: config_lib.Config
           ) -> Iterator[Servers]:
  """Yields the servers of a run; after the block, if it succeeds, they end."""
  result = Servers(cluster, config)
  done = False
  try:
    yield result
    done = True
  finally:
    result.close(done)
