"""Tests that the imports of gridlu point one way."""

import pathlib

from absl.testing import absltest

import gridlu
from tests import imports

_PACKAGE = pathlib.Path(gridlu.__file__).parent
_MOST_LEVELS = 7


class LayoutTest(absltest.TestCase):

  def test_knows_neither_tensorflow_nor_the_agent(self):
    for module, names in imports.imported(_PACKAGE).items():
      roots = {name.partition('.')[0] for name in names}
      self.assertNoCommonElements(
          roots, {'agile_tf', 'tensorflow', 'sonnet', 'tests'}, module)

  def test_no_module_imports_the_packages_init(self):
    for module, names in imports.graph(_PACKAGE).items():
      self.assertNotIn('gridlu', names, module)

  def test_has_few_levels_and_no_circle(self):
    modules = imports.graph(_PACKAGE)
    del modules['gridlu']
    self.assertIn('gridlu.world', modules['gridlu.language'])
    levels = imports.levels(modules)
    self.assertEqual(levels['gridlu.world'], 1)
    self.assertLessEqual(max(levels.values()), _MOST_LEVELS, levels)
