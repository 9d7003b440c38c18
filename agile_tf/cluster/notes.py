"""What a server and its chief tell each other: two notes on the server.

They are variables of TensorFlow on the server, so that no other port and no
other protocol is needed. The server's note says what it is; the chief's says
that it is there (`beat` counts up), and what the server should do.
"""

import hashlib
import json
import os
from typing import Any

import tensorflow as tf

# What the chief's note says in `state`.
RUNNING = 'running'  # The chief is there.
DONE = 'done'  # The run has ended, and so may the server.
RESTART = 'restart'  # The server should start anew, without old programs.
REFUSED = 'refused'  # The server's version is another; `why` says more.


def versions() -> dict[str, str]:
  """Returns what must be equal on all machines of a run."""
  digest = hashlib.sha256()
  package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  for folder in package, os.path.join(os.path.dirname(package), 'gridlu'):
    for directory, folders, names in os.walk(folder):
      folders.sort()
      for name in sorted(names):
        if name.endswith('.py'):
          path = os.path.join(directory, name)
          digest.update(os.path.relpath(path, package).encode())
          with open(path, 'rb') as file:
            digest.update(file.read())
  return {'TensorFlow': tf.__version__,
          'the hash of agile_tf and gridlu': digest.hexdigest()[:12]}


class Notes:
  """The two notes of one server."""

  def __init__(self, target: str, seconds: float):
    """Connects at the first call of another method.

    Args:
      target: TensorFlow's name of the server.
      seconds: How long the server may take to answer.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device('/device:CPU:0'):
      self._text = tf.compat.v1.placeholder(tf.string, [])
      self._writes, self._reads = {}, {}
      for name in 'server', 'chief':
        note = tf.raw_ops.VarHandleOp(
            dtype=tf.string, shape=[], shared_name=f'agile_tf_{name}')
        self._writes[name] = tf.raw_ops.AssignVariableOp(
            resource=note, value=self._text)
        self._reads[name] = tf.raw_ops.ReadVariableOp(
            resource=note, dtype=tf.string)
    milliseconds = int(1000 * seconds)
    self._options = tf.compat.v1.RunOptions(timeout_in_ms=milliseconds)
    self._session = tf.compat.v1.Session(
        target, graph=graph, config=tf.compat.v1.ConfigProto(
            operation_timeout_in_ms=milliseconds))

  def write(self, name: str, value: dict[str, Any]) -> None:
    """Writes the note of 'server' or 'chief'.

    Raises:
      tf.errors.OpError: if the server does not answer. The same holds below.
    """
    self._session.run(
        self._writes[name], {self._text: json.dumps(value)},
        options=self._options)

  def read(self, name: str) -> dict[str, Any]:
    """Returns a note; {} if there is none yet."""
    try:
      text = self._session.run(self._reads[name], options=self._options)
    except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
      return {}
    return json.loads(text)

  def devices(self) -> list[str]:
    """Returns TensorFlow's names of the server's GPUs, or of its CPU."""
    names: dict[str, list[str]] = {'GPU': [], 'CPU': []}
    for device in self._session.list_devices():
      names.setdefault(device.device_type, []).append(device.name)
    return sorted(names['GPU'] or names['CPU'])

  def close(self) -> None:
    """Ends the connection."""
    self._session.close()
