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

The run of the trained agent that comes with the package is agile_tf.TRAINED.
Its decisions as the reward of a Gymnasium environment of gridlu.gym:

  agile_tf.LearnedReward(environment, agile_tf.TRAINED)

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
# Otherwise the first process on a GPU takes all of its memory.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')

# The directory of the trained agent. An installed package has a copy.
TRAINED = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'trained')
if not os.path.isdir(TRAINED):
  TRAINED = os.path.join(
      os.path.dirname(os.path.dirname(TRAINED)), 'launch', 'results', 'trained')

if TYPE_CHECKING:
  from agile_tf.agent import worlds
  from agile_tf.evaluation.learned_reward import LearnedReward as LearnedReward
  from agile_tf.evaluation.trained import load_policy
  from agile_tf.evaluation.trained import load_reward_model

_HOMES = {'LearnedReward': 'agile_tf.evaluation.learned_reward',
          'load_policy': 'agile_tf.evaluation.trained',
          'load_reward_model': 'agile_tf.evaluation.trained'}
# LearnedReward is not in it, because it needs Gymnasium.
__all__ = ('TRAINED', 'load_policy', 'load_reward_model', 'worlds')


def __getattr__(name: str):
  """Imports TensorFlow only when a network or a world is asked for."""
  if name not in (*_HOMES, 'worlds'):
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  importlib.import_module('agile_tf.training.machine').import_tensorflow()
  if name == 'worlds':
    return importlib.import_module('agile_tf.agent.worlds')
  return getattr(importlib.import_module(_HOMES[name]), name)
