"""The memory that a run needs, computed before any of it is allocated.

These are lower bounds: the programs that TensorFlow compiles need more.
"""

import contextlib
import math
from typing import NamedTuple
import zipfile

from agile_tf import config as config_lib
from agile_tf.agent import modules
from agile_tf.agent import worlds

_FLOAT = 4  # Bytes of a float32 or an int32.
# Bytes of a goal state while it is generated: the boards are then int32.
_GENERATED = 200


class Need(NamedTuple):
  """The memory that one part of a run needs."""
  what: str
  size: int  # Bytes.
  flags: tuple[str, ...]  # The settings that determine it.


def needs(config: config_lib.Config, world: worlds.World,
          num_candidates: int, goal_examples: bool) -> list[Need]:
  """Returns the memory that each part of a run needs.

  `num_candidates` pairs are drawn from B for one update of D.
  """
  slots = len(world.grammar.slots)
  pair = _FLOAT * slots + math.prod(world.observation_shape)
  height, width, _ = world.image_shape
  # The stem divides height and width by 8 and then subtracts 2.
  features = modules.CHANNELS * (height // 8 - 2) * (width // 8 - 2)
  # An image in float32, and the output of each module.
  seen = _FLOAT * (math.prod(world.image_shape) + (1 + slots) * features)
  num_workers = config.policy_workers
  found = [Need('rollouts', num_workers * config.rollout_length * (seen + pair),
                ('policy_workers', 'rollout_length'))]
  if config.reward_prediction:
    found += [
        Need("reward prediction's replay buffer and its copy in a checkpoint",
             2 * config.reward_prediction_replay_size * pair,
             ('reward_prediction_replay_size',)),
        Need("reward prediction's batches",
             num_workers * config.reward_prediction_batch_size * seen,
             ('policy_workers', 'reward_prediction_batch_size'))]
  if config.trains_discriminator:
    found += [
        Need('the replay buffer B and its copy in a checkpoint',
             2 * config.replay_size * pair, ('replay_size',)),
        Need("the discriminator's batches",
             (config.batch_size // 2 + num_candidates) * seen,
             ('batch_size', 'anticipated_negative_rate'))]
  path = config.dataset or world.goal_examples
  if goal_examples and path:
    # If it is no such file, loading it says so.
    with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile):
      with open(path, 'rb') as file, zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
      found.append(Need('the goal examples, all and those of the instructions',
                        2 * size, ('dataset' if config.dataset else 'world',)))
  elif goal_examples and world.compiled is not None:
    found.append(Need('the goal examples', config.dataset_size * _GENERATED,
                      ('dataset_size',)))
  return found


def check(config: config_lib.Config, world: worlds.World,
          num_candidates: int, goal_examples: bool, available: int) -> None:
  """Raises ConfigError if a run needs more than these bytes of memory."""
  parts = needs(config, world, num_candidates, goal_examples)
  total = sum(part.size for part in parts)
  if total <= available:
    return
  most = max(parts, key=lambda part: part.size)
  settings = ' or '.join(
      f'--{name}={getattr(config, name)}' for name in most.flags)
  raise config_lib.ConfigError(
      f'This run needs at least {total:,} bytes of memory, but may '
      f'use at most {available:,}. The largest part, {most.size:,} bytes, is '
      f'for {most.what}: change {settings}.')
