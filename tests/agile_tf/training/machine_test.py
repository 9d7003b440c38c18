"""Tests for agile_tf.training.machine, without TensorFlow."""

import os
import pathlib
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest

from agile_tf.training import machine


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


class KeepProgramsTest(absltest.TestCase):
  """`launch_process_test` has XLA itself."""

  def setUp(self):
    super().setUp()
    self._cache = pathlib.Path(self.create_tempdir().full_path)
    self.enter_context(mock.patch.dict(
        os.environ, XDG_CACHE_HOME=str(self._cache), TF_XLA_FLAGS='--one'))

  def _folder(self, threads=2):
    """Returns the directory that XLA is told to use."""
    with mock.patch.dict(os.environ):
      machine.keep_programs(threads)
      option, = [word for word in os.environ['TF_XLA_FLAGS'].split()
                 if 'directory' in word]
    return pathlib.Path(option.partition('=')[2].strip("'"))

  def test_other_processors_threads_and_versions_have_their_own(self):
    here = self._folder()
    self.assertEqual(self._folder(), here)
    self.assertEqual(here.stat().st_mode & 0o777, 0o700)
    with mock.patch.object(machine, '_processor', return_value='another'):
      others = {self._folder()}
    with mock.patch.object(
        machine.importlib.metadata, 'version', return_value='0'):
      others.add(self._folder())
    self.assertLen(others | {here, self._folder(3)}, 4)

  def test_old_and_damaged_programs_are_removed(self):
    good, old, empty, damaged, unfinished = (
        self._folder() / name
        for name in ('a.pb', 'b.pb', 'c.pb', 'd.pb', 'e.pb.tmp'))
    for path in good, old, damaged:
      path.write_bytes(b'program')
    for path in empty, unfinished:
      path.touch()
    os.utime(old, times=(0, 0))
    self._folder()
    damaged.write_bytes(b'progrbm')
    self.assertCountEqual(
        self._folder().glob('*.pb*'),
        [good, good.with_suffix('.pb.sha256'), unfinished])

  def test_none_where_nothing_can_be_written_or_the_user_has_one(self):
    theirs = '--tf_xla_persistent_cache_directory='
    for variables in (dict(XDG_CACHE_HOME=self.create_tempfile().full_path),
                      dict(TF_XLA_FLAGS=theirs)):
      with mock.patch.dict(os.environ, variables):
        before = os.environ['TF_XLA_FLAGS']
        machine.keep_programs(2)
        self.assertEqual(os.environ['TF_XLA_FLAGS'], before)
