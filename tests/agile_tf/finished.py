"""Invented runs, for the tests of figures and tables."""

import numpy as np

from agile_tf import config as config_lib
from agile_tf.reproduction import results


def run(name='relations', seed=0, instructions='', changes=None, **columns
       ) -> results.Run:
  """Returns a run with these columns and a row every ten steps.

  Args:
    name: Of its variant.
    seed: Its seed.
    instructions: Its --instructions.
    changes: Other settings of its configuration.
    **columns: Of its metrics.
  """
  count = len(next(iter(columns.values())))
  columns = {'steps': 10 * np.arange(1, count + 1)} | columns
  return results.Run(
      f'{name}_seed{seed}', name, seed,
      {key: np.array(value, float) for key, value in columns.items()}, {},
      config_lib.Config(instructions=instructions, **(changes or {})))
