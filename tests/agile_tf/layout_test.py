"""Which package may import which, and how high the house is."""

import os

from absl.testing import absltest

import agile_tf
from tests import imports

_FOLDER = os.path.dirname(agile_tf.__file__)

# By package: the packages of agile_tf that it may import besides itself. The
# programs at the top may import all of them.
_WALLS = {
    'agent': set(),
    'training': {'agent', 'config'},
    'evaluation': {'training', 'agent', 'config'},
    'reproduction': {'config'},
    'config': set(),
}
_PROGRAMS = {
    'benchmark', 'choose', 'evaluate', 'figures', 'hparams', 'judge', 'launch',
    'sweep', 'watch'}
_MOST_LEVELS = 6


def _package(module):
  """Returns the floor of a module: 'agent' for agile_tf.agent.losses."""
  return module.split('.')[1]


class LayoutTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._graph = imports.graph(_FOLDER)
    # The lazy doors of `__init__` open upwards, for users alone.
    del self._graph['agile_tf']

  def test_every_module_has_a_floor(self):
    self.assertEqual(
        {_package(module) for module in self._graph},
        _WALLS.keys() | _PROGRAMS)

  def test_packages_import_what_they_may(self):
    for module, imported in self._graph.items():
      floor = _package(module)
      for other in imported:
        if floor in _PROGRAMS:
          self.assertNotIn(
              _package(other), _PROGRAMS, f'{module} imports {other}')
        elif _package(other) != floor:
          self.assertIn(
              _package(other), _WALLS[floor], f'{module} imports {other}')

  def test_only_the_programs_read_flags(self):
    for module, names in imports.imported(_FOLDER).items():
      if 'absl.flags' in names:
        self.assertIn(module.split('.')[-1], _PROGRAMS | {'config', 'options'})

  def test_reproduction_needs_no_tensorflow(self):
    for module, names in imports.imported(_FOLDER).items():
      if module.startswith('agile_tf.reproduction'):
        for name in names:
          self.assertNotIn(name.split('.')[0], ('tensorflow', 'sonnet'))

  def test_levels(self):
    levels = imports.levels(self._graph)  # Raises at a circle.
    highest = max(levels, key=levels.__getitem__)
    self.assertLessEqual(levels[highest], _MOST_LEVELS, highest)


if __name__ == '__main__':
  absltest.main()
