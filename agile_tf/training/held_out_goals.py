"""Goal examples on which nothing is trained, to judge the discriminator by.

Where nobody knows which states are goal states, they still show how good D is:
it should accept them, and reject them with the instruction of another one.
"""

import hashlib

import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from gridlu import goal_dataset

_TESTED = 500  # Goal examples of each kind in a row of a run's metrics.


def divide(goals: worlds.GoalExamples, world: worlds.World, share: float
          ) -> tuple[worlds.GoalExamples, worlds.GoalExamples | None]:
  """Divides goal examples into those to train on and those that are held out.

  See `split`. With a share of 0 all of them are trained on.
  """
  if not share:
    return goals, None
  kept, held_out = split(goals.dataset, share)
  return (worlds.GoalExamples(kept, world),
          worlds.GoalExamples(held_out, world))


def split(dataset: goal_dataset.GoalDataset, share: float
         ) -> tuple[goal_dataset.GoalDataset, goal_dataset.GoalDataset]:
  """Returns the goal examples to train on, and those that are held out.

  This share of the different examples is held out: if one occurs several times,
  then all its copies are. Each instruction keeps an example to train on. The
  choice depends on the goal examples and on the share alone, so that runs with
  other seeds can be compared and agile_tf.evaluate finds the same ones.

  Raises:
    ConfigError: if the share is less than one example, or more than there are
      besides those that the instructions keep.
  """
  rows: dict[tuple[int, bytes], int] = {}  # The first row of each example.
  copy_of = np.array([
      rows.setdefault((instruction, hashlib.sha256(state).digest()), row)
      for row, (instruction, state) in enumerate(zip(
          dataset.instruction.tolist(),
          np.ascontiguousarray(dataset.observations)))])
  order = np.random.default_rng(0).permutation(np.unique(copy_of))
  # Where each instruction first occurs in `order`: that example is kept.
  _, kept = np.unique(dataset.instruction[order], return_index=True)
  others = np.delete(order, kept)
  count = round(share * len(order))
  if not 1 <= count <= len(others):
    raise config_lib.ConfigError(
        f'held_out_goals={share:g} of {len(order)} different goal examples is '
        f'{count}: expected 1 to {len(others)}, because each of '
        f'{len(kept)} instructions keeps one to train on. Give more goal '
        'examples, or another share; 0 holds none out.')
  held_out = np.isin(copy_of, others[:count])
  return _rows(dataset, ~held_out), _rows(dataset, held_out)


def _rows(dataset: goal_dataset.GoalDataset, rows: np.ndarray
         ) -> goal_dataset.GoalDataset:
  """Returns some examples of a data set, with the same instructions."""
  return goal_dataset.GoalDataset(
      dataset.instructions, dataset.instruction[rows], **{
          name: None if value is None else value[rows]
          for name, value in (('states', dataset.states),
                              ('images', dataset.images))})


class GoalTest:
  """Measures how many held-out goal examples D accepts.

  It also measures how many D accepts with the instruction of another one.
  """

  def __init__(self, goals: worlds.GoalExamples, most: int = _TESTED,
               seed: int = 0):
    """Takes held-out goal examples, of which at most so many are tested."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(goals))[:most]
    self._pairs = {'held_out_goals': rollouts.Pairs(
        goals.codes[goals.dataset.instruction[rows]],
        goals.observations[rows])}
    if goals.several:
      self._pairs['mismatched_goals'] = goals.sample_mismatched(rng, len(rows))

  def probabilities(self, programs: programs_lib.DiscriminatorPrograms,
                    phi: object) -> dict[str, np.ndarray]:
    """Returns D(c, s) of the examples, float32 [N], by their kind.

    The kinds are 'held_out_goals', and 'mismatched_goals' if there are several
    instructions.
    """
    return {name: programs.probabilities(phi, observations, codes)
            for name, (codes, observations) in self._pairs.items()}

  def accepted(self, programs: programs_lib.DiscriminatorPrograms,
               phi: object) -> dict[str, float]:
    """Returns the share of each kind that D accepts, as columns of metrics."""
    return {
        f'{name}_accepted': float(np.mean(values > programs.reward_threshold))
        for name, values in self.probabilities(programs, phi).items()}
