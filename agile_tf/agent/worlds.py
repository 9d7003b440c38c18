"""The protocols that a world fulfils for AGILE, and its goal examples.

`World` is what AGILE needs of every environment. If a world's rules are written
in TensorFlow, it is a `CompiledWorld`: then a whole rollout is one compiled
program. `agile_tf.worlds` has both kinds: GridLU, which is compiled, and any
`dm_env` environment of your own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import rollouts
from gridlu import goal_dataset
from gridlu import program


class WorldError(program.UserError):
  """A world, or goal examples, that AGILE cannot be trained on."""


class Tiled(NamedTuple):
  """N images that are made of square tiles."""
  indices: tf.Tensor  # int32 [N, H / size, W / size], into the table.
  table: np.ndarray  # float32 [tiles, size, size, 3], in [0, 1].


class World(Protocol):
  """A kind of environment, as the agent sees it.

  Attributes:
    grammar: Encodes the instructions for the networks.
    image_shape: H, W and 3.
    observation_shape: The shape of what stands for a state in buffers and
      rollouts, uint8: the image, or something smaller to make it from.
    largest_observation: The largest value of each number of an observation;
      None if each can be any uint8.
    num_actions: The number of the policy's actions.
    goal_examples: The path of the goal examples; '' if they are generated.
    has_ground_truth: Whether the environment's reward is 1 in goal states and
      else 0. Without this, only AGILE can be trained.
    compiled: This world, if its rules are in TensorFlow; else None.
  """
  grammar: instructions_lib.Grammar
  image_shape: tuple[int, int, int]
  observation_shape: tuple[int, ...]
  largest_observation: tuple[int, ...] | None
  num_actions: int
  goal_examples: str
  has_ground_truth: bool

  @property
  def compiled(self) -> 'CompiledWorld | None':
    ...

  def make_environment(self, seed: int) -> dm_env.Environment:
    """Makes an environment from the seed of its episodes."""

  def observe(self, environment: Any, timestep: dm_env.TimeStep) -> np.ndarray:
    """Returns the observation of an environment's newest time step."""

  def images(self, observations: tf.Tensor) -> tf.Tensor:
    """Renders observations as float32 [N, H, W, 3] in [0, 1].

    Observations are uint8 [N, *observation_shape].
    """

  def tiles(self, observations: tf.Tensor) -> Tiled | None:
    """Returns the same images as tiles, or None if they are not made of any."""

  def pixels(self, observations: np.ndarray) -> np.ndarray:
    """Renders uint8 [N, *observation_shape] as uint8 [N, H, W, 3]."""

  def check(self, texts: Sequence[str], observations: np.ndarray
           ) -> np.ndarray | None:
    """Returns which states are goal states, bool [R, W].

    Observations are uint8 [R, W, ...], and texts the instructions of W workers.
    Worlds without a ground truth may have such a checker; those without a
    checker return None. Metrics show its verdict, and training never uses it.
    """


class CompiledWorld(World, Protocol):
  """A world whose rules are in TensorFlow.

  Its environments only draw the instances: an instruction by its index, and a
  first state. I is the number of instructions.

  Attributes:
    texts: The instructions by index, as people read them.
    codes: The instructions by index, as the networks read them: int32
      [I, slots].
    truth_codes: The instructions by index, as `satisfied` reads them: int32
      [I, truth slots].
    episode_length: The steps of each episode.
    final_discount: The discount of an episode's last step.
  """
  texts: tuple[str, ...]
  codes: np.ndarray
  truth_codes: np.ndarray
  episode_length: int
  final_discount: float

  def begin(self, environment: Any) -> tuple[int, np.ndarray]:
    """Begins an episode; returns its instruction and its first observation."""

  def current_instruction(self, environment: Any) -> int:
    """Returns the index of the instruction of the episode that was begun."""

  def step(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """Returns the observations that follow actions.

    Observations are uint8 [W, ...], actions int32 [W].
    """

  def satisfied(self, truth_codes: tf.Tensor, observations: tf.Tensor
               ) -> tf.Tensor:
    """Returns which states [..., W, ...] are goal states, bool [..., W].

    For a world without a ground truth this is its checker's verdict.
    """


class GoalExamples:
  """The goal examples: pairs of an instruction and one of its goal states."""

  def __init__(self, dataset: goal_dataset.GoalDataset, world: World):
    """Encodes goal examples; raises WorldError if they do not fit the world."""
    try:
      # int32 [instructions, slots]
      self.codes = world.grammar.encode(dataset.instructions)
    except ValueError as error:
      raise WorldError(
          f'The goal examples do not fit this world: {error}') from error
    self.dataset = dataset
    self.observations = dataset.observations  # uint8 [N, ...]

  def __len__(self) -> int:
    return len(self.dataset.instruction)

  def sample(self, rng: np.random.Generator, count: int) -> rollouts.Pairs:
    """Draws pairs uniformly with replacement."""
    index = self.dataset.instruction  # int32 [N], into the instructions.
    rows = rng.integers(len(self), size=count)
    return rollouts.Pairs(self.codes[index[rows]], self.observations[rows])

  @property
  def several(self) -> bool:
    """Whether there are examples of more than one instruction."""
    index = self.dataset.instruction
    return bool(np.any(index != index[0]))

  def sample_mismatched(self, rng: np.random.Generator, count: int
                       ) -> rollouts.Pairs:
    """Draws states of goal examples, each with another example's instruction.

    The instruction is never the state's own, so there must be `several`. A
    state may happen to satisfy it, which the examples do not tell.
    """
    index = self.dataset.instruction
    rows, others = rng.integers(len(self), size=[2, count])
    while len(same := np.flatnonzero(index[rows] == index[others])):
      others[same] = rng.integers(len(self), size=len(same))
    return rollouts.Pairs(self.codes[index[others]], self.observations[rows])
