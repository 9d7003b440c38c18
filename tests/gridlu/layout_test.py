"""Tests that the imports of gridlu point one way."""

import pathlib
import sys

from absl.testing import absltest

import gridlu
from tests import imports

_PACKAGE = pathlib.Path(gridlu.__file__).parent


class LayoutTest(absltest.TestCase):

  def test_needs_no_more_than_the_readme_says(self):
    for module, names in imports.imported(_PACKAGE).items():
      roots = {name.partition('.')[0] for name in names}
      own = {'gridlu', 'numpy', 'dm_env', 'absl', 'PIL'}
      if module in ('gridlu.gym', 'gridlu.vectorized'):
        own.add('gymnasium')
      self.assertContainsSubset(roots, sys.stdlib_module_names | own, module)

  def test_no_module_imports_the_packages_init(self):
    for module, names in imports.graph(_PACKAGE).items():
      self.assertNotIn('gridlu', names, module)

  def test_imports_have_no_circle(self):
    modules = imports.graph(_PACKAGE)
    del modules['gridlu']
    self.assertIn('gridlu.world', modules['gridlu.language'])
    imports.check_no_circle(modules)

  def test_the_board_needs_no_other_module(self):
    self.assertEmpty(imports.graph(_PACKAGE)['gridlu.world'])
