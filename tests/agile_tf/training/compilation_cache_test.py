"""Tests for agile_tf.training.compilation_cache.

`_compile` writes as XLA does. tests/agile_tf/launch_process_test.py has
XLA itself.
"""

import os
import pathlib
import shutil
import socket
import tempfile
from unittest import mock

from absl.testing import absltest

from agile_tf.training import compilation_cache

_PROGRAM = 'xla_compile_cache__1__2__XLA_CPU_JIT.pb'


def _compile(cache, name=_PROGRAM, content=b'program'):
  path = pathlib.Path(cache.folder, name)
  path.with_suffix('.tmp').write_bytes(content)
  os.replace(path.with_suffix('.tmp'), path)


def _programs(cache):
  return {path.name: path.read_bytes()
          for path in pathlib.Path(cache.folder).iterdir()}


class CompilationCacheTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self._caches = []
    self.addCleanup(lambda: [cache.close() for cache in self._caches])

  def _cache(self, name='here', root=None):
    self._caches.append(compilation_cache.Cache(root or self.root, name))
    return self._caches[-1]

  def _kept(self):
    return [path for path in pathlib.Path(self.root).rglob('*')
            if path.is_file()]

  def test_a_later_process_has_the_programs_of_an_earlier_one(self):
    first = self._cache()
    self.assertEmpty(_programs(first))
    _compile(first)
    first.close()
    self.assertFalse(os.path.exists(first.folder))
    second = self._cache()
    self.assertEqual(_programs(second), {_PROGRAM: b'program'})
    second.close()
    self.assertLen(self._kept(), 1)

  def test_processes_at_the_same_time_do_not_disturb_each_other(self):
    first, second = self._cache(), self._cache()
    _compile(first)
    _compile(second)
    _compile(second, 'other.pb', b'other')
    first.publish()
    second.publish()
    self.assertEqual(_programs(first), {_PROGRAM: b'program'})
    self.assertEqual(_programs(self._cache()), {
        _PROGRAM: b'program', 'other.pb': b'other'})
    self.assertLen(self._kept(), 2)

  def test_what_is_not_complete_is_not_published(self):
    cache = self._cache()
    _compile(cache, f'{_PROGRAM}.tmp123', b'prog')
    cache.publish()
    self.assertEmpty(self._kept())

  def test_a_killed_process_leaves_links(self):
    cache = self._cache()
    _compile(cache)
    cache.publish()
    self.assertTrue(os.path.islink(os.path.join(cache.folder, _PROGRAM)))

  def test_directories_of_killed_processes_are_removed(self):
    with mock.patch.object(
        tempfile, 'tempdir', self.create_tempdir('temporary').full_path):
      running = self._cache()
      here = f'agile_tf_xla_{socket.gethostname()}_'
      killed, elsewhere = (
          pathlib.Path(tempfile.gettempdir(), f'{start}{2**30}_a')
          for start in (here, 'agile_tf_xla_other_'))
      killed.mkdir()
      elsewhere.mkdir()
      self._cache()
      self.assertTrue(os.path.exists(running.folder))
      self.assertFalse(killed.exists())
      self.assertTrue(elsewhere.exists())

  def test_damaged_programs_are_removed(self):
    for damage in (b'', b'prog', b'progrbm', b'program and more'):
      cache = self._cache()
      _compile(cache)
      cache.close()
      kept, = self._kept()
      kept.write_bytes(damage)
      with self.subTest(damage):
        self.assertEmpty(_programs(self._cache()))
        self.assertEmpty(self._kept())

  def test_another_machine_has_its_own_programs(self):
    cache = self._cache('there')
    _compile(cache)
    cache.close()
    self.assertEmpty(_programs(self._cache('here')))
    with mock.patch.object(
        compilation_cache, '_processor', return_value='another'):
      other = compilation_cache.key(2)
    self.assertLen({
        other, compilation_cache.key(2), compilation_cache.key(3)}, 3)

  def test_a_program_that_another_process_removes_is_compiled_again(self):
    cache = self._cache()
    _compile(cache)
    cache.publish()
    later = self._cache()
    shutil.rmtree(self.root)
    self.assertFalse(os.path.exists(os.path.join(later.folder, _PROGRAM)))
    _compile(later)
    later.publish()  # There is no directory to publish to.
    self.assertEqual(_programs(later), {_PROGRAM: b'program'})

  def test_a_program_is_there_at_every_moment_while_it_is_published(self):
    cache = self._cache()
    _compile(cache)
    there = []

    def watched(function):
      def call(*args, **kwargs):
        there.append(os.path.exists(os.path.join(cache.folder, _PROGRAM)))
        result = function(*args, **kwargs)
        there.append(os.path.exists(os.path.join(cache.folder, _PROGRAM)))
        return result

      return call

    with mock.patch.multiple(
        os, replace=watched(os.replace), symlink=watched(os.symlink),
        remove=watched(os.remove)):
      cache.publish()
    self.assertGreater(len(there), 4)
    self.assertTrue(all(there))

  def test_half_written_files_of_killed_processes_are_removed(self):
    cache = self._cache()
    _compile(cache)
    cache.publish()
    kept, = self._kept()
    old, young = (pathlib.Path(f'{kept}.{i}.part') for i in range(2))
    for path in old, young:
      path.write_bytes(b'pro')
    os.utime(old, times=(0, 0))
    cache.close()
    self.assertCountEqual(self._kept(), [kept, young])

  def test_after_its_end_children_do_not_use_it(self):
    with (mock.patch.dict(os.environ, TF_XLA_FLAGS='--one'),
          # Not that of the tests themselves.
          mock.patch.object(compilation_cache, '_ends', [])):
      cache = compilation_cache.start(2, self.root)
      self.assertIn(cache.folder, os.environ['TF_XLA_FLAGS'])
      compilation_cache.end()
      self.assertEqual(os.environ['TF_XLA_FLAGS'], '--one')
      self.assertFalse(os.path.exists(cache.folder))

  def test_keeps_the_newest_programs_of_all_machines(self):
    for i, name in enumerate(('a', 'b', 'c')):
      cache = self._cache(name)
      _compile(cache, content=bytes(100))
      cache.publish()
      os.utime(*pathlib.Path(self.root, name).iterdir(), times=(i, i))
    with mock.patch.object(compilation_cache, '_BYTES_KEPT', 250):
      self._cache('b').close()
    self.assertEqual({path.parent.name for path in self._kept()}, {'b', 'c'})

  def test_starts_nothing_where_others_can_write(self):
    for mode in 0o702, 0o720:
      root = self.create_tempdir().full_path
      os.chmod(root, mode)
      with mock.patch.dict(os.environ, TF_XLA_FLAGS=''):
        self.assertIsNone(compilation_cache.start(2, root))
    # Nor in a directory of another user.
    root = self.create_tempdir().full_path
    os.chmod(root, 0o700)
    with (mock.patch.dict(os.environ, TF_XLA_FLAGS=''),
          mock.patch.object(os, 'getuid', return_value=os.getuid() + 1)):
      self.assertIsNone(compilation_cache.start(2, root))

  def test_another_build_of_tensorflow_has_its_own_programs(self):
    build = compilation_cache.importlib.metadata.distribution('tensorflow')
    keys = {compilation_cache.key(2)}
    for version, record in (('0', build.read_text('RECORD')),
                            (build.version, 'other files')):
      other = mock.Mock(version=version, **{'read_text.return_value': record})
      with mock.patch.object(compilation_cache.importlib.metadata,
                             'distribution', return_value=other):
        keys.add(compilation_cache.key(2))
    self.assertLen(keys, 3)

  def test_starts_nothing_where_nothing_can_be_written(self):
    file = self.create_tempfile().full_path
    with mock.patch.dict(os.environ, TF_XLA_FLAGS=''):
      self.assertIsNone(compilation_cache.start(2, file))
      self.assertIsNone(compilation_cache.start(2, '~/relative'))
      with mock.patch.object(compilation_cache, '_BYTES_FREE', 2**80):
        self.assertIsNone(compilation_cache.start(2, self.root))
      self.assertEqual(os.environ['TF_XLA_FLAGS'], '')

  def test_leaves_the_cache_of_a_user_or_a_parent_process_alone(self):
    flag = '--tf_xla_persistent_cache_directory=/theirs'
    with mock.patch.dict(os.environ, TF_XLA_FLAGS=flag):
      self.assertIsNone(compilation_cache.start(2, self.root))
      self.assertEqual(os.environ['TF_XLA_FLAGS'], flag)

  def test_is_in_the_users_cache_directory(self):
    with mock.patch.dict(os.environ, XDG_CACHE_HOME='/cache'):
      self.assertEqual(compilation_cache.user_folder(), '/cache/agile_tf/xla')


if __name__ == '__main__':
  absltest.main()
