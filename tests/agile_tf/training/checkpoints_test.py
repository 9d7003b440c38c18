"""Tests for checkpoints: exactly what was saved is restored."""

import contextlib
import errno
import os
import pickle
from unittest import mock
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf.training import checkpoints
from gridlu import archives


def _checkpoint(number=3, steps=None):
  rng = np.random.default_rng(number)
  return checkpoints.Checkpoint(
      arrays={
          'policy:policy/stem/w': rng.normal(size=[2, 3]).astype(np.float32),
          # Larger than what NumPy reads at a time, 4 KB.
          'policy:policy/hidden/w': rng.normal(
              size=[30, 100]).astype(np.float32),
          'buffer:codes': rng.integers(-1, 9, size=[4, 2]).astype(np.int32),
          'buffer:positive': np.array([True, False]),
          'buffer:added': np.array(2**40 + number),
          'empty': np.zeros([0, 27], np.uint8),
      },
      values={
          'steps': number if steps is None else steps, 'seconds': 0.1 + 0.2,
          'rows': [None, True, 'x'],
          'generator': np.random.default_rng(1).bit_generator.state,
      })


class _Part:
  """A part whose state a checkpoint contains."""

  def __init__(self, value):
    self.value = value

  def state(self):
    return self.value

  def load(self, state):
    self.value = state


class Touch:
  """Runs code when it is unpickled."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return open, (self._path, 'w')


class CheckpointsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _path(self, step, *names):
    return os.path.join(
        self._dir, 'checkpoints', f'step_{step:012d}', *names)

  def _assert_equal(self, one, other):
    self.assertEqual(list(one.arrays), list(other.arrays))
    for name, value in one.arrays.items():
      self.assertEqual(value.dtype, other.arrays[name].dtype, name)
      self.assertEqual(value.shape, other.arrays[name].shape, name)
      np.testing.assert_array_equal(value, other.arrays[name], name)
    self.assertEqual(one.values, other.values)

  def test_round_trip(self):
    checkpoints.save(self._dir, 50_000, _checkpoint(50_000), keep=1)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(50_000))
    self.assertEqual(
        os.listdir(os.path.join(self._dir, 'checkpoints')),
        ['step_000000050000'])

  def test_generator_goes_on_the_same(self):
    rng = np.random.default_rng(3)
    rng.uniform(size=5)
    checkpoints.save(self._dir, 1, checkpoints.Checkpoint(
        {}, {'steps': 1, 'generator': rng.bit_generator.state}), keep=1)
    restored = np.random.default_rng(0)
    restored.bit_generator.state = checkpoints.load(
        self._dir).values['generator']
    np.testing.assert_array_equal(rng.uniform(size=5), restored.uniform(size=5))

  def test_newest_and_given(self):
    for step in (900, 5, 10_000):
      checkpoints.save(self._dir, step, _checkpoint(step), keep=5)
    self.assertEqual(checkpoints.steps(self._dir), [5, 900, 10_000])
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(10_000))
    self._assert_equal(checkpoints.load(self._dir, 900), _checkpoint(900))

  @parameterized.parameters((1, [4]), (2, [3, 4]), (9, [0, 1, 2, 3, 4]))
  def test_keeps_the_newest(self, keep, expected):
    for step in range(5):
      checkpoints.save(self._dir, step, _checkpoint(step), keep)
    self.assertEqual(checkpoints.steps(self._dir), expected)

  def test_same_step_is_replaced(self):
    checkpoints.save(self._dir, 7, _checkpoint(1, 7), keep=3)
    checkpoints.save(self._dir, 7, _checkpoint(2, 7), keep=3)
    self.assertEqual(checkpoints.steps(self._dir), [7])
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(2, 7))

  @parameterized.parameters((0, 1), (1, 1), (2, 2))
  def test_a_kill_while_one_is_replaced(self, kill_at, survivor):
    """Whatever of the replacement has happened, one of the two is there."""
    checkpoints.save(self._dir, 0, _checkpoint(1, 0), keep=3)
    real, calls = os.rename, []

    def rename(old, new):
      if len(calls) == kill_at:
        raise KeyboardInterrupt
      calls.append(old)
      real(old, new)

    with mock.patch.object(os, 'rename', rename):
      with contextlib.suppress(KeyboardInterrupt):
        checkpoints.save(self._dir, 0, _checkpoint(2, 0), keep=3)
    self._assert_equal(self._recover(), _checkpoint(survivor, 0))

  def test_everything_is_on_disk_before_it_has_its_name(self):
    """A power failure leaves the old checkpoint or the whole new one."""
    events = []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(descriptor):
      events.append(os.path.basename(
          os.readlink(f'/proc/self/fd/{descriptor}')))
      fsync(descriptor)

    def recorded_rename(old, new):
      events.append('renamed')
      rename(old, new)

    with (mock.patch.object(os, 'fsync', recorded_fsync),
          mock.patch.object(os, 'rename', recorded_rename)):
      checkpoints.save(self._dir, 7, _checkpoint(7), keep=1)
    before = events[:events.index('renamed')]
    self.assertEqual(before[:2], ['arrays.npz', 'state.json'])
    self.assertStartsWith(before[2], 'step_')
    self.assertEqual(events[-1], 'checkpoints')

  def test_a_kill_while_one_is_removed(self):
    """What is half removed has no name of a checkpoint any more."""
    for step in 1, 2:
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)

    def removed(path, **_):
      os.remove(os.path.join(path, 'arrays.npz'))
      raise KeyboardInterrupt

    real = checkpoints.shutil.rmtree
    with mock.patch.object(
        checkpoints.shutil, 'rmtree', lambda path, **kwargs: (
            removed if os.path.exists(path) else real)(path, **kwargs)):
      with contextlib.suppress(KeyboardInterrupt):
        checkpoints.save(self._dir, 3, _checkpoint(3), keep=1)
    self.assertIn(3, checkpoints.steps(self._dir))
    for step in checkpoints.steps(self._dir):
      self._assert_equal(checkpoints.load(self._dir, step), _checkpoint(step))

  def test_what_is_not_whole_is_no_checkpoint(self):
    checkpoints.save(self._dir, 7, _checkpoint(7), keep=3)
    os.makedirs(self._path(8) + '.part')  # A run that was killed left it.
    os.makedirs(os.path.join(self._dir, 'checkpoints', 'step_9'))
    os.makedirs(os.path.join(self._dir, 'checkpoints', 'notes'))
    self.assertEqual(checkpoints.steps(self._dir), [7])
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(7))
    with open(os.path.join(self._path(8) + '.part', 'old'), 'w',
              encoding='utf-8') as file:
      file.write('old')
    checkpoints.save(self._dir, 8, _checkpoint(8), keep=3)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(8))
    self.assertCountEqual(
        os.listdir(self._path(8)), ['arrays.npz', 'state.json'])

  @parameterized.parameters('', 'runs/none')
  def test_no_checkpoints(self, name):
    run_dir = os.path.join(self._dir, name)
    self.assertEqual(checkpoints.steps(run_dir), [])
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'has no checkpoints; expected'):
      checkpoints.load(run_dir)

  def test_no_such_step(self):
    for step in (3, 40):
      checkpoints.save(self._dir, step, _checkpoint(), keep=3)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'no checkpoint of step 4; it has 3, 40'):
      checkpoints.load(self._dir, 4)

  def _assert_damaged(self):
    with self.assertRaisesRegex(
        checkpoints.DamagedError, 'step_000000000003 is damaged'):
      checkpoints.load(self._dir)

  @parameterized.product(
      name=('arrays.npz', 'state.json'), kept=(None, 0, 1, 0.5, -1))
  def test_damaged(self, name, kept):
    """A file that is missing, empty or cut off."""
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    path = self._path(3, name)
    if kept is None:
      os.remove(path)
    else:
      with open(path, 'rb') as file:
        content = file.read()
      kept = int(kept * len(content)) if isinstance(kept, float) else kept
      with open(path, 'wb') as file:
        file.write(content[:kept])
    self._assert_damaged()

  def test_changed_bytes(self):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    path = self._path(3, 'arrays.npz')
    value = _checkpoint().arrays['policy:policy/stem/w'].tobytes()
    with open(path, 'rb') as file:
      content = file.read()
    self.assertEqual(content.count(value), 1)
    with open(path, 'wb') as file:
      file.write(content.replace(value, value[::-1]))
    self._assert_damaged()

  @parameterized.parameters('arrays.npz', 'state.json')
  def test_any_changed_byte(self, name):
    """Each leads to the same numbers or to a CheckpointError."""
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    path = self._path(3, name)
    with open(path, 'rb') as file:
      content = bytearray(file.read())
    for i in range(0, len(content), 3):
      content[i] ^= 255
      with open(path, 'wb') as file:
        file.write(content)
      content[i] ^= 255
      try:
        loaded = checkpoints.load(self._dir)
      except checkpoints.CheckpointError:
        continue
      self._assert_equal(loaded, _checkpoint())

  @parameterized.parameters(
      (b'(30, 100)', b'(30, 000)'), (b'(30, 100)', b'(20, 100)'),
      (b"'<f4'", b"'>f4'"), (b"'<f4'", b"'<i4'"), (b'False', b'True '))
  def test_a_changed_header_of_an_array(self, old, new):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    path = self._path(3, 'arrays.npz')
    with open(path, 'rb') as file:
      content = file.read()
    place = content.index(old, content.index(b'hidden'))
    with open(path, 'wb') as file:
      file.write(content[:place] + new + content[place + len(old):])
    self._assert_damaged()

  def test_what_expands_is_none(self):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    np.savez_compressed(
        self._path(3, 'arrays.npz'), **_checkpoint().arrays,
        zeros=np.zeros([10**6]))
    with mock.patch.object(archives, 'arrays') as expand:
      self._assert_damaged()
      expand.assert_not_called()

  def test_changed_numbers_of_the_state(self):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    with open(self._path(3, 'state.json'), encoding='utf-8') as file:
      content = file.read()
    self.assertIn('"steps": 3', content)
    with open(self._path(3, 'state.json'), 'w', encoding='utf-8') as file:
      file.write(content.replace('"steps": 3', '"steps": 4'))
    self._assert_damaged()

  def test_a_single_array_is_no_archive(self):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    with open(self._path(3, 'arrays.npz'), 'wb') as file:
      np.save(file, np.zeros([2]))
    self._assert_damaged()

  @parameterized.parameters('inside', 'whole')
  def test_pickled_arrays_are_refused(self, where):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=3)
    touched = os.path.join(self._dir, 'touched')
    path = self._path(3, 'arrays.npz')
    if where == 'inside':
      np.savez(path, allow_pickle=True,
               weights=np.array([Touch(touched)], dtype=object))
      self.assertIn('weights.npy', zipfile.ZipFile(path).namelist())
    else:
      with open(path, 'wb') as file:
        pickle.dump(Touch(touched), file)
    self._assert_damaged()
    self.assertFalse(os.path.exists(touched))

  def test_objects_are_not_written(self):
    with self.assertRaises(ValueError):
      checkpoints.save(self._dir, 3, checkpoints.Checkpoint(
          {'weights': np.array([{}], dtype=object)}, {}), keep=3)
    self.assertEqual(checkpoints.steps(self._dir), [])

  def _recover(self):
    """Returns the checkpoint that a run would resume from, or None."""
    restored = []
    if not checkpoints.recover(self._dir, restored.append):
      self.assertEmpty(restored)
      return None
    return restored[-1]

  def test_recovers_from_the_newest_whole_one(self):
    self.assertIsNone(self._recover())
    for step in range(1, 5):
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)
    self._assert_equal(self._recover(), _checkpoint(4))
    os.remove(self._path(4, 'state.json'))
    with open(self._path(3, 'arrays.npz'), 'wb'):
      pass
    with self.assertLogs('absl', 'WARNING') as logs:
      self._assert_equal(self._recover(), _checkpoint(2))
    text = '\n'.join(logs.output)
    for step in 3, 4:
      self.assertIn(f'{self._path(step)} is damaged', text)
      self.assertTrue(os.path.exists(f'{self._path(step)}.damaged'))
    self.assertEqual(checkpoints.steps(self._dir), [1, 2])

  def test_what_was_renamed_to_a_later_step_is_damaged(self):
    for step in 1, 2:
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)
    os.rename(self._path(1), self._path(900))
    with self.assertRaisesRegex(
        checkpoints.DamagedError, 'it is of step 1 and has been renamed'):
      checkpoints.load(self._dir)
    # A run that was in progress at that time keeps its own checkpoints.
    checkpoints.save(self._dir, 3, _checkpoint(3), keep=1)
    self.assertEqual(checkpoints.steps(self._dir), [3, 900])
    with self.assertLogs('absl', 'WARNING'):
      self._assert_equal(self._recover(), _checkpoint(3))
    self.assertEqual(checkpoints.steps(self._dir), [3])

  def test_what_a_run_cannot_use_is_set_aside(self):
    for step in 1, 2:
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)

    def restore(checkpoint):
      if checkpoint.values['steps'] == 2:
        raise checkpoints.DamagedError('of other shapes')

    with self.assertLogs('absl', 'WARNING') as logs:
      self.assertTrue(checkpoints.recover(self._dir, restore))
    self.assertIn('of other shapes', logs.output[0])
    self.assertEqual(checkpoints.steps(self._dir), [1])

  def test_the_same_step_can_be_set_aside_again(self):
    checkpoints.save(self._dir, 1, _checkpoint(1), keep=9)
    for number in 2, 3:
      checkpoints.save(self._dir, 2, _checkpoint(number, 2), keep=9)
      os.remove(self._path(2, 'arrays.npz'))
      with self.assertLogs('absl', 'WARNING'):
        self._assert_equal(self._recover(), _checkpoint(1))
      self.assertEqual(checkpoints.steps(self._dir), [1])

  def test_another_error_sets_nothing_aside(self):
    for step in 1, 2:
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)

    def restore(checkpoint):
      raise checkpoints.CheckpointError('of other settings')

    with self.assertRaisesRegex(checkpoints.CheckpointError, 'other settings'):
      checkpoints.recover(self._dir, restore)
    self.assertEqual(checkpoints.steps(self._dir), [1, 2])

  @parameterized.parameters(
      errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM, None)
  def test_an_error_of_the_system_sets_nothing_aside(self, number):
    """When a file is opened, and when the directory is listed."""
    for step in 1, 2:
      checkpoints.save(self._dir, step, _checkpoint(step), keep=9)
    error = MemoryError() if number is None else OSError(
        number, os.strerror(number))
    for name, opener in (('arrays.npz', open), ('state.json', open),
                         ('checkpoints', os.listdir)):
      if name == 'checkpoints' and number is None:
        continue

      def fail(path, *args, name=name, opener=opener):
        if str(path).endswith(name):
          raise error
        return opener(path, *args)

      with mock.patch(
          'os.listdir' if name == 'checkpoints' else 'builtins.open', fail):
        with self.assertRaisesRegex(
            checkpoints.CheckpointError, 'cannot be read') as caught:
          self._recover()
      self.assertNotIsInstance(caught.exception, checkpoints.DamagedError)
      self.assertIn(str(error) or 'MemoryError', str(caught.exception))
      self.assertEqual(checkpoints.steps(self._dir), [1, 2])
    self._assert_equal(self._recover(), _checkpoint(2))

  def test_nothing_whole_to_recover(self):
    checkpoints.save(self._dir, 3, _checkpoint(), keep=9)
    os.remove(self._path(3, 'state.json'))
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'None of the checkpoints .* is intact'
    ) as caught:
      self._recover()
    self.assertNotIn('Move it away', str(caught.exception))
    self.assertEqual(checkpoints.steps(self._dir), [3])

  @parameterized.parameters('file', 'link')
  def test_no_directory_is_no_new_run(self, kind):
    path = os.path.join(self._dir, 'checkpoints')
    if kind == 'file':
      with open(path, 'w', encoding='utf-8'):
        pass
    else:
      os.symlink('/nowhere', path)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is no directory, or a link'):
      self._recover()

  def test_a_full_disk_leaves_what_was_saved(self):
    checkpoints.save(self._dir, 3, _checkpoint(3), keep=1)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for name in 'savez', 'fsync', 'rename':
      module = np if name == 'savez' else os
      with mock.patch.object(module, name, side_effect=full):
        with self.assertRaisesRegex(
            checkpoints.CheckpointError, 'cannot be saved .*No space left'):
          checkpoints.save(self._dir, 4, _checkpoint(4), keep=1)
      self._assert_equal(checkpoints.load(self._dir), _checkpoint(3))
      self.assertLen(os.listdir(os.path.join(self._dir, 'checkpoints')), 1)
    checkpoints.save(self._dir, 4, _checkpoint(4), keep=1)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(4))

  def test_gathers_copies_of_what_json_can_hold(self):
    values = {'episodes': [3]}
    checkpoint = checkpoints.gather({'totals': _Part(values)}, {})
    values['episodes'].append(4)
    self.assertEqual(checkpoint.values['totals'], {'episodes': [3]})
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'is not JSON'):
      checkpoints.gather({'totals': _Part({'count': np.int64(3)})}, {})

  def test_gathers_and_restores_parts(self):
    weights = _Part({'policy/w': np.zeros([1]), 'a:b': np.ones([2])})
    counts = _Part({'episodes': 3})
    rng = np.random.default_rng(0)
    parts = {'policy': weights, 'policy_replay': _Part({'codes': np.ones([2])}),
             'totals': counts, 'generators': checkpoints.Each(
                 [checkpoints.Generator(rng), counts])}
    checkpoint = checkpoints.gather(parts, {'steps': 7})
    self.assertEqual(
        list(checkpoint.arrays),
        ['policy:policy/w', 'policy:a:b', 'policy_replay:codes'])
    self.assertEqual(checkpoint.values['steps'], 7)
    self.assertEqual(checkpoint.values['totals'], {'episodes': 3})
    expected = rng.random()
    loaded = {'policy': _Part(None), 'policy_replay': _Part(None),
              'totals': _Part(None), 'generators': checkpoints.Each(
                  [checkpoints.Generator(rng), _Part(None)])}
    checkpoints.restore(loaded, checkpoint)
    self.assertEqual(list(loaded['policy'].value), ['policy/w', 'a:b'])
    self.assertIs(
        loaded['policy'].value['a:b'], checkpoint.arrays['policy:a:b'])
    self.assertEqual(loaded['totals'].value, {'episodes': 3})
    self.assertEqual(rng.random(), expected)
    with self.assertRaisesRegex(KeyError, 'more'):
      checkpoints.restore({'more': counts}, checkpoint)
    self.assertEmpty(checkpoints.group(checkpoint.arrays, 'none'))


if __name__ == '__main__':
  absltest.main()
