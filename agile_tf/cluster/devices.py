"""A device of a server, as the chief uses it.

The chief opens a session on the server for each of its devices, and runs the
programs of policy threads there. It sends parameters and receives gradients;
what a rollout's gradient needs of its acting stays on the device.
"""

from collections.abc import Callable
import contextlib
import itertools
import queue
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from agile_tf.cluster import background
from agile_tf.training import placement

# What these errors have in common: the server has gone, hangs, was started
# anew, or the network does not carry the message.
_LOST = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError,
         tf.errors.AbortedError, tf.errors.CancelledError,
         tf.errors.InternalError, tf.errors.UnknownError)


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
      seconds: What a rollout may take here, compilation included.
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
    self._seconds = seconds
    self._rollout = threading.local()  # `end`: when a thread's must be done.
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
    self._rollout.end = time.monotonic() + self._seconds

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
    left = self._rollout.end - time.monotonic()
    if left <= 0:
      self.lost.set()
      raise placement.LostError(self.name)
    options = tf.compat.v1.RunOptions(timeout_in_ms=max(int(1000 * left), 1))
    outputs = self._call(
        lambda: self._session.run(fetches, feeds, options=options))
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

    background.start(call, self.name)
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
    background.start(self._close_session, f'closing {self.name}')

  def _close_session(self) -> None:
    with contextlib.suppress(tf.errors.OpError):
      self._session.close()
