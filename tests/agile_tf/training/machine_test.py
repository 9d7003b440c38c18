"""Tests for agile_tf.training.machine."""

import io
import os
import pathlib
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import optimizers
from agile_tf.agent import parameters
from agile_tf.agent import programs
from agile_tf.evaluation import trained
from agile_tf.training import machine


class ImportTest(parameterized.TestCase):

  def test_importing_the_agent_computes_nothing(self):
    # Otherwise `machine.prepare` could not choose devices and threads any more.
    subprocess.run([sys.executable, '-c', textwrap.dedent("""
        from agile_tf.training import building
        from tensorflow.python.eager import context
        assert building and context.context()._context_handle is None
        """)], check=True)

  def test_runs_of_a_process_are_not_called_retracing(self):
    class Others:

      @tf.function(autograph=False)
      def double(self, x):
        return 2 * x

    machine.import_tensorflow()
    layout = parameters.Layout(['w'], [[2, 2]])
    with self.assertLogs('tensorflow', 'WARNING') as logs:
      for _ in range(8):  # As many runs, one after the other.
        optimizers.SharedParameters(
            layout, tf.zeros([4]), optimizers.rmsprop(.9, .1), 1.0
            ).update(.1, tf.ones([4]))
        Others().double(tf.ones([]))
    self.assertIn('Others.double', logs.output[0])  # It is a user's.
    self.assertNotIn('SharedParameters', ''.join(logs.output))
    self.assertIsNotNone(trained._Network)  # As machine calls it.
    self.assertIsNotNone(programs.PolicyPrograms)
    self.assertIsNotNone(programs.DiscriminatorPrograms)

  @parameterized.parameters(('pass', 0), ('raise ImportError("no AVX")', 1))
  def test_shows_what_an_import_prints_only_if_it_fails(self, end, code):
    folder = self.create_tempdir()
    folder.create_file(
        'tensorflow.py', f"import os\nos.write(2, b'a note')\n{end}\n")
    result = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(f"""
            import sys
            from agile_tf.training import machine
            sys.path.insert(0, {folder.full_path!r})
            print(machine.import_tensorflow().__file__)
        """)], capture_output=True, text=True, check=False,
        env=os.environ | {'PATH': folder.full_path})  # It has no program.
    self.assertEqual(result.returncode, code)
    self.assertEqual(result.stdout == '', bool(code))
    self.assertStartsWith(result.stderr, 'a note' if code else '')
    self.assertEqual('a note' in result.stderr, bool(code))
    self.assertEqual('ImportError: no AVX' in result.stderr, 'AVX' in end)

  def test_what_the_program_logs_during_an_import_is_seen_at_once(self):
    result = subprocess.run([sys.executable, '-c', textwrap.dedent("""
        import os
        from absl import flags
        from absl import logging
        from agile_tf.training import machine
        flags.FLAGS.mark_as_parsed()
        logging.use_absl_handler()
        logging.set_verbosity(logging.INFO)
        with machine._silence():
          os.write(2, b'a note')
        logging.info('before')
        with machine._silence():
          os.write(2, b'a note')
          logging.info('stopping')
          os._exit(3)
    """)], capture_output=True, text=True, check=False)
    self.assertEqual(result.returncode, 3)
    self.assertNotIn('a note', result.stderr)
    self.assertRegex(result.stderr, r'before\n.*stopping\n$')

  def test_a_file_system_that_is_read_only_is_no_error(self):
    error = FileNotFoundError('No usable temporary directory found')
    with (mock.patch.object(
        machine.tempfile, 'TemporaryFile', side_effect=error),
          machine._silence()):
      pass


class LimitsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('0::/a/b', {'a/memory.max': '1073741824', 'a/b/memory.max': 'max',
                   'a/b/cpu.max': 'max 100000', 'a/cpu.max': '150000 100000'}),
      ('0::/a/b', {'a/b/memory.max': '1073741824', 'memory.max': '9999999999',
                   'a/cpu.max': '200000 100000', 'a/b/cpu.max': '9 1'}),
      ('0::/a/b', {'memory.max': '1073741824', 'cpu.max': '110000 100000'}),
      ('5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/', {
          'memory/a/memory.limit_in_bytes': '1073741824',
          'memory/a/b/memory.limit_in_bytes': '9223372036854771712',
          'cpu/cpu.cfs_quota_us': '-1', 'cpu/cpu.cfs_period_us': '100000',
          'cpu/a/cpu.cfs_quota_us': '150000',
          'cpu/a/cpu.cfs_period_us': '100000'}))
  def test_the_smallest_on_the_path_to_the_root_holds(self, own, limits):
    there = {f'/sys/fs/cgroup/{name}': text for name, text in limits.items()}
    there['/proc/self/cgroup'] = own

    def fake(path, **_):
      try:
        return io.StringIO(there[os.path.normpath(path)] + '\n')
      except KeyError:
        raise FileNotFoundError(path) from None

    with (mock.patch('builtins.open', fake),
          mock.patch.object(os, 'sched_getaffinity', return_value=range(64))):
      self.assertEqual(machine.memory(), 2**30)
      self.assertEqual(machine.cores(), 2)
      there.clear()
      self.assertEqual(machine.cores(), 64)
      self.assertGreater(machine.memory(), 2**28)


class ThreadsTest(parameterized.TestCase):

  @parameterized.parameters('x', '-1', '1.5', '10001', 20 * '9', 5000 * '9')
  def test_a_number_of_threads_that_cannot_be_is_named(self, value):
    with (mock.patch.dict(os.environ, TF_NUM_INTRAOP_THREADS=value),
          self.assertRaisesRegex(
              config_lib.ConfigError,
              f"TF_NUM_INTRAOP_THREADS is '{value[:50]}.*expected a number "
              'from 0 to 10,000')):
      machine.prepare(config_lib.Config())


class MemoryTest(absltest.TestCase):

  @pytest.mark.slow
  def test_a_program_gets_the_same_memory_again(self):
    # Pages of 4 kB that the system gives the process, for a product of 80 MB.
    code = """
import resource
from agile_tf import config
from agile_tf.training import machine
machine.prepare(config.Config())
import tensorflow as tf
program = tf.function(
    lambda x: x @ tf.transpose(x) @ x, jit_compile=True)
for _ in range(3):
  program(tf.ones([4_500, 1])).numpy()
pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = pages()
program(tf.ones([4_500, 1])).numpy()
print(pages() - before)"""
    pages = subprocess.run(
        [sys.executable, '-c', code], check=True, capture_output=True,
        env={**os.environ, 'TF_ENABLE_ONEDNN_OPTS': '0'}).stdout
    self.assertLess(int(pages), 2_000)  # 80 MB have 20,000.


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

  def test_old_and_empty_programs_are_removed(self):
    good, old, empty, unfinished, old_unfinished = (
        self._folder() / name
        for name in ('a.pb', 'b.pb', 'c.pb', 'd.pb.tmp', 'e.pb.tmp'))
    for path in good, old, old_unfinished:
      path.write_bytes(b'program')
    for path in empty, unfinished:
      path.touch()
    for path in old, old_unfinished:
      os.utime(path, times=(0, 0))
    self.assertCountEqual(self._folder().glob('*'), [good, unfinished])

  def test_none_where_nothing_can_be_written_or_the_user_has_one(self):
    theirs = '--tf_xla_persistent_cache_directory='
    for variables in (dict(XDG_CACHE_HOME=self.create_tempfile().full_path),
                      dict(TF_XLA_FLAGS=theirs)):
      with mock.patch.dict(os.environ, variables):
        before = os.environ['TF_XLA_FLAGS']
        machine.keep_programs(2)
        self.assertEqual(os.environ['TF_XLA_FLAGS'], before)
