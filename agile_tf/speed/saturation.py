"""Where a cluster saturates: a simulation from a few measured numbers.

A policy thread goes round and round: its device computes a rollout, the rollout
crosses the chief's network, and the chief handles it. Each of these three
serves one thread after another. The servers' own networks are not modelled:
each carries the traffic of one server only.
"""

import heapq
from typing import NamedTuple


class Inputs(NamedTuple):
  """What is measured, for one rollout of one thread."""
  device_seconds: float  # What a server's device computes.
  chief_seconds: float  # What the chief computes, updates included.
  bytes: float  # Sent and received by the chief.
  steps: float  # Policy steps.


def steps_per_second(inputs: Inputs, servers: int, bytes_per_second: float,
                     threads: int = 2, rounds: int = 200) -> float:
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
