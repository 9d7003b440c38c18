"""`Variation` has what a run may vary. By default it is the paper's AGILE."""

from collections.abc import Callable
from typing import NamedTuple

from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import workers
from agile_tf.agent import worlds


class HeadStart(NamedTuple):
  """Iterations of the discriminator's worker before the first policy step."""
  iterations: int
  # It is called after the last of them, with theta, with the learner of phi,
  # and with the data of the auxiliary loss, if there is one.
  then: Callable[[optimizers.SharedParameters, workers.DiscriminatorLearner,
                  auxiliary_lib.Data | None], None]


class Variation(NamedTuple):
  """The differences of a run from the paper. `Variation()` is the paper's run.

  A field that is None leaves the choice to the settings of the paper.
  """

  # Both networks.
  initialization: networks.Initialization = networks.Initialization()
  # Takes a decay and an epsilon.
  rule: Callable[[float, float], optimizers.Rule] = optimizers.rmsprop

  # The policy. The learning rate and the weight of the entropy are functions of
  # the policy steps so far; None keeps them constant.
  learning_rate: Callable[[int], float] | None = None
  entropy_weight: Callable[[int], float] | None = None
  # If true, the workers of a thread update the policy once, by the mean of
  # their gradients.
  averaged: bool = False
  # None stands for reward prediction, if the run has it.
  auxiliary: auxiliary_lib.Auxiliary | None = None

  # The discriminator.
  # It chooses D's negatives. None takes them from B alone, by rho, as
  # Algorithm 1 does.
  negatives: workers.Negatives | None = None
  # The number W of episodes that the discriminator's worker plays at once.
  discriminator_episodes: int = 1
  head_start: HeadStart | None = None

  # The goal examples.
  # If true, a run that trains no discriminator has goal examples too.
  needs_goals: bool = False
  # Raises WorldError for goal examples that this variation cannot use.
  check_goals: Callable[[worlds.GoalExamples], None] | None = None
  # Among the generated goal states in which the agent is on a block, the share
  # in which it carries this block.
  carrying: float = 0.0
  # The fewest and the most distractors of generated goal states; None gives
  # them as many as the task has.
  distractors: tuple[int, int] | None = None
