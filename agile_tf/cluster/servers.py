"""The chief's side of a cluster: the servers on other machines.

A server is one of TensorFlow's. Each has a link, whose thread watches it. The
chief listens nowhere.
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
import socket
import time
import uuid

from absl import logging

from agile_tf import config as config_lib
from agile_tf.agent import worlds
from agile_tf.cluster import background
from agile_tf.cluster import devices as devices_lib
from agile_tf.cluster import links as links_lib
from agile_tf.cluster import notes as notes_lib
from agile_tf.cluster import roles


class Servers:
  """The servers of a run, from the chief's side."""

  def __init__(self, cluster: roles.Cluster, config: config_lib.Config):
    """Takes the cluster, which has servers. `start` connects to them."""
    chief = {'id': uuid.uuid4().hex, 'run': (
        f'{socket.gethostname()}:{os.path.realpath(config.run_dir)}')}
    versions = notes_lib.versions()
    self._seconds = 60 * config.stall_minutes
    self._steps_in_python = config.rollouts == 'environment'
    self._started = False
    self._links = [
        links_lib.Link(
            f'Server {i + 1} ({address})', address, chief, versions,
            self._seconds)
        for i, address in enumerate(cluster.servers)]

  def devices(self) -> Sequence[devices_lib.RemoteDevice]:
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

  def wait(self) -> None:
    """Waits until all servers are there, but no longer than --stall_minutes.

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
    background.join([link.join for link in links])
    background.finish()


@contextlib.contextmanager
def servers(cluster: roles.Cluster, config: config_lib.Config
           ) -> Iterator[Servers]:
  """Yields the servers of a run.

  They end after the block, unless it raises an error. KeyboardInterrupt, which
  a user causes before the run begins, is none.
  """
  result = Servers(cluster, config)
  done = False
  try:
    yield result
    done = True
  except KeyboardInterrupt:
    done = True
    raise
  finally:
    result.close(done)
