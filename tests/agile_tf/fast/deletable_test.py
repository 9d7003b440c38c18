"""Tests that the package trains the same agent without `agile_tf.fast`."""

import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest
import numpy as np
import pytest

from agile_tf.training import checkpoints
from tests.agile_tf import tiny

_ROOT = pathlib.Path(__file__).parents[3]
# A package that is installed in development mode would answer for what a copy
# of it lacks.
_LAUNCH = """
import runpy
import sys
sys.meta_path = [
    finder for finder in sys.meta_path
    if '__editable__' not in getattr(finder, '__module__', '')]
runpy.run_module('agile_tf.launch', run_name='__main__', alter_sys=True)
"""


class DeletableTest(absltest.TestCase):

  @pytest.mark.slow
  def test_two_updates_without_it_end_at_the_same_parameters(self):
    ends = []
    for deletes in True, False:
      copy = pathlib.Path(self.create_tempdir().full_path)
      for name in ('agile_tf', 'gridlu'):
        shutil.copytree(_ROOT / name, copy / name)
      (copy / 'launch').symlink_to(_ROOT / 'launch')  # The presets.
      if deletes:
        shutil.rmtree(copy / 'agile_tf/fast')
        builder = copy / 'agile_tf/training/building.py'
        lines = builder.read_text('utf-8').splitlines()
        kept = [line for line in lines
                if 'fast.' not in line and 'agile_tf.fast' not in line]
        # The import, the call and the comment on it.
        self.assertLen(kept, len(lines) - 3)
        builder.write_text('\n'.join(kept), 'utf-8')
      subprocess.run(
          [sys.executable, '-c', _LAUNCH,
           *tiny.flags(steps=32, log_steps=32, run_dir='run')], cwd=copy,
          env=os.environ | {'PYTHONPATH': ''}, check=True)
      ends.append(checkpoints.load(str(copy / 'run')))
    plain, fast = ends
    for group in 'policy', 'discriminator':
      slots = [name for name in plain.group(group)
               if name.endswith('mean_square')]
      self.assertTrue(any((plain.group(group)[name] != 1).any()
                          for name in slots), 'There was no update.')
    self.assertEqual(plain.arrays.keys(), fast.arrays.keys())
    for name, value in plain.arrays.items():
      np.testing.assert_allclose(
          value, fast.arrays[name], rtol=1e-3, atol=1e-5, err_msg=name)
