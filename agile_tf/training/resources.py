"""The memory that a run needs, computed before any of it is allocated.

Only the arrays of a run's states count: replay buffers, goal examples, rollouts
and reward prediction's batches. Their sizes do not depend on the networks. The
programs that TensorFlow compiles need more, so the sum is a lower bound.
"""

import contextlib
import math
from typing import NamedTuple
import zipfile

from agile_tf import config as config_lib
from agile_tf.agent import worlds
from gridlu import files
from gridlu import tasks

_NUMBER = 4  # Bytes of a float32 or an int32.
# The least bytes that a goal state takes while it is generated. Its board, as
# int32, takes 100 of them; 265 or more were measured in all.
_GENERATED = 200


class Need(NamedTuple):
  """The memory that one part of a run needs."""
  what: str
  size: int  # Bytes.
  flags: tuple[str, ...]  # The settings that determine it.


def needs(config: config_lib.Config, world: worlds.World, needs_goals: bool
         ) -> list[Need]:
  """Returns the memory that each part of a run needs.

  `needs_goals` says whether the run has goal examples.
  """
  state = math.prod(world.observation_shape)
  pair = _NUMBER * len(world.grammar.slots) + state
  # A step of a rollout has a state, and noise for each action.
  step = state + _NUMBER * world.num_actions
  num_workers = config.policy_workers
  found = [Need('rollouts', num_workers * config.rollout_length * step,
                ('policy_workers', 'rollout_length'))]
  if config.reward_prediction:
    found += [
        Need("reward prediction's replay buffer and its copy in a checkpoint",
             2 * config.reward_prediction_replay_size * pair,
             ('reward_prediction_replay_size',)),
        Need("reward prediction's batches",
             num_workers * config.reward_prediction_batch_size * pair,
             ('policy_workers', 'reward_prediction_batch_size'))]
  if config.trains_discriminator:
    # D's batch is not counted, which leaves the sum a lower bound. No more
    # pairs are drawn from B than it can hold (see `building.check_draw`).
    found.append(Need('the replay buffer B and its copy in a checkpoint',
                      2 * config.replay_size * pair, ('replay_size',)))
  path = config.dataset or world.goal_examples
  if needs_goals and path:
    # If there is no such file, the loader reports this.
    with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile):
      with (files.open_regular(path) as file,
            zipfile.ZipFile(file) as archive):
        size = sum(member.file_size for member in archive.infolist())
      found.append(Need('the goal examples, and a copy of those that are used',
                        2 * size, ('dataset' if config.dataset else 'world',)))
  elif needs_goals and config.world in tasks.TASKS:
    found.append(Need('the goal examples', config.dataset_size * _GENERATED,
                      ('dataset_size',)))
  return found


def check(config: config_lib.Config, world: worlds.World,
          needs_goals: bool, available: int) -> None:
  """Raises ConfigError if a run needs more than these bytes of memory."""
  parts = needs(config, world, needs_goals)
  total = sum(part.size for part in parts)
  if total <= available:
    return
  largest = max(parts, key=lambda part: part.size)
  settings = ' or '.join(
      f'--{name}={getattr(config, name)}' for name in largest.flags)
  raise config_lib.ConfigError(
      f'This run needs at least {total:,} bytes of memory, but may '
      f'use at most {available:,}. The largest part, {largest.size:,} bytes, '
      f'is for {largest.what}: change {settings}.')
