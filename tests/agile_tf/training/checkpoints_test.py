"""Tests for checkpoints: exactly what was saved is restored."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
from unittest import mock

from absl.testing import parameterized
import numpy as np

from agile_tf.training import checkpoints
from tests.agile_tf import tiny

_FILES = ('arrays.npz', 'state.json', 'manifest.json')


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
          'config': {'episode_length': 30, 'world': 'relations'},
          'tokens': ['red', 'circle'], 'rows': [None, True, 'x'],
          'generator': np.random.default_rng(1).bit_generator.state,
      })


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

  def _save(self, *numbers, keep=9):
    for number in numbers:
      checkpoints.save(self._dir, number, _checkpoint(number), keep)

  def _path(self, step, *names):
    return os.path.join(
        self._dir, 'checkpoints', f'step_{step:012d}', *names)

  def _content(self, name, step=3):
    return pathlib.Path(self._path(step, name)).read_bytes()

  def _write(self, name, content, step=3):
    pathlib.Path(self._path(step, name)).write_bytes(content)

  def _recover(self):
    """Returns the checkpoint that a run would resume from, or None."""
    restored = []
    if not checkpoints.recover(self._dir, restored.append):
      self.assertEmpty(restored)
      return None
    return restored[-1]

  def _assert_equal(self, one, other):
    tiny.assert_equal_arrays(one, other)
    self.assertEqual(one.values, other.values)

  def _assert_damaged(self, problem=''):
    with self.assertRaisesRegex(
        checkpoints.DamagedError, f'step_000000000003 is damaged .*{problem}'):
      checkpoints.load(self._dir, 3)


class SaveTest(CheckpointsTest):

  def test_loading_returns_what_was_saved(self):
    self._save(50_000)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(50_000))
    self.assertEqual(
        os.listdir(os.path.join(self._dir, 'checkpoints')),
        ['step_000000050000'])
    self.assertCountEqual(os.listdir(self._path(50_000)), _FILES)

  def test_the_newest_or_a_given_checkpoint_is_loaded(self):
    self._save(900, 5, 10_000)
    self.assertEqual(checkpoints.steps(self._dir), [5, 900, 10_000])
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(10_000))
    self._assert_equal(checkpoints.load(self._dir, 900), _checkpoint(900))
    with self.assertRaisesRegex(
        checkpoints.CheckpointError,
        'no checkpoint of step 4; it has 5, 900, 10000'):
      checkpoints.load(self._dir, 4)

  @parameterized.parameters((1, [4]), (2, [3, 4]), (9, [0, 1, 2, 3, 4]))
  def test_keeps_the_newest(self, keep, expected):
    self._save(*range(5), keep=keep)
    self.assertEqual(checkpoints.steps(self._dir), expected)

  @parameterized.parameters((0, 1), (1, 1), (2, 2), (9, 2))
  def test_after_a_kill_while_one_is_replaced_one_of_both_is_there(
      self, kill_at, survivor):
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
    self.assertEqual(checkpoints.steps(self._dir), [0])

  def test_everything_is_on_disk_before_it_has_its_name(self):
    """A power failure leaves the old checkpoint or the whole new one."""
    events = []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(descriptor):
      path = os.readlink(f'/proc/self/fd/{descriptor}')
      events.append(os.path.basename(path))
      if os.path.isdir(path):  # As some file systems do; it changes nothing.
        raise OSError(errno.EINVAL, 'Invalid argument')
      fsync(descriptor)

    def recorded_rename(old, new):
      events.append('renamed')
      rename(old, new)

    with (mock.patch.object(os, 'fsync', recorded_fsync),
          mock.patch.object(os, 'rename', recorded_rename)):
      self._save(7)
    self.assertEqual(events, [
        *_FILES, 'step_000000000007.part', 'renamed', 'checkpoints'])

  def test_after_a_kill_while_one_is_removed_no_half_is_left(self):
    """What is half removed has no name of a checkpoint any more."""
    self._save(1, 2)

    def removed(path, **_):
      os.remove(os.path.join(path, 'arrays.npz'))
      raise KeyboardInterrupt

    real = shutil.rmtree
    with mock.patch.object(
        shutil, 'rmtree', lambda path, **kwargs: (
            removed if os.path.exists(path) else real)(path, **kwargs)):
      with contextlib.suppress(KeyboardInterrupt):
        self._save(3, keep=1)
    self.assertIn(3, checkpoints.steps(self._dir))
    for step in checkpoints.steps(self._dir):
      self._assert_equal(checkpoints.load(self._dir, step), _checkpoint(step))

  def test_what_is_not_whole_is_no_checkpoint(self):
    self._save(7)
    os.makedirs(self._path(8) + '.part/old')  # A run that was killed left it.
    os.makedirs(os.path.join(self._dir, 'checkpoints', 'step_9'))
    os.makedirs(os.path.join(self._dir, 'checkpoints', 'notes'))
    self.assertEqual(checkpoints.steps(self._dir), [7])
    self._save(8)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(8))
    self.assertCountEqual(os.listdir(self._path(8)), _FILES)

  def test_a_full_disk_leaves_what_was_saved(self):
    self._save(3, keep=1)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for module, name in (np, 'savez'), (os, 'fsync'), (os, 'rename'):
      with mock.patch.object(module, name, side_effect=full):
        with self.assertRaisesRegex(
            checkpoints.CheckpointError, 'cannot be saved .*No space left'):
          self._save(4, keep=1)
      self._assert_equal(checkpoints.load(self._dir), _checkpoint(3))
      self.assertLen(os.listdir(os.path.join(self._dir, 'checkpoints')), 1)
    self._save(4, keep=1)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(4))
    with (self.assertLogs(level='WARNING'), mock.patch.object(
        shutil, 'rmtree', lambda path, ignore_errors=False: (
            ignore_errors or os.rmdir(path)))):  # It is not empty.
      self._save(5, keep=1)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(5))


class DamageTest(CheckpointsTest):

  @parameterized.parameters('', 'runs/none')
  def test_a_run_without_checkpoints_is_named(self, name):
    run_dir = os.path.join(self._dir, name)
    self.assertEqual(checkpoints.steps(run_dir), [])
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'has no checkpoints; expected'):
      checkpoints.load(run_dir)

  @parameterized.product(name=_FILES, kept=(None, 0, 1, 0.5, -1))
  def test_a_file_that_is_missing_or_cut_off_is_damage(self, name, kept):
    self._save(3)
    content = self._content(name)
    if kept is None:
      os.remove(self._path(3, name))
    else:
      kept = int(kept * len(content)) if isinstance(kept, float) else kept
      self._write(name, content[:kept])
    self._assert_damaged()

  @parameterized.parameters(*_FILES)
  def test_no_changed_byte_is_loaded(self, name):
    self._save(3)
    content = self._content(name)
    for i in range(0, len(content), max(1, len(content) // 400)):
      self._write(name, content[:i] + bytes([content[i] ^ 1]) + content[i + 1:])
      self._assert_damaged('do not match its manifest.json')
    self._write(name, content)
    self._assert_equal(checkpoints.load(self._dir), _checkpoint())

  @parameterized.parameters(
      [_FILES[:1]], [_FILES[1:2]], [_FILES[2:]], [_FILES[:2]], [_FILES[1:]],
      [_FILES])
  def test_files_of_another_checkpoint_are_damage(self, names):
    self._save(3, 4)
    for name in names:
      shutil.copy(self._path(4, name), self._path(3, name))
    self._assert_damaged(
        'it is of step 4 and has been renamed' if names == _FILES else
        'do not match')

  def test_those_of_earlier_versions_are_refused(self):
    self._save(3)
    os.remove(self._path(3, 'manifest.json'))
    self._assert_damaged('an earlier version saved it, commit ad1cf9b reads it')

  def test_what_runs_code_is_refused(self):
    """Also where somebody has made it with its manifest."""
    touched = os.path.join(self._dir, 'touched')
    content, save = np.array([Touch(touched)], dtype=object), np.savez
    with mock.patch.object(
        np, 'savez', lambda file, **_: save(file, weights=content)):
      self._save(3)
    self._assert_damaged('Object arrays')
    self.assertFalse(os.path.exists(touched))


  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_numbers_that_are_not_finite_are_damage(self, value):
    checkpoint = _checkpoint(3)
    checkpoint.arrays['policy:policy/stem/w'][1, 2] = value
    checkpoints.save(self._dir, 3, checkpoint, keep=9)
    self._assert_damaged(
        rf'policy:policy/stem/w\[1, 2\] is {value}; expected finite numbers')


class StateTest(CheckpointsTest):
  """What state.json has, where the manifest has its digest."""

  def _save_state(self, content):
    self._save(3)
    self._write('state.json', content)
    self._sign()

  def _sign(self):
    self._write('manifest.json', json.dumps({
        name: hashlib.sha256(self._content(name)).hexdigest()
        for name in _FILES[:2]}, indent=2).encode())

  def _values(self, **changes):
    generator = np.random.default_rng(1).bit_generator.state
    actor = {'generator': generator, 'delayed': False, 'environment': {'x': 1},
             'observation': [3] * 27, 'steps_left': 30, 'instruction': 'go'}
    return _checkpoint(3).values | {
        'iterations': 4, 'actors': [[actor, actor]], 'generators': [generator],
        'tally': {'sums': {'loss': 0.5}, 'weights': {'loss': 2}},
        'totals': {'episodes': 9}} | changes

  def test_a_runs_state_is_loaded(self):
    values = self._values()
    self._save_state(json.dumps(values).encode())
    self.assertEqual(checkpoints.load(self._dir).values, values)

  @parameterized.parameters(
      (b'null', 'it is None: expected an object'), (b'[]', 'it is a list'),
      (b'"x"', "it is 'x'"), (b'5', 'it is 5'), (b'{}', 'it lacks config'),
      (b'[' * 10_000 + b']' * 10_000, 'it is nested too deeply'),
      (b'', 'Expecting value'), (b'\xff', "can't decode"))
  def test_other_contents_are_damage(self, content, problem):
    self._save_state(content)
    self._assert_damaged(f'state.json: .*{problem}')

  @parameterized.parameters(
      (dict(steps='3'), "steps is '3': expected a whole number"),
      (dict(steps=3.0), 'steps is 3.0'), (dict(steps=True), 'steps is True'),
      (dict(steps=-3), 'steps is -3'), (dict(steps=None), 'steps is None'),
      (dict(iterations='x'), "iterations is 'x'"),
      (dict(iterations=2**200), 'iterations is 1606'),
      (dict(config=[]), 'config is a list'), (dict(config=5), 'config is 5'),
      (dict(config={'episode_length': 'x'}),
       "config.episode_length is 'x': expected a whole number"),
      (dict(tokens={}), 'tokens is a dict'),
      (dict(tokens=[3]), r'tokens\[0\] is 3: expected a text'),
      (dict(networks_alone='yes'), "networks_alone is 'yes'"),
      (dict(actors=5), 'actors is 5'), (dict(actors=[5]), r'actors\[0\] is 5'),
      (dict(actors=[[5]]), r'actors\[0\]\[0\] is 5'),
      (dict(actors=[[{}]]), 'lacks generator, delayed, environment'),
      (dict(generators=[{}]), r'generators\[0\] lacks'),
      (dict(generators=['x']), r"generators\[0\] is 'x'"),
      (dict(tally=None), 'tally is None'),
      (dict(tally={'sums': {}, 'weights': {'a': 'b'}}), "weights.a is 'b'"),
      (dict(totals={'episodes': 0.5}), 'totals.episodes is 0.5'),
      (dict(totals={'episodes': -1}), 'totals.episodes is -1'))
  def test_values_of_another_form_are_damage(self, changes, problem):
    self._save_state(json.dumps(self._values(**changes)).encode())
    self._assert_damaged(f'state.json: .*{problem}')

  def test_only_the_digits_0_to_9_name_a_step(self):
    self._save(3)
    os.rename(self._path(3), f'{self._dir}/checkpoints/step_00000000000٣')
    self.assertEmpty(checkpoints.steps(self._dir))

  @parameterized.parameters(
      ('steps_left', 2**40), ('steps_left', 31), ('steps_left', -1),
      ('delayed', 1), ('delayed', 'no'), ('instruction', None),
      ('observation', 'x'), ('observation', [256]), ('observation', [[1]]),
      ('in_episode', None), ('steps', -1), ('generator', None))
  def test_an_episode_of_another_form_is_damage(self, name, value):
    values = self._values()
    values['actors'][0][1] = values['actors'][0][1] | {name: value}
    self._save_state(json.dumps(values).encode())
    self._assert_damaged(rf'state.json: actors\[0\]\[1\].{name}')

  @parameterized.parameters(-1, 2**200, None, 'x', 0.5)
  def test_a_generator_of_another_form_is_damage(self, number):
    values = self._values()
    values['generators'][0]['state']['inc'] = number
    self._save_state(json.dumps(values).encode())
    self._assert_damaged(r'state.json: .*inc is .* from 0 to 3402823669')

  def test_line_ends_do_not_matter(self):
    """Git for Windows changes them in text, by default."""
    self._save(3)
    for name in _FILES[1:]:
      content = self._content(name)
      self._write(name, content.replace(b'\n', b'\r\n'))
    self.assertIn(b'\r\n', self._content('manifest.json'))
    self._assert_equal(checkpoints.load(self._dir), _checkpoint(3))
    self._write('state.json', json.dumps(self._values(), indent=1).encode())
    self._sign()
    self._write('state.json',
                self._content('state.json').replace(b'\n', b'\r\n'))
    self.assertEqual(checkpoints.load(self._dir).values, self._values())

  @parameterized.product(name=_FILES, kind=('pipe', 'zero', 'directory'))
  def test_special_files_are_damage(self, name, kind):
    self._save(3)
    path = self._path(3, name)
    os.remove(path)
    if kind == 'pipe':
      os.mkfifo(path)
    elif kind == 'zero':
      os.symlink('/dev/zero', path)
    else:
      os.mkdir(path)
    self._assert_damaged(
        'Is a directory' if kind == 'directory' else f'{name}: .*regular file')

  def test_files_that_are_too_large_are_not_read(self):
    self._save(3)
    os.truncate(self._path(3, 'manifest.json'), 2**42)
    self._assert_damaged('it has 4,398,046,511,104 bytes; expected at most')
    self._save(3)
    os.truncate(self._path(3, 'arrays.npz'), 2**42)
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'free memory'):
      checkpoints.load(self._dir)


class RecoverTest(CheckpointsTest):

  def test_recovers_from_the_newest_whole_one(self):
    self.assertIsNone(self._recover())
    self._save(1, 2, 3, 4)
    self._assert_equal(self._recover(), _checkpoint(4))
    for _ in range(2):  # The same step can be set aside again.
      os.remove(self._path(4, 'state.json'))
      self._write('arrays.npz', b'')
      with self.assertLogs('absl', 'WARNING') as logs:
        self._assert_equal(self._recover(), _checkpoint(2))
      text = '\n'.join(logs.output)
      for step in 3, 4:
        self.assertIn(f'{self._path(step)} is damaged', text)
        self.assertTrue(os.path.exists(f'{self._path(step)}.damaged'))
      self.assertNotIn('Move it away', text)
      self.assertEqual(checkpoints.steps(self._dir), [1, 2])
      self._save(3, 4)

  def test_what_was_renamed_to_a_later_step_is_set_aside(self):
    self._save(1, 2)
    os.rename(self._path(1), self._path(900))
    # A run that was in progress at that time keeps its own checkpoints.
    self._save(3, keep=1)
    self.assertEqual(checkpoints.steps(self._dir), [3, 900])
    with self.assertLogs('absl', 'WARNING') as logs:
      self._assert_equal(self._recover(), _checkpoint(3))
    self.assertIn('of step 1 and has been renamed', logs.output[0])
    self.assertEqual(checkpoints.steps(self._dir), [3])

  @parameterized.parameters(
      (checkpoints.DamagedError, [1]), (checkpoints.CheckpointError, [1, 2]))
  def test_only_what_is_damaged_is_set_aside(self, error, left):
    self._save(1, 2)

    def restore(checkpoint):
      if checkpoint.values['steps'] == 2:
        raise error('that does not fit')

    with (self.assertRaisesRegex(error, 'does not fit') if len(left) == 2 else
          self.assertLogs('absl', 'WARNING')):
      checkpoints.recover(self._dir, restore)
    self.assertEqual(checkpoints.steps(self._dir), left)

  @parameterized.parameters(
      (name, number) for name in (*_FILES, 'checkpoints') for number in (
          errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES, None)
      if (name, number) != ('checkpoints', None))
  def test_an_error_of_the_system_sets_nothing_aside(self, name, number):
    """When a file is opened, and when the directory is listed."""
    self._save(1, 2)
    error = OSError(number, os.strerror(number)) if number else MemoryError()
    if name == 'checkpoints':
      failing, real = 'os.listdir', os.listdir
    else:
      failing, real = 'builtins.open', open

    def fail(path, *args, **kwargs):
      if str(path).endswith(name):
        raise error
      return real(path, *args, **kwargs)

    with mock.patch(failing, fail):
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, 'cannot be read') as caught:
        self._recover()
    self.assertNotIsInstance(caught.exception, checkpoints.DamagedError)
    self.assertIn(str(error) or 'MemoryError', str(caught.exception))
    self.assertEqual(checkpoints.steps(self._dir), [1, 2])
    self._assert_equal(self._recover(), _checkpoint(2))

  def test_an_error_says_if_nothing_whole_is_left(self):
    self._save(3)
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
      pathlib.Path(path).touch()
    else:
      os.symlink('/nowhere', path)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is no directory, or a link'):
      self._recover()
