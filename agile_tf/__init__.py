"""AGILE: an agent that learns to follow instructions from a learned reward.

The system of "Learning to Understand Goal Specifications by Modelling Reward"
(Bahdanau et al., ICLR 2019) in TensorFlow 2 and Sonnet 2. What a run leaves
behind is used through two functions:

  reward_model = agile_tf.load_reward_model(run_dir)
  probabilities = reward_model(images, instructions)   # float32 [N]

  policy = agile_tf.load_policy(run_dir)
  actions = policy(images, instructions)               # int32 [N]
"""

import os
from typing import TYPE_CHECKING

# Before TensorFlow is imported: its notes on the machine, a dozen lines at
# every start, would hide the programs' own. Errors still show.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

if TYPE_CHECKING:
  from agile_tf.trained import load_policy
  from agile_tf.trained import load_reward_model

__all__ = ('load_policy', 'load_reward_model')


def __getattr__(name: str):
  """Imports TensorFlow only for those who load a network."""
  if name in __all__:
    from agile_tf import trained  # pylint: disable=g-import-not-at-top
    return getattr(trained, name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
