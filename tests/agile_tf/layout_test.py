"""Tests which package may import which."""

import os
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
    'fast': {'agent'},
    'worlds': {'agent', 'named', 'readings'},
    'training': {
        'agent', 'worlds', 'code_checks', 'config', 'fast', 'named', 'records',
        'stopping'},
    'evaluation': {
        'training', 'worlds', 'recipe', 'agent', 'code_checks', 'config',
        'numpy_networks'},
    'recipe': {'agent', 'config', 'presets'},
    'reproduction': {'recipe', 'config', 'records', 'stopping'},
    'rewarding': {
        'evaluation', 'training', 'worlds', 'recipe', 'agent', 'config',
        'named', 'readings'},
    'code_checks': {'config'},
    'config': {'records'},
    'named': set(),
    'numpy_networks': set(),
    'overlapping': {'agent'},
    'presets': set(),
    'records': set(),
    'readings': set(),
    'stopping': set(),
}
_PROGRAMS = {
    'benchmark', 'choose', 'demo', 'evaluate', 'export_networks', 'figures',
    'hparams', 'judge', 'launch', 'own_world', 'picture_goals', 'sweep',
    'watch'}


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

  def test_only_programs_vary_a_run_by_the_recipe(self):
    """Other packages may read its settings, which a run has saved."""
    for module, imported in self._graph.items():
      # A `RewardLearner` has some of the recipe's settings.
      if _package(module) not in _PROGRAMS | {'recipe', 'rewarding'}:
        self.assertLessEqual(
            {other for other in imported if _package(f'{other}.') == 'recipe'},
            {'agile_tf.recipe.settings'}, module)

  def test_tab_completion_has_what_is_imported_late(self):
    self.assertContainsSubset(
        {'LearnedReward', 'LearnedVectorReward', 'RewardLearner', 'TRAINED',
         'load_policy', 'load_reward_model', 'overlapping', 'worlds'},
        dir(agile_tf))

  def test_only_the_programs_read_flags(self):
    for module, names in imports.imported(_FOLDER).items():
      if 'absl.flags' in names:
        self.assertIn(module.split('.')[-1], _PROGRAMS | {
            'babyai', 'config', 'options', 'presets',
            'named'})  # It explains the errors of flags.

  def test_reproduction_needs_no_tensorflow(self):
    for module, names in imports.imported(_FOLDER).items():
      if module.startswith('agile_tf.reproduction'):
        for name in names:
          self.assertNotIn(name.split('.')[0], ('tensorflow', 'sonnet'))

  def test_imports_have_no_circle(self):
    imports.check_no_circle(self._graph)
