"""Tests for agile_tf and PyTorch in one process.

The crash needs Triton, which PyTorch's builds for GPUs bring along. A pass
without it would prove nothing.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

from absl.testing import parameterized
import pytest

import agile_tf

_MODEL = """
import numpy as np
print({load}(agile_tf.TRAINED)(
    np.zeros([1, 56, 56, 3], np.uint8),
    ["SameLocation(AGENT, Color('red', SCENE))"]).shape)
"""
_OPTIMIZER = """
import torch
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.Adam([parameter])
parameter.sum().backward()
optimizer.step()
print('updated')
"""
# Stands for Triton, and says what was there when it was imported.
_TRITON = """
import sys
print('triton after tensorflow:', 'tensorflow' in sys.modules)
"""


def _run(code, **environment):
  """Runs code in a process of its own; returns all that it prints."""
  result = subprocess.run(
      [sys.executable, '-c', code], env={**os.environ, **environment},
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
  return result.returncode, result.stdout


class TorchTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('reward_model', 'import agile_tf' + _MODEL.format(
          load='agile_tf.load_reward_model')),
      ('policy', 'import agile_tf' + _MODEL.format(
          load='agile_tf.load_policy')),
      ('worlds', 'import agile_tf; agile_tf.worlds.GridLUWorld()'),
      ('a_module', 'from agile_tf.agent import networks'),
      ('their_own_import', 'import agile_tf\nimport tensorflow'))
  @pytest.mark.skipif(
      not all(map(importlib.util.find_spec, ('torch', 'triton'))),
      reason='needs PyTorch and Triton')
  def test_torch_can_train_beside(self, code):
    status, printed = _run(
        f"{code}\nimport sys\nassert 'tensorflow' in sys.modules{_OPTIMIZER}")
    self.assertEqual((status, printed.splitlines()[-1]), (0, 'updated'),
                     printed)

  def test_triton_is_imported_before_tensorflow_can_be(self):
    # Every import of ours begins with agile_tf itself.
    status, printed = _run('import agile_tf.training.machine',
                           PYTHONPATH=self._with_triton(_TRITON))
    self.assertEqual((status, printed), (0, 'triton after tensorflow: False\n'))

  def test_one_line_says_that_tensorflow_was_first(self):
    status, printed = _run(
        'import sys\nsys.modules["tensorflow"] = sys\n'
        'import agile_tf\nimport agile_tf.config',
        PYTHONPATH=self._with_triton(_TRITON))
    self.assertEqual(status, 0, printed)
    self.assertRegex(printed, 'RuntimeWarning: .*Import agile_tf first')
    self.assertEqual(printed.count('Triton'), 1)
    self.assertNotIn('triton after', printed)

  def test_a_broken_triton_is_no_problem(self):
    self.assertEqual(_run('import agile_tf',
                          PYTHONPATH=self._with_triton('1 / 0')), (0, ''))

  def _with_triton(self, content):
    folder = self.create_tempdir()
    folder.create_file('triton.py', content=content)
    return os.pathsep.join(
        [folder.full_path, str(pathlib.Path(agile_tf.__file__).parents[1])])
