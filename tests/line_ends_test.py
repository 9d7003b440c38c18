"""Tests that no clone changes the ends of lines, as Git for Windows would."""

import os
import pathlib
import shutil
import subprocess

from absl.testing import absltest
import pytest

_ROOT = pathlib.Path(__file__).parents[1]


class LineEndsTest(absltest.TestCase):

  @pytest.mark.skipif(
      not (shutil.which('git') and (_ROOT / '.git').exists()),
      reason='It needs Git and the repository.')
  def test_a_clone_with_the_settings_of_windows_is_the_same(self):
    clone = os.path.join(self.create_tempdir().full_path, 'clone')
    subprocess.run(
        ['git', 'clone', '-q', '-c', 'core.autocrlf=true', '--depth=1',
         f'file://{_ROOT}', clone], check=True)
    for path in pathlib.Path(clone).glob('launch/results/trained*/**/*'):
      if path.suffix in ('.json', '.npz', '.csv'):
        self.assertEqual(
            path.read_bytes(),
            (_ROOT / path.relative_to(clone)).read_bytes(), path)
    self.assertNotIn(
        b'\r', pathlib.Path(clone, 'launch/quickstart.flags').read_bytes())
