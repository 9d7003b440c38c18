"""Measures what the networks of a run can see and tell apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from agile_tf.agent import programs as programs_lib
from agile_tf.agent import worlds
from agile_tf.worlds import gridlu_world
from gridlu import exchanges
from gridlu import language
from gridlu import rendering
from gridlu import world as world_lib

# A filter whose largest output is smaller than this is dead.
_ALIVE = 1e-6


def filters_alive(parameters: Mapping[str, tf.Tensor], images: np.ndarray
                 ) -> int | None:
  """Counts the filters of a network's first layer that any image excites.

  A filter that is zero everywhere has no gradient either: it never comes back.

  Args:
    parameters: A network's parameters by name.
    images: uint8 [N, H, W, 3].

  Returns:
    The number of filters with a positive output in some patch, which has 8x8
    pixels in the paper's networks. None if the first layer is another one: that
    of the FiLM-LSTM depends on the instruction, and users have their own.
  """
  names = [name for name in parameters if name.endswith('stem/patches/w')]
  if not names:
    return None
  layer = names[0].removesuffix('/w')
  if f'{layer}/b' not in parameters:
    return None
  kernel = np.asarray(parameters[f'{layer}/w'], np.float64)
  bias = np.asarray(parameters[f'{layer}/b'], np.float64)
  size = kernel.shape[0]
  if size > min(images.shape[1:3]):
    return None
  rows, columns = (side // size for side in images.shape[1:3])
  patches = images[:, :rows * size, :columns * size].reshape(
      len(images), rows, size, columns, size, 3).swapaxes(2, 3)
  patches = np.unique(patches.reshape(-1, size**2 * 3), axis=0) / 255
  outputs = patches @ kernel.reshape(-1, kernel.shape[-1]) + bias
  return int(np.sum(outputs.max(axis=0) > _ALIVE))


def example_images(world: worlds.World, observations: np.ndarray) -> np.ndarray:
  """Returns images on which to look for dead filters, uint8 [N, H, W, 3].

  GridLU has 31 tiles, of which every image is made. In another world they are
  the images of N observations.
  """
  if isinstance(world, gridlu_world.GridLUWorld):
    return rendering.TILES
  return world.pixels(observations)


class ExchangeTest:
  """Measures whether a reward model sees what makes a state a goal state.

  `gridlu.exchanges` changes goal states so that they are none any more, for
  example by exchanging two colours. A reward model that does not see colours
  accepts such a state all the same.
  """

  def __init__(self, world: gridlu_world.GridLUWorld, count: int = 1000,
               seed: int = 0):
    """Draws `count` goal states of a world, with a seed."""
    self._pairs = {
        name: (world_lib.pack(exchanged.states),
               world.grammar.encode(exchanged.instructions))
        for name, exchanged in exchanges.exchanges(
            world.task, world.known, seed, count).items()}

  def accepted(self, programs: programs_lib.DiscriminatorPrograms,
               phi: tf.Tensor) -> dict[str, dict[str, Any]]:
    """Returns each exchange's number of 'states' and the share 'accepted'."""
    return _accepted(self._pairs, programs, phi)


class CrowdTest:
  """Measures how many goal states with n distractors a reward model accepts.

  A distractor is a block that the instruction does not need. A reward model is
  sure of itself only on boards like those of its goal examples. Others of the
  same task can be its blind spots.
  """

  def __init__(self, world: gridlu_world.GridLUWorld, count: int = 1000,
               most: int = 8, seed: int = 0):
    """Draws `count` goal states of a world with each number of distractors.

    The numbers are 0 to `most`. An instruction of Arrangements that names no
    colour needs all blocks, so its goal states have no distractors. These goal
    states are a group of their own.
    """
    self._pairs = {}
    need_some = [each for each in world.known if not _needs_all(each)]
    need_all = [each for each in world.known if _needs_all(each)]
    for label, number, instructions in (
        *((str(n), n, need_some) for n in range(most + 1)),
        ('0, no colour', 0, need_all)):
      if not instructions:
        continue
      drawn = world.task.goal_states(
          np.random.default_rng([seed, number]), count, instructions,
          distractors=(number, number))
      self._pairs[label] = world_lib.pack(drawn.state), world.grammar.encode(
          [str(instructions[i]) for i in drawn.instruction])

  def accepted(self, programs: programs_lib.DiscriminatorPrograms,
               phi: tf.Tensor) -> dict[str, dict[str, Any]]:
    """Returns each number's count of 'states' and the share 'accepted'."""
    return _accepted(self._pairs, programs, phi)


def _needs_all(instruction: language.Instruction) -> bool:
  """Returns whether an instruction of Arrangements is about all blocks."""
  return (isinstance(instruction, language.Arrangement) and
          isinstance(instruction.right, language.Blocks) and
          instruction.right.color is None)


def _accepted(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
              programs: programs_lib.DiscriminatorPrograms, phi: tf.Tensor
             ) -> dict[str, dict[str, Any]]:
  """Returns each group's number of 'states' and the share 'accepted'."""
  return {
      name: {'states': len(codes), 'accepted': float(np.mean(
          programs.probabilities(phi, states, codes) >
          programs.reward_threshold))}
      for name, (states, codes) in pairs.items()}
