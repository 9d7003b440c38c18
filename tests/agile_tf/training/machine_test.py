"""Tests for agile_tf.training.machine, without TensorFlow."""

import subprocess
import sys
import textwrap

from absl.testing import absltest


class ImportTest(absltest.TestCase):

  def test_shows_what_an_import_prints_only_if_it_fails(self):
    folder = self.create_tempdir()
    for problem, shown in ('', ''), ('raise ImportError("no AVX")', 'a note'):
      folder.create_file('tensorflow.py', textwrap.dedent(f"""
          import os
          os.write(2, b'a note')
          {problem}
      """))
      result = subprocess.run(
          [sys.executable, '-c', textwrap.dedent(f"""
              import sys
              from agile_tf.training import machine
              sys.path.insert(0, {folder.full_path!r})
              print(machine.import_tensorflow().__file__)
          """)], capture_output=True, text=True, check=False)
      self.assertEqual(result.returncode, int(bool(problem)))
      self.assertEqual(result.stdout == '', bool(problem))
      self.assertStartsWith(result.stderr, shown)
      self.assertEqual('ImportError: no AVX' in result.stderr, bool(problem))
      self.assertEqual('a note' in result.stderr, bool(problem))


if __name__ == '__main__':
  absltest.main()
