"""What memory a run needs, computed before any of it is taken.

These are lower bounds: what a run of these settings cannot do without. The
programs that TensorFlow compiles take more.
"""

import math
from typing import NamedTuple

from agile_tf import config as config_lib
from agile_tf.agent import worlds

_FLOAT = 4  # Bytes of a float32 or an int32.
# Of a goal state while it is generated: GridLU's boards are int32 then.
_GENERATED = 200
# The networks' features (appendix G): 64 channels, from a stem that divides
# height and width by 8 and takes 2 off.
_CHANNELS = 64


class Need(NamedTuple):
  """What one part of a run needs."""
  what: str
  size: int  # In bytes.
  flags: tuple[str, ...]  # The settings that it grows with.


def needs(config: config_lib.Config, world: worlds.World) -> list[Need]:
  """Returns what a run needs, part by part.

  Args:
    config: The run's settings.
    world: That it trains on.
  """
  slots = len(world.grammar.slots)
  pair = _FLOAT * slots + math.prod(world.observation_shape)
  height, width, _ = world.image_shape
  features = _CHANNELS * (height // 8 - 2) * (width // 8 - 2)
  # An image in float32, and what each module makes of it.
  seen = _FLOAT * (math.prod(world.image_shape) + (1 + slots) * features)
  steps = config.policy_workers * config.rollout_length
  found = [Need(
      'rollouts', steps * (seen + pair),
      ('policy_workers', 'rollout_length'))]
  if config.reward_prediction:
    found += [
        Need("reward prediction's replay buffer and its copy in a checkpoint",
             2 * config.reward_prediction_replay_size * pair,
             ('reward_prediction_replay_size',)),
        Need("reward prediction's batches",
             config.policy_workers * config.reward_prediction_batch_size * seen,
             ('policy_workers', 'reward_prediction_batch_size'))]
  if config.trains_discriminator:
    examples = config.batch_size / (2 * config.anticipated_negative_rate)
    found += [
        Need('the replay buffer B and its copy in a checkpoint',
             2 * config.replay_size * pair, ('replay_size',)),
        Need("the discriminator's batches",
             (config.batch_size // 2 + round(examples)) * seen,
             ('batch_size', 'anticipated_negative_rate'))]
    if world.compiled is not None and not config.dataset:
      found.append(Need(
          'the data set D', config.dataset_size * _GENERATED,
          ('dataset_size',)))
  return found


def check(config: config_lib.Config, world: worlds.World,
          available: int) -> None:
  """Refuses a run that needs more memory than there is.

  Args:
    config: The run's settings.
    world: That it trains on.
    available: How many bytes there are.

  Raises:
    ConfigError: it names what needs most, in bytes, and the settings that say
      how much.
  """
  parts = needs(config, world)
  total = sum(part.size for part in parts)
  if total <= available:
    return
  most = max(parts, key=lambda part: part.size)
  settings = ' or '.join(
      f'--{name}={getattr(config, name)}' for name in most.flags)
  raise config_lib.ConfigError(
      f'This run needs at least {total:,} bytes of memory, and there are '
      f'{available:,}. {most.size:,} of them are for {most.what}: change '
      f'{settings}.')
