"""GridLU as AGILE sees it: a world that TensorFlow compiles.

GridLU's rules, its pictures and its ground truth are written for any array
module, so here they are applied to TensorFlow's tensors.
"""

from collections.abc import Sequence
import functools
from typing import Any

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import worlds
import gridlu
from gridlu import language
from gridlu import rendering
from gridlu import tasks
from gridlu import world as world_lib

xnp = tf.experimental.numpy

_TILES = rendering.TILES.astype(np.float32) / 255


class GridLUWorld:
  """A GridLU task (sections 3.3 and 3.4), a `worlds.CompiledWorld`.

  Observations are whole states, uint8 [27].

  Attributes, besides those of `worlds.CompiledWorld`:
    task: The task.
    known: The instructions that the networks can read.
  """

  def __init__(self, task: str = 'relations',
               instructions: Sequence[language.Instruction] | None = None,
               physics: world_lib.Physics = world_lib.NORMAL,
               episode_length: int | None = None, truncate: bool = False,
               known: Sequence[language.Instruction] | None = None,
               solved_starts: bool = False):
    """Takes arguments of `gridlu.GridLU`.

    The networks can read the instructions that are `known`, by default the
    `instructions` of its episodes.
    """
    self.task = tasks.find(task)
    played = tuple(instructions or self.task.instructions())
    self.known = tuple(known or played)
    self.grammar = instructions_lib.Grammar(
        [str(instruction) for instruction in self.known],
        language.tree, self.task.tokens)
    self.image_shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
    self.observation_shape: tuple[int, ...] = (world_lib.PACKED_SIZE,)
    self.largest_observation: tuple[int, ...] | None = tuple(
        limit - 1 for limit in world_lib.PACKED_LIMITS)
    self.num_actions = world_lib.NUM_POLICY_ACTIONS
    self.goal_examples = ''
    self.has_ground_truth = self.task.has_ground_truth
    self.texts = tuple(map(str, played))
    self.codes = self.grammar.encode(self.texts)
    self.truth_codes = self.task.encode(played)
    self.episode_length = episode_length or self.task.episode_length
    self.final_discount = 1.0 if truncate else 0.0
    self._physics = physics
    self._make_environment = functools.partial(
        gridlu.GridLU, task=task, episode_length=self.episode_length,
        instructions=played, physics=physics, truncate=truncate,
        solved_starts=solved_starts)

  @property
  def compiled(self) -> 'GridLUWorld':
    return self

  def make_environment(self, seed: int) -> gridlu.GridLU:
    return self._make_environment(seed=seed)

  def begin(self, environment: gridlu.GridLU) -> tuple[int, np.ndarray]:
    environment.reset()
    index = self.current_instruction(environment)
    return index, world_lib.pack(environment.state)

  def current_instruction(self, environment: gridlu.GridLU) -> int:
    return environment.instruction_index

  def observe(self, environment: Any, timestep: dm_env.TimeStep) -> np.ndarray:
    return world_lib.pack(environment.state)

  def images(self, observations: tf.Tensor) -> tf.Tensor:
    return tf.cast(rendering.render(
        world_lib.unpack(observations, xp=xnp), xp=xnp), tf.float32) / 255

  def tiles(self, observations: tf.Tensor) -> worlds.Tiled:
    return worlds.Tiled(rendering.tile_indices(
        world_lib.unpack(observations, xp=xnp), xp=xnp), _TILES)

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    return rendering.render(world_lib.unpack(observations))

  def step(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    state = world_lib.unpack(observations, xp=xnp)
    return world_lib.pack(
        world_lib.step(state, actions, self._physics, xp=xnp), xp=xnp)

  def satisfied(self, truth_codes: tf.Tensor, observations: tf.Tensor
               ) -> tf.Tensor:
    return self.task.satisfied(
        truth_codes, world_lib.unpack(observations, xp=xnp), xp=xnp)

  def check(self, texts: Sequence[str], observations: np.ndarray) -> np.ndarray:
    return self.task.satisfied(
        self.task.encode([language.parse(text) for text in texts]),
        world_lib.unpack(observations))
