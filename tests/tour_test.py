"""Tests for the notebook, launch/tour.ipynb."""

import pathlib

from absl.testing import absltest
import nbclient
import nbformat
import pytest

_PATH = pathlib.Path(__file__).parent.parent / 'launch/tour.ipynb'


def _kinds(notebook):
  """Returns what each code cell shows, but not what TensorFlow logs."""
  return [
      [sorted(output.get('data', ['text'])) for output in cell.outputs
       if output.get('name') != 'stderr']
      for cell in notebook.cells if cell.cell_type == 'code']


class TourTest(absltest.TestCase):

  @pytest.mark.slow
  def test_runs_and_shows_what_it_was_saved_with(self):
    notebook = nbformat.read(_PATH, nbformat.NO_CONVERT)
    saved = _kinds(notebook)
    self.assertTrue(any('image/png' in kinds for kinds in sum(saved, [])))
    # An error in a cell is raised.
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name='python3',
        # It may be opened in any folder.
        resources={'metadata': {'path': self.create_tempdir().full_path}}
        ).execute()
    self.assertEqual(_kinds(notebook), saved)
