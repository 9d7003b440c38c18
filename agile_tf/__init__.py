"""AGILE: an agent that learns to follow instructions from a learned reward.

The system of "Learning to Understand Goal Specifications by Modelling Reward"
(Bahdanau et al., ICLR 2019) in TensorFlow 2 and Sonnet 2. README.md beside
this file is the map of the packages. Everything that a program of your own
needs is an attribute of this package.

What a run has learned, as functions:

  reward_model = agile_tf.load_reward_model(run_dir)
  probabilities = reward_model(images, instructions)   # float32 [N]

  policy = agile_tf.load_policy(run_dir)
  actions = policy(images, instructions)               # int32 [N]

An environment of your own, for --world=package.module:function:

  agile_tf.worlds.from_environment(make_environment, goal_examples, ...)
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

import gridlu

if sys.platform == 'win32':
  raise ImportError(
      'agile_tf does not run on Windows. Use Linux, or the Windows Subsystem '
      'for Linux (WSL). gridlu runs without it.')

__version__ = gridlu.__version__

# Must be set before TensorFlow is imported. Real errors are exceptions. What it
# prints as errors is, for example, that there is no GPU, or that a kept program
# was compiled with options that no processor has.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

if TYPE_CHECKING:
  from agile_tf.agent import worlds
  from agile_tf.evaluation.trained import load_policy
  from agile_tf.evaluation.trained import load_reward_model

__all__ = ('load_policy', 'load_reward_model', 'worlds')


def __getattr__(name: str):
  """Imports TensorFlow only when a network or a world is asked for."""
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  importlib.import_module('agile_tf.training.machine').import_tensorflow()
  if name == 'worlds':
    return importlib.import_module('agile_tf.agent.worlds')
  return getattr(importlib.import_module('agile_tf.evaluation.trained'), name)
