"""Tests which package may import which, and how many levels there are."""

import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

import agile_tf
from tests import imports

_FOLDER = os.path.dirname(agile_tf.__file__)

# By package: the packages of agile_tf that it may import besides itself. The
# programs at the top may import all of them.
_MAY_IMPORT = {
    'agent': set(),
    'training': {'agent', 'config'},
    'evaluation': {'training', 'agent', 'config'},
    'recipe': {'training', 'agent', 'config', 'presets'},
    'reproduction': {'config'},
    'config': set(),
    'presets': set(),
}
_PROGRAMS = {
    'benchmark', 'choose', 'evaluate', 'export_networks', 'figures', 'hparams',
    'judge', 'launch', 'own_world', 'sweep', 'watch'}
# launch, run, trainer, building, workers, actors, programs, networks, modules
# and fast.convolutions.
_MOST_LEVELS = 10


def _package(module):
  """Returns the package of a module: 'agent' for agile_tf.agent.losses."""
  return module.split('.')[1]


class LayoutTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._graph = imports.graph(_FOLDER)
    # `agile_tf/__init__.py` may import any package, lazily, for users.
    del self._graph['agile_tf']

  def test_every_module_is_in_a_package(self):
    self.assertEqual(
        {_package(module) for module in self._graph},
        _MAY_IMPORT.keys() | _PROGRAMS)

  def test_packages_import_what_they_may(self):
    for module, imported in self._graph.items():
      imported = imported - {'agile_tf'}  # A door for users, and an example.
      package = _package(module)
      for other in imported:
        if package in _PROGRAMS:
          self.assertNotIn(
              _package(other), _PROGRAMS, f'{module} imports {other}')
        elif _package(other) != package:
          self.assertIn(
              _package(other), _MAY_IMPORT[package],
              f'{module} imports {other}')

  def test_programs_can_be_imported_without_tensorflow(self):
    # Then --help and wrong flags are answered at once.
    subprocess.run(
        [sys.executable, '-c', '\n'.join([
            'import sys', *(f'import agile_tf.{name}' for name in _PROGRAMS),
            "assert 'tensorflow' not in sys.modules"])], check=True)

  def test_runs_without_a_recipe_are_compared_with_its_defaults(self):
    self.assertIn('agile_tf.recipe.settings', self._graph['agile_tf.figures'])

  def test_the_paper_knows_nothing_of_the_recipe(self):
    words = re.compile(
        'anneal|mismatch|displac|imitat|demonstrat|adam|averag|head.start',
        re.IGNORECASE)
    for path in pathlib.Path(_FOLDER, 'agent').rglob('*.py'):
      for line in path.read_text('utf-8').splitlines():
        self.assertIsNone(words.search(line), f'{path}: {line}')

  def test_only_the_programs_read_flags(self):
    for module, names in imports.imported(_FOLDER).items():
      if 'absl.flags' in names:
        self.assertIn(module.split('.')[-1],
                      _PROGRAMS | {'config', 'options', 'presets'})

  def test_reproduction_needs_no_tensorflow(self):
    for module, names in imports.imported(_FOLDER).items():
      if module.startswith('agile_tf.reproduction'):
        for name in names:
          self.assertNotIn(name.split('.')[0], ('tensorflow', 'sonnet'))

  def test_levels(self):
    levels = imports.levels(self._graph)  # Raises at a circle.
    highest = max(levels, key=levels.__getitem__)
    self.assertLessEqual(levels[highest], _MOST_LEVELS, highest)
