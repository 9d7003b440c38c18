"""Where a cluster saturates: a simulation from a few measured numbers.

A policy thread goes round and round: its device computes a rollout, the rollout
crosses the chief's network, and the chief handles it. Each of these three
serves one thread after another. The servers' own networks are not modelled:
each carries the traffic of one server only. Nor is the discriminator's worker,
which has a core of the chief to itself: see `report`.
"""

import heapq
from typing import NamedTuple


class Inputs(NamedTuple):
  """What is measured, for one rollout of one thread."""
  device_seconds: float  # What a server's device computes.
  chief_seconds: float  # What the chief computes, updates included.
  bytes: float  # Sent and received by the chief.
  steps: float  # Policy steps.


# Policy threads for each server: one waits while the other computes.
_THREADS = 2


def steps_per_second(inputs: Inputs, servers: int, bytes_per_second: float,
                     threads: int = _THREADS, rounds: int = 200) -> float:
  """Simulates a cluster and returns its speed.

  Args:
    inputs: What a rollout costs.
    servers: Servers, each with one device.
    bytes_per_second: What the chief's network carries.
    threads: Policy threads for each server.
    rounds: Simulated rollouts of each thread.
  """
  # When the devices, the network and the chief are free.
  free = [0.0] * (servers + 2)
  network, chief = servers, servers + 1
  times = {network: inputs.bytes / bytes_per_second,
           chief: inputs.chief_seconds}
  # When a thread arrives where, with its device.
  events = [(0.0, i, i % servers, i % servers)
            for i in range(servers * threads)]
  done, now = 0, 0.0
  while done < rounds * servers * threads:
    now, thread, device, place = heapq.heappop(events)
    free[place] = max(free[place], now) + times.get(
        place, inputs.device_seconds)
    following = {device: network, network: chief, chief: device}[place]
    done += place == chief
    heapq.heappush(events, (free[place], thread, device, following))
  return done * inputs.steps / now


def table(inputs: Inputs, servers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
          gigabits: tuple[float, ...] = (1, 10)) -> str:
  """Returns the speeds of clusters as a Markdown table."""
  lines = ['| servers | ' + ' | '.join(
      f'{rate:g} Gbit/s' for rate in gigabits) + ' |',
           '| --- |' + ' --- |' * len(gigabits)]
  for count in servers:
    speeds = (steps_per_second(inputs, count, 1e9 / 8 * rate)
              for rate in gigabits)
    lines.append(f'| {count} | ' + ' | '.join(
        f'{speed:,.0f} steps/s' for speed in speeds) + ' |')
  return '\n'.join(lines)


def report(inputs: Inputs, update_seconds: float, iteration_seconds: float,
           ratio: int) -> str:
  """Returns the table, its inputs, and where the discriminator limits it.

  Args:
    inputs: What a rollout of 5 policy workers costs.
    update_seconds: Of one update of the policy, of which a rollout has 5.
    iteration_seconds: Of an iteration of the discriminator's worker.
    ratio: Policy steps for each of these iterations.
  """
  return '\n'.join((
      f'A rollout of 5 policy workers, {inputs.steps:.0f} steps: '
      f'{1e3 * inputs.device_seconds:.1f} ms of a device, '
      f'{1e-6 * inputs.bytes:.1f} MB of the network, and '
      f'{1e3 * inputs.chief_seconds:.1f} ms of one core of the chief, which '
      f'can take {5 / inputs.chief_seconds:.0f} updates a second with all that '
      f'belongs to them, and {1 / update_seconds:.0f} by themselves.',
      f'Speeds without a discriminator, with {_THREADS} rollouts at a time '
      f'for each server (--policy_workers={5 * _THREADS} and '
      f'--policy_threads={_THREADS} for each):',
      table(inputs),
      f'With a discriminator, whose worker needs {1e3 * iteration_seconds:.0f} '
      f'ms of the chief for {ratio} policy steps, no cluster makes more than '
      f'{ratio / iteration_seconds:,.0f} steps/s.'))
