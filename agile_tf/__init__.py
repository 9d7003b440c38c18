"""AGILE: an agent that learns to follow instructions from a learned reward.

The system of "Learning to Understand Goal Specifications by Modelling Reward"
(Bahdanau et al., ICLR 2019) in TensorFlow 2 and Sonnet 2. README.md beside
this file is the map of the packages. Everything that a program of your own
needs is an attribute of this package.

These functions load what a run has learned:

  reward_model = agile_tf.load_reward_model(run_dir)
  probabilities = reward_model(images, instructions)   # float32 [N]

  policy = agile_tf.load_policy(run_dir, seed=0)
  actions = policy(images, instructions)               # int32 [N], samples

With backend='numpy' they need no TensorFlow, and other processes may use them.

This reward model learns from goal examples while a policy of yours learns:

  learner = agile_tf.RewardLearner((goal_images, goal_instructions))
  rewards = learner.rewards(images, instructions)      # float32 [N]

With model=agile_tf.overlapping.make its images need no grid of 8x8 pixels.

The run of the trained agent that comes with the package is agile_tf.TRAINED.

Two wrappers change the rewards of Gymnasium environments. The first gives an
environment the decisions of this run's reward model. The second gives many
environments the rewards of a learner, which goes on learning from their states:

  agile_tf.LearnedReward(environment, agile_tf.TRAINED)
  agile_tf.LearnedVectorReward(environments, learner, states_per_update=240)

These make the world that a function of --world=package.module:function returns
of an environment of your own, which is one of dm_env or Gymnasium:

  agile_tf.worlds.from_environment(make_environment, goal_examples, ...)
  agile_tf.worlds.from_gymnasium(make_environment, goal_examples, ...)
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING
import warnings

import gridlu

if sys.platform == 'win32':
  raise ImportError(
      'agile_tf does not run on Windows. Use Linux, or the Windows Subsystem '
      'for Linux (WSL). gridlu runs without it.')

__version__ = gridlu.__version__

# This must be set before TensorFlow is imported. Real errors are exceptions.
# What TensorFlow prints as errors is, for example, that there is no GPU, or
# that a kept program was compiled for features that no processor has.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# Otherwise the first process on a GPU takes all of its memory.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')


def _import_triton() -> None:
  """Imports PyTorch's compiler, if it is installed, before TensorFlow.

  In the other order PyTorch's optimisers end the process by a segmentation
  fault (seen with TensorFlow 2.21, PyTorch 2.14 and Triton 3.8).
  """
  if 'triton' in sys.modules or importlib.util.find_spec('triton') is None:
    return
  if 'tensorflow' in sys.modules:
    warnings.warn(
        'TensorFlow was imported before Triton, so PyTorch can end this '
        'process by a segmentation fault. Import agile_tf first, also before '
        'what imports TensorFlow, such as stable_baselines3.', RuntimeWarning,
        stacklevel=3)
    return
  # A broken Triton is PyTorch's problem.
  with contextlib.suppress(Exception):
    importlib.import_module('triton')


_import_triton()

# This is the directory of the trained agent. An installed package has a copy.
TRAINED = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'trained')
if not os.path.isdir(TRAINED):
  TRAINED = os.path.join(
      os.path.dirname(os.path.dirname(TRAINED)), 'launch', 'results', 'trained')

if TYPE_CHECKING:
  from agile_tf import overlapping
  from agile_tf import worlds
  from agile_tf.evaluation.loading import load_policy
  from agile_tf.evaluation.loading import load_reward_model
  from agile_tf.rewarding.environments import LearnedReward as LearnedReward
  from agile_tf.rewarding.environments import (
    LearnedVectorReward as LearnedVectorReward,
  )
  from agile_tf.rewarding.learner import RewardLearner

_HOMES = {'LearnedReward': 'agile_tf.rewarding.environments',
          'LearnedVectorReward': 'agile_tf.rewarding.environments',
          'RewardLearner': 'agile_tf.rewarding.learner',
          'load_policy': 'agile_tf.evaluation.loading',
          'load_reward_model': 'agile_tf.evaluation.loading'}
# Those of rewarding.environments are left out, because they need Gymnasium, and
# `from agile_tf import *` would import them.
__all__ = ('RewardLearner', 'TRAINED', 'load_policy', 'load_reward_model',
           'overlapping', 'worlds')
_MODULES = 'overlapping', 'worlds'  # They import TensorFlow.


def __getattr__(name: str):
  """Imports what is asked for; some of it needs TensorFlow at once."""
  if name in (*_MODULES, 'RewardLearner'):
    importlib.import_module('agile_tf.training.machine').import_tensorflow()
  if name in _MODULES:
    return importlib.import_module(f'agile_tf.{name}')
  if name not in _HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
  return sorted({*globals(), *_HOMES, *_MODULES})
