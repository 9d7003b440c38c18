"""Twenty iterations of each worker, as numbers that rounding hardly changes.

The networks begin with the parameters of `network_oracles.large`, with which
instructions make a difference. Batches have 32 examples, rollouts two steps,
and every other number of the algorithms is the paper's.

`trajectory_test` compares these numbers with those in trajectory.json, which
`python -m tests.agile_tf.agent.trajectory` writes. Write them anew only where
training is meant to change.
"""

import json
import os

from absl import app
import numpy as np

from agile_tf.agent import workers
from agile_tf.training import building
from tests.agile_tf import tiny
from tests.agile_tf.agent import network_oracles

PATH = os.path.join(os.path.dirname(__file__), 'trajectory.json')

_ITERATIONS = 20
_SHOWN = 5  # Iterations whose metrics are kept; later ones differ by more.


def measure(**changes) -> dict[str, float]:
  """Trains a run, in which `changes` are settings, and returns its numbers.

  They are the metrics of the first iterations, and for each parameter the norm
  of what the iterations after the first changed. The first one clips columns
  of the discriminator that are too long.
  """
  parts = building.build(tiny.plan(**dict(
      batch_size=32, replay_size=1000, solved_starts=True) | changes))
  both = parts.networks.policy, parts.networks.discriminator
  for shared, network in zip(
      both, building.make_networks('nmn', parts.world)):
    shared.load(shared.state() | {
        name: value.numpy() for name, value in network.layout.split(
            network_oracles.large(network, 6)).items()})
  actor, learner = (
      parts.discriminator_worker.actor, parts.discriminator_worker.learner)
  while len(learner.buffer) < learner.needed:
    learner.add(*actor.play(both[0].snapshot()).pairs())
  numbers = {}
  for i in range(_ITERATIONS):
    now = workers.Snapshot(both[0].snapshot(), both[1].snapshot())
    for worker in (*parts.policy_workers, parts.discriminator_worker):
      metrics = worker.iterate(now).metrics
      if i < _SHOWN:
        numbers |= {f'{name} of iteration {i}': value
                    for name, value in metrics.items()}
    if i == 0:
      starts = [shared.snapshot() for shared in both]
  for shared, start in zip(both, starts):
    numbers |= {
        f'change of {name}': np.linalg.norm(value)
        for name, value in shared.layout.split(
            shared.snapshot() - start).items()}
  return {name: float(f'{value:.6g}') for name, value in numbers.items()}


def main(argv):
  del argv
  with open(PATH, 'w', encoding='utf-8') as file:
    json.dump(measure(), file, indent=1)
    file.write('\n')


if __name__ == '__main__':
  app.run(main)
