"""Tests for tests.imports."""

import graphlib
import os
import pathlib
import textwrap

from absl.testing import absltest

from tests import imports


class ImportsTest(absltest.TestCase):

  def _package(self, **files):
    folder = os.path.join(self.create_tempdir().full_path, 'house')
    for name, text in {'__init__': '', **files}.items():
      path = os.path.join(folder, *name.split('__in__')) + '.py'
      os.makedirs(os.path.dirname(path), exist_ok=True)
      pathlib.Path(path).write_text(textwrap.dedent(text), 'utf-8')
    return folder

  def test_imports_are_found_wherever_they_stand(self):
    folder = self._package(
        __init__='from house import roof',
        ground='import os\nimport tensorflow as tf',
        cellar__in__wine='import house.ground',
        floor="""
            def name():
              from house import ground as below
              from house.cellar import SIZE, wine
            """,
        cellar__in____init__='SIZE = 1',
        roof='from house.floor import name')
    self.assertEqual(imports.imported(folder)['house.ground'],
                     {'os', 'tensorflow'})
    graph = imports.graph(folder)
    self.assertEqual(graph, {
        'house': {'house.roof'},
        'house.ground': set(),
        'house.cellar': set(),
        'house.cellar.wine': {'house.ground'},
        'house.floor': {'house.ground', 'house.cellar', 'house.cellar.wine'},
        'house.roof': {'house.floor'}})

  def test_a_circle_of_imports_is_an_error(self):
    graph = {'house.roof': {'house.floor', 'house'}, 'house.floor': set()}
    imports.check_no_circle(graph)
    with self.assertRaises(graphlib.CycleError):
      imports.check_no_circle(graph | {'house.floor': {'house.roof'}})

  def test_relative_imports_are_refused(self):
    folder = self._package(ground='from . import floor')
    with self.assertRaisesRegex(ValueError, r'ground.py:1: a relative import'):
      imports.graph(folder)
