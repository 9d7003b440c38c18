"""Which machines carry out a run, and which of them this is.

Every machine gets the same command. On one of them it is the chief, which
trains and owns the run's directory. On the others it is a server, which lends
its devices to the chief. `TF_CONFIG` in the environment says which, by the
convention of TensorFlow's ecosystem, where a server is called a worker; or
--cluster and --task say it by hand.
"""

from collections.abc import Mapping
import re
from typing import Any, NamedTuple

from agile_tf import config as config_lib
from gridlu import files


class Cluster(NamedTuple):
  """The servers of a run, and this process's part."""
  servers: tuple[str, ...] = ()  # Their addresses, 'HOST:PORT'.
  task: int = 0  # 0: the chief; n: the n-th server.

  @property
  def address(self) -> str:
    """This server's address."""
    return self.servers[self.task - 1]


def find(config: config_lib.Config, environment: Mapping[str, str]) -> Cluster:
  """Returns the cluster of a run; one without servers if it has none.

  Args:
    config: The run's settings.
    environment: The process's environment.

  Raises:
    ConfigError: if what it says of the cluster is wrong.
  """
  text = environment.get('TF_CONFIG', '')
  if not config.cluster:
    if config.task:
      raise config_lib.ConfigError(
          f'--task={config.task} without --cluster: name the servers with '
          '--cluster=HOST:PORT,... on every machine.')
    return _from_environment(text) if text else Cluster()
  if text:
    raise config_lib.ConfigError(
        f'--cluster={config.cluster}, but the environment has a TF_CONFIG as '
        'well. Leave one of them out.')
  servers = tuple(part.strip() for part in config.cluster.split(','))
  _check(servers, f'--cluster={config.cluster}')
  if config.task > len(servers):
    raise config_lib.ConfigError(
        f'--task={config.task}, but --cluster names {len(servers)} '
        f'server{"s" if len(servers) > 1 else ""}. Use 0 for the chief and 1, '
        '2 and so on for the servers in their order.')
  return Cluster(servers, config.task)


def _from_environment(text: str) -> Cluster:
  """Returns what TF_CONFIG says."""
  try:
    value = files.parse_json(text)
    jobs, task = dict(value.get('cluster', {})), dict(value.get('task', {}))
    kind, index = str(task.get('type', '')), int(task.get('index', 0))
    for job, listed in jobs.items():
      if not isinstance(listed, list):
        raise TypeError(f'the addresses of "{job}" are not a list')
    addresses = {job: tuple(map(str, jobs[job])) for job in jobs}
  except (ValueError, TypeError, AttributeError) as error:
    raise config_lib.ConfigError(
        f'TF_CONFIG={text}: expected JSON such as {_EXAMPLE} ({error}).'
        ) from error
  if not addresses:
    return Cluster()
  chiefs = [job for job in ('chief', 'master') if job in addresses]
  if unknown := sorted(set(addresses) - {'chief', 'master', 'worker'}):
    raise config_lib.ConfigError(
        f'TF_CONFIG has the job "{unknown[0]}": expected one "chief" and any '
        f'number of "worker", as in {_EXAMPLE}.')
  if len(chiefs) != 1 or len(addresses[chiefs[0]]) != 1:
    raise config_lib.ConfigError(
        f'TF_CONFIG={text}: expected one "chief", as in {_EXAMPLE}.')
  servers = addresses.get('worker', ())
  _check(servers, f'TF_CONFIG={text}')
  if kind == chiefs[0] and index == 0:
    return Cluster(servers)
  if kind == 'worker' and 0 <= index < len(servers):
    return Cluster(servers, index + 1)
  raise config_lib.ConfigError(
      f'TF_CONFIG has the task {kind or "(none)"} {index}, which is not in its '
      'cluster.')


_EXAMPLE = (
    '{"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, '
    '"task": {"type": "worker", "index": 0}}')


def _check(servers: tuple[str, ...], source: str) -> None:
  """Raises ConfigError unless these are different addresses."""
  for address in servers:
    match = re.fullmatch(r'(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})', address)
    if match is None or not 0 < int(match[2]) < 2**16:
      raise config_lib.ConfigError(
          f'{source}: {address!r} is not an address. Expected HOST:PORT.')
  if len(set(servers)) < len(servers):
    raise config_lib.ConfigError(
        f'{source}: a server is named twice. Each needs its own HOST:PORT.')


def differences(chief: Mapping[str, Any], server: Mapping[str, Any]) -> str:
  """Returns in which versions two machines differ; '' if in none."""
  return ', '.join(
      f'{name} {server.get(name, "unknown")} on the server and {chief[name]} '
      'on the chief' for name in chief if server.get(name) != chief[name])
