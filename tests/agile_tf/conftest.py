"""Runs of the same settings share their compiled programs within a process.

These are pure functions from tensors to tensors, and XLA takes seconds for
each; a run makes them anew because it is made once.
"""

import functools

import pytest
import tensorflow as tf

from agile_tf.agent import networks
from agile_tf.agent import programs
from agile_tf.recipe import averaging
from agile_tf.recipe import builder
from agile_tf.recipe import mismatched
from agile_tf.training import building

# A second CPU device, for the tests of runs on several.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 2)

_OF_WORLD = (
    'world', 'instructions', 'held_out', 'held_out_share', 'held_out_seed',
    'physics', 'episode_length', 'solved_starts', 'truncate')


def _shared_worlds(make):
  worlds = {}

  def make_world(config, held_out=False, only=''):
    key = (*(getattr(config, name) for name in _OF_WORLD), held_out, only)
    if config.world != 'relations' or key not in worlds:
      worlds[key] = make(config, held_out, only)
    return worlds[key]

  return make_world


@pytest.fixture(scope='session', autouse=True)
def shared_programs():
  """Keeps what was made for the next run that needs the same."""
  patch = pytest.MonkeyPatch()
  patch.setattr(building, 'make_world', _shared_worlds(building.make_world))
  for module, name in (
      (networks, 'make'),
      (programs, 'Programs'), (mismatched, 'Programs'),
      (averaging, 'AveragedPrograms'), (builder, '_AveragedPrograms')):
    patch.setattr(module, name, functools.cache(getattr(module, name)))
  patch.setattr(building.Builder, 'programs', staticmethod(programs.Programs))
  yield
  patch.undo()
