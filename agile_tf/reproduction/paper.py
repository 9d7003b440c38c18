"""The paper as data: its table of hyperparameters, its curves and rates.

"Learning to Understand Goal Specifications by Modelling Reward" (Bahdanau et
al., ICLR 2019). The table is appendix C's, for GridLU-Relations; the curves are
those of figures 4, 7 and 8, in `paper_curves/`.
"""

import os
from typing import NamedTuple

import numpy as np

from agile_tf import records

# Each curve has a file here, which is named by variant (see `experiments`) and
# column. Figure 7 is in data_efficiency.csv.
_FOLDER = os.path.join(os.path.dirname(__file__), 'paper_curves')

# These values and their places in the table are those of appendix C, for
# GridLU-Relations, by the settings of `config.Config`. Lambda is from the text.
# Where the algorithm leaves no choice there is no setting: a policy worker's
# batch is one rollout, and one worker trains D.
HYPERPARAMETERS: dict[str, tuple[float, str]] = {
    'policy_learning_rate': (3e-4, 'policy: RMSProp, learning rate'),
    'policy_decay': (0.99, 'policy: RMSProp, decay'),
    'policy_epsilon': (0.1, 'policy: RMSProp, epsilon'),
    'policy_gradient_norm': (40, 'policy: RMSProp, grad. norm threshold'),
    'rollout_length': (15, 'policy: RL, rollout length'),
    'episode_length': (30, 'policy: RL, episode length'),
    'discount': (0.99, 'policy: RL, discount'),
    'td_lambda': (0, 'section 3.2, in an unclear sentence'),
    'reward_scale': (0.1, 'policy: RL, reward scale'),
    'baseline_cost': (1.0, 'policy: RL, baseline cost'),
    'reward_prediction_cost': (
        1.0, 'policy: RL, reward prediction cost (when used)'),
    'reward_prediction_batch_size': (
        4, 'policy: RL, reward prediction batch size'),
    'policy_workers': (15, 'policy: RL, num. workers training pi'),
    'entropy_weight': (0.01, 'policy: Regularization, entropy weight alpha'),
    'discriminator_learning_rate': (5e-4, 'D: RMSProp, learning rate'),
    'discriminator_decay': (0.9, 'D: RMSProp, decay'),
    'discriminator_epsilon': (1e-10, 'D: RMSProp, epsilon'),
    'discriminator_gradient_norm': (25, 'D: RMSProp, grad. norm threshold'),
    'batch_size': (256, 'D: RMSProp, batch size'),
    'replay_size': (100_000, 'D: AGILE, size of replay buffer B'),
    'max_column_norm': (1, 'D: Regularization, max. column norm'),
}
# For Arrangements the paper's text has other values of these settings.
OF_ARRANGEMENTS: dict[str, tuple[float, str]] = {
    'rollout_length': (30, 'appendix C'),
    'episode_length': (45, 'appendix C'),
    'dataset_size': (100_000, 'section 3.4'),
}


class Curve(NamedTuple):
  """A published curve, the mean of five runs, digitised from its figure.

  Each point seems to average 1,000 episodes of each run, spread over the 16 to
  30 million steps before it. tests/agile_tf/reproduction/paper_test.py has the
  evidence that points are averages, and that they are of 1,000 episodes.
  """
  window: float  # How many steps before a point it averages over.
  steps: np.ndarray  # float64 [N]
  mean: np.ndarray  # float64 [N], a rate
  band: np.ndarray  # float64 [N], half the height of the shaded area


# Figure 5 has these success rates on instructions that name a red rect: before
# red rects become immovable, after that, and after fine-tuning.
IMMOVABLE = {'before': .98, 'changed': .52, 'tuned': .693}

# People judged that these shares of the episodes of GridLU-Arrangements succeed
# (section 3.4): of all episodes, and by the number of blocks.
ARRANGEMENTS = {'all': .58, '4 blocks': .92, '8 blocks': .24}


def _path(name: str) -> str:
  return os.path.join(_FOLDER, f'{name}.csv')


def _read(name: str) -> dict[str, np.ndarray]:
  rows = records.rows(_path(name))
  return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


def curve(variant: str, column: str) -> Curve | None:
  """Returns the published curve of a variant and a column of metrics.csv.

  The figures draw a flat line from step 0 to the first average. The curve here
  begins with the last point of that line.
  """
  name = f'{variant}.{column}'
  if not os.path.isfile(_path(name)):
    return None
  columns = _read(name)
  scale = 1.0 if column == 'success_rate' else 0.01  # The others are in %.
  mean = columns['mean']
  first = np.argmax(mean != mean[0]) - 1
  steps, mean = columns['env_steps'][first:], mean[first:]
  # The curve is flat until a whole window has passed. This is somewhere between
  # the points 0 and 1, which are millions of steps apart. We go back from point
  # 1 along the line through the points 1 and 2, to where it has point 0's rate.
  steps_per_rate = (steps[2] - steps[1]) / (mean[2] - mean[1])
  window = steps[1] - (mean[1] - mean[0]) * steps_per_rate
  return Curve(float(np.clip(window, steps[0], steps[1])), steps, scale * mean,
               scale * columns['half_band'][first:])


def data_efficiency() -> dict[int, float]:
  """Returns figure 7: the best success rate by the number of goal examples."""
  columns = _read('data_efficiency')
  return {int(size): float(rate) for size, rate in zip(
      columns['dataset_size'], columns['best_success'])}
