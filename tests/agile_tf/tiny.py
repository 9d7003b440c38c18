"""A run that is small enough for a test."""

from collections.abc import Iterator
import glob
import os
import tempfile
from typing import Any

from absl import flags as absl_flags
from absl.testing import absltest
import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf import records
from agile_tf.recipe import settings
from agile_tf.recipe import variations
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import run as run_lib
from agile_tf.training import train
from agile_tf.training import trainer as trainer_lib


def flags(**changes) -> list[str]:
  """Returns the flags of a tiny AGILE run.

  Runs with the same shapes share their compiled programs; see building.py.
  """
  settings = dict(
      policy_workers=2, policy_threads=1, episode_length=4, rollout_length=2,
      instructions='SameLocation.*AGENT', batch_size=4, replay_size=64,
      anticipated_negative_rate=0.5, steps_per_discriminator_update=8,
      dataset_size=32, reward_prediction=True,
      reward_prediction_replay_size=32, reward_prediction_batch_size=2,
      steps=64, log_steps=16)
  return [f'--{name}={value}' for name, value in (settings | changes).items()]


def config(**changes) -> config_lib.Config:
  """Returns the settings of a tiny AGILE run."""
  return read(flags(**changes))


def read(arguments: list[str]) -> config_lib.Config:
  """Returns the settings that agile_tf.launch reads from its arguments."""
  return read_plan(arguments).config


def read_all(arguments: list[str]) -> dict[str, Any]:
  """Returns all settings by name, with those of the recipe."""
  return read_plan(arguments).settings


def plan(**changes) -> building.Plan:
  """Returns a tiny AGILE run to build, with the recipe's settings too."""
  return read_plan(flags(**changes))


def read_plan(arguments: list[str]) -> building.Plan:
  """Returns what agile_tf.launch makes of its arguments."""
  values = absl_flags.FlagValues()
  config_lib.define_flags(config_lib.Config, values)
  config_lib.define_flags(settings.Recipe, values)
  values(['launch', *presets.expand(arguments)])
  config = config_lib.from_flags(values)
  recipe = config_lib.from_flags(values, settings.Recipe)
  return building.Plan(config, variations.make(config, recipe), recipe)


def drive(trainer: trainer_lib.Trainer) -> None:
  """Iterates a run's workers until it is over."""
  train.loop(trainer.schedule, trainer.crew, lambda: None)


def _folder(test_class: type[absltest.TestCase]) -> str:
  """Makes a directory that all tests of a class share."""
  folder = tempfile.TemporaryDirectory()
  test_class.addClassCleanup(folder.cleanup)
  return folder.name


def save_for(test_class: type[absltest.TestCase], **changes) -> str:
  """Saves a run before its first step, for all tests of a class.

  Networks as they are initialised will do where a run is played or judged, and
  nothing of training is compiled.
  """
  run_dir = _folder(test_class)
  _, run = run_lib.build(
      plan(run_dir=run_dir, **changes), lambda: None)
  run.save()
  run.close()
  return run_dir


class SavedRunTest(absltest.TestCase):
  """Tests that share a run as `save_for` saves it, with these `changes`."""
  changes: dict[str, Any] = {}

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = save_for(cls, **cls.changes)


def summaries(run_dir: str) -> Iterator[tuple[int, Any]]:
  """Yields what TensorBoard shows of a run: steps and values."""
  for path in glob.glob(os.path.join(run_dir, 'events*')):
    for event in tf.compat.v1.train.summary_iterator(path):
      for value in event.summary.value:
        yield event.step, value


def rows(run_dir: str) -> list[dict[str, str]]:
  """Returns the rows of a run's metrics.csv."""
  return records.rows(os.path.join(run_dir, 'metrics.csv'))


def assert_equal_arrays(one: checkpoints.Checkpoint,
                        other: checkpoints.Checkpoint) -> None:
  """Asserts that two checkpoints have the same arrays, bit for bit."""
  assert one.arrays.keys() == other.arrays.keys()
  for name, value in one.arrays.items():
    there = other.arrays[name]
    np.testing.assert_array_equal(value, there, name, strict=True)
    assert value.tobytes() == there.tobytes(), name  # Also the sign of 0.


def train_for(test_class: type[absltest.TestCase], **changes) -> str:
  """Trains once for all tests of a class; returns the run's directory."""
  run_dir = _folder(test_class)
  train.train(plan(run_dir=run_dir, **changes))
  return run_dir
