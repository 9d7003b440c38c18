"""The paper as data: its table of hyperparameters and its main results.

"Learning to Understand Goal Specifications by Modelling Reward" (Bahdanau et
al., ICLR 2019). The table is appendix B's, for GridLU-Relations; the results
are those of section 4 and figure 4.
"""

from typing import NamedTuple


class Cell(NamedTuple):
  """A number in the table.

  Attributes:
    value: The number.
    setting: The field of `config.Config` that it is the default of; '' where
      the algorithm leaves no choice: a worker's rollout is a batch of its own,
      and one worker trains the discriminator.
  """
  value: float
  setting: str = ''


class Row(NamedTuple):
  """A row of the table; None is its dash, 'not applicable'."""
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
    # The paper has a 1 in the discriminator's column of this row too.
    Row('RL', 'num. workers training pi', Cell(15, 'policy_workers'), Cell(1)),
    Row('AGILE', 'size of replay buffer B', None, Cell(100_000, 'replay_size')),
    Row('AGILE', 'num. workers training D', None, Cell(1)),
    Row('Regularization', 'entropy weight alpha', Cell(0.01, 'entropy_weight'),
        None),
    Row('Regularization', 'max. column norm', None, Cell(1, 'max_column_norm')),
)


class Result(NamedTuple):
  """An agent's success on GridLU-Relations, the mean of five runs.

  Attributes:
    agent: Its name in figure 4 (left).
    text: The success rate that the text gives, or None. It is higher than
      where the curve ends.
    curve: The success rates after the millions of steps in `RESULT_STEPS`,
      read off figure 4 (left); the curves end at the last of them.
  """
  agent: str
  text: float | None
  curve: tuple[float, ...]


RESULT_STEPS = (30, 50, 75, 100, 200, 300, 500)  # In millions.

RESULTS = (
    Result('A3C', None, (.022, .044, .116, .182, .622, .707, .873)),
    Result('A3C-RP', .999, (.439, .914, .976, .985, .996, .994, .997)),
    Result('AGILE, rho 25 %', .995,
           (.141, .330, .543, .668, .937, .981, .989)),
    Result('AGILE, rho 50 %', None,
           (.387, .708, .939, .957, .956, .950, .947)),
    Result('AGILE, rho 100 %', None,
           (.252, .608, .847, .903, .889, .903, .876)),
)
