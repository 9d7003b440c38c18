"""The server's side of a cluster: it lends its devices to the chief.

A server of TensorFlow executes what it is sent, and asks for no password.
It listens on all addresses of the machine: TensorFlow 2.21 cannot hold it to
one. The network must be trusted.
"""

import contextlib
import os
import signal
import sys
import time
from typing import Any
import uuid

from absl import logging
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.cluster import notes as notes_lib
from agile_tf.cluster import roles
from agile_tf.training import compilation_cache
from agile_tf.training import machine

# A chief that gives no sign for so long is gone.
_SILENCE_SECONDS = 60.0
_LOCAL_SECONDS = 60.0  # What this process's own server may take to answer.


def _server(cluster: roles.Cluster, config: config_lib.Config
           ) -> tf.distribute.Server:
  """Starts a server of TensorFlow with the devices that --devices selects.

  Raises:
    ConfigError: if the port is in use.
  """
  machine.prepare(config)
  selection = machine.select(config.devices)
  try:
    return tf.distribute.Server(
        {'worker': [cluster.address]},
        config=tf.compat.v1.ConfigProto(
            device_count={'CPU': selection.cpus, 'GPU': len(selection.gpus)},
            gpu_options=tf.compat.v1.GPUOptions(
                allow_growth=True,
                visible_device_list=','.join(map(str, selection.gpus))),
            intra_op_parallelism_threads=(
                config.intra_op_threads or machine.cores()),
            # A thread that compiles is occupied. The chief's beats need others.
            inter_op_parallelism_threads=(
                config.policy_threads + machine.cores() + 2)))
  except (tf.errors.OpError, RuntimeError) as error:
    raise config_lib.ConfigError(
        f'Server {cluster.task} cannot serve at {cluster.address}: '
        f'{str(error).splitlines()[0]} Is its port in use?') from error


def _start_anew() -> None:
  """Replaces this process by the same command, without what it compiled."""
  compilation_cache.end()
  for handler in logging.get_absl_handler(), sys.stdout, sys.stderr:
    handler.flush()
  # Above all the server's socket, which must not be open in the new program.
  for number in map(int, os.listdir('/dev/fd')):
    if number > 2:
      with contextlib.suppress(OSError):  # It was that of the listing.
        os.set_inheritable(number, False)
  os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def serve(cluster: roles.Cluster, config: config_lib.Config) -> None:
  """Serves this machine's devices until the chief is done or a signal comes.

  Raises:
    ConfigError: if the port is in use, or the chief's version is another.
  """
  def stop(number: int, _: Any) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)

  for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, stop)
  try:
    server = _server(cluster, config)
    logging.warning(
        'Server %d serves at %s. TensorFlow listens on ALL addresses of this '
        'machine, whichever is named here, and executes whatever is sent to '
        'port %s, by anyone. Start it only in a network that you trust.',
        cluster.task, cluster.address, cluster.address.rsplit(':', 1)[1])
    _obey(server.target, cluster, config)
  except KeyboardInterrupt as error:
    logging.info('%s: the server stops.', error)


def _obey(target: str, cluster: roles.Cluster,
          config: config_lib.Config) -> None:
  """Follows the chief's notes until it is done.

  Raises:
    ConfigError: if the chief refuses this server.
  """
  notes = notes_lib.Notes(target, _LOCAL_SECONDS)
  notes.write('chief', {})
  notes.write('server', {
      'versions': notes_lib.versions(), 'instance': uuid.uuid4().hex})
  last: dict[str, Any] = {}
  changed = said = time.monotonic()
  logging.info('Waiting for the chief.')
  while True:
    time.sleep(1)
    try:
      note, now = notes.read('chief'), time.monotonic()
    except tf.errors.OpError:  # This process was stopped in the middle of it.
      continue
    state = note.get('state')
    if state == notes_lib.DONE:
      logging.info('The chief is done.')
      return
    if state == notes_lib.REFUSED:
      raise config_lib.ConfigError(f'The chief refuses: {note["why"]}')
    if state == notes_lib.RESTART:
      logging.info('The chief was away; the server starts anew for it.')
      _start_anew()
    if note and not last:
      logging.info('The chief is there. Its run is %s.', note['run'])
    if note != last:
      last, changed = note, now
    elif note and now - changed > _SILENCE_SECONDS:
      logging.info(
          'The chief has given no sign for %.0f seconds. The server starts '
          'anew and waits for it.', now - changed)
      _start_anew()
    elif not note and now - said > 60 * config.stall_minutes:
      said = now
      logging.info(
          'Server %d (%s) is still waiting for the chief.', cluster.task,
          cluster.address)
