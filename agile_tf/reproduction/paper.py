"""The paper as data: its table of hyperparameters, its curves and rates.

"Learning to Understand Goal Specifications by Modelling Reward" (Bahdanau et
al., ICLR 2019). The table is appendix C's, for GridLU-Relations; the curves are
those of figures 4, 7 and 8, in `paper_curves/`.
"""

import os
from typing import NamedTuple

import numpy as np

from gridlu import files

# A file for each curve, named by variant (see `experiments`) and column.
_FOLDER = os.path.join(os.path.dirname(__file__), 'paper_curves')


class Cell(NamedTuple):
  """A number in the table."""
  value: float
  # The field of `config.Config` with this default. '' where the algorithm
  # leaves no choice: a policy worker's batch is one rollout, and one worker
  # trains the discriminator.
  setting: str = ''


class Row(NamedTuple):
  """A row of the table; None stands for its dash, 'not applicable'."""
  group: str
  hyperparameter: str
  policy: Cell | None
  discriminator: Cell | None


HYPERPARAMETERS = (
    Row('RMSProp', 'learning rate', Cell(3e-4, 'policy_learning_rate'),
        Cell(5e-4, 'discriminator_learning_rate')),
    Row('RMSProp', 'decay', Cell(0.99, 'policy_decay'),
        Cell(0.9, 'discriminator_decay')),
    Row('RMSProp', 'epsilon', Cell(0.1, 'policy_epsilon'),
        Cell(1e-10, 'discriminator_epsilon')),
    Row('RMSProp', 'grad. norm threshold', Cell(40, 'policy_gradient_norm'),
        Cell(25, 'discriminator_gradient_norm')),
    Row('RMSProp', 'batch size', Cell(1), Cell(256, 'batch_size')),
    Row('RL', 'rollout length', Cell(15, 'rollout_length'), None),
    Row('RL', 'episode length', Cell(30, 'episode_length'), None),
    Row('RL', 'discount', Cell(0.99, 'discount'), None),
    Row('RL', 'reward scale', Cell(0.1, 'reward_scale'), None),
    Row('RL', 'baseline cost', Cell(1.0, 'baseline_cost'), None),
    Row('RL', 'reward prediction cost (when used)',
        Cell(1.0, 'reward_prediction_cost'), None),
    Row('RL', 'reward prediction batch size',
        Cell(4, 'reward_prediction_batch_size'), None),
    # The paper prints a 1 in the discriminator's column of this row.
    Row('RL', 'num. workers training pi', Cell(15, 'policy_workers'), Cell(1)),
    Row('AGILE', 'size of replay buffer B', None, Cell(100_000, 'replay_size')),
    Row('AGILE', 'num. workers training D', None, Cell(1)),
    Row('Regularization', 'entropy weight alpha', Cell(0.01, 'entropy_weight'),
        None),
    Row('Regularization', 'max. column norm', None, Cell(1, 'max_column_norm')),
)


# The values that differ for Arrangements (appendix C, in the text).
_OF_ARRANGEMENTS = {'rollout_length': 30, 'episode_length': 45}


def value(cell: Cell, world: str) -> float:
  """Returns the number in a cell of the table, for a world."""
  if world == 'arrangements':
    return _OF_ARRANGEMENTS.get(cell.setting, cell.value)
  return cell.value


class Curve(NamedTuple):
  """A published curve, the mean of five runs, digitised from its figure.

  Its points are moving averages, probably over 1,000 episodes of each run,
  measured among all those of 16 to 30 million steps. The reasons to think so
  are in launch/results/README.md; paper_test.py has them as tests.
  """
  window: float  # The steps that a point averages over: those before it.
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N], a rate
  band: np.ndarray  # float64 [N], half the height of the shaded area


# Figure 5: success on instructions that name a red rect, before red rects
# become immovable, after that, and after fine-tuning.
IMMOVABLE = {'before': .98, 'changed': .52, 'tuned': .693}

# Success in GridLU-Arrangements, judged by people (section 3.4), in all
# episodes and by the number of blocks.
ARRANGEMENTS = {'all': .58, '4 blocks': .92, '8 blocks': .24}


def _read(name: str) -> dict[str, np.ndarray]:
  rows = files.read_rows(os.path.join(_FOLDER, f'{name}.csv'))
  return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


def curve(variant: str, column: str) -> Curve | None:
  """Returns the published curve of a variant and a column of metrics.csv.

  The figures draw a flat line from step 0 to the first average. The curve here
  begins with the last point of that line.
  """
  try:
    columns = _read(f'{variant}.{column}')
  except FileNotFoundError:
    return None
  scale = 1.0 if column == 'success_rate' else 0.01  # The others are percent.
  mean = columns['mean']
  first = np.argmax(mean != mean[0]) - 1
  steps, mean = columns['env_steps'][first:], mean[first:]
  # The points are 4 million steps apart. Between the first two, the curve
  # becomes the line through the next two.
  window = steps[1] - (mean[1] - mean[0]) * (
      (steps[2] - steps[1]) / (mean[2] - mean[1]))
  return Curve(float(np.clip(window, steps[0], steps[1])), steps, scale * mean,
               scale * columns['half_band'][first:])


def data_efficiency() -> dict[int, float]:
  """Returns figure 7: the best success rate by the number of goal examples."""
  columns = _read('data_efficiency')
  return {int(size): float(rate) for size, rate in zip(
      columns['dataset_size'], columns['best_success'])}
