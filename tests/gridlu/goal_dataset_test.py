"""Tests for gridlu.goal_dataset."""

import errno
import os
import re
import tempfile
import unicodedata
from unittest import mock
import zlib

from absl.testing import parameterized
import numpy as np

from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import world
from tests.gridlu import programs


def _arrays(**changes) -> dict[str, np.ndarray]:
  """What a good file of images holds, with changes; None leaves one out."""
  arrays = {
      'format': np.array('gridlu.goal_dataset'),
      'version': np.array(1),
      'instructions': np.array(['open the door', 'close the door']),
      'instruction': np.array([0, 1, 0]),
      'images': np.zeros((3, 4, 6, 3), np.uint8),
  }
  return {k: v for k, v in {**arrays, **changes}.items() if v is not None}


class GenerateTest(parameterized.TestCase):

  @parameterized.parameters(
      ('relations', 3551966465), ('arrangements', 2365612415))
  def test_generated_examples_are_valid_and_always_the_same(
      self, task, checksum):
    dataset, again, other = (
        goal_dataset.generate(task, 3000, seed) for seed in (0, 0, 1))
    self.assertEqual(dataset.states.shape, (3000, 27))
    self.assertIsNone(dataset.images)
    self.assertSetEqual(set(dataset.instruction),
                        set(range(len(dataset.instructions))))
    np.testing.assert_array_equal(again.states, dataset.states)
    # A run generates its own again when it resumes, also at a later commit.
    self.assertEqual(zlib.crc32(dataset.states.tobytes()), checksum)
    self.assertFalse(np.array_equal(other.states, dataset.states))
    self.assertEqual(goal_dataset.violations(dataset), 0)
    dataset.states[7, :25] = 0
    self.assertEqual(goal_dataset.violations(dataset), 1)

  @parameterized.parameters(('relations', 1), ('arrangements', 4))
  def test_goal_states_of_any_number_of_distractors(self, task, usual):
    made, plain = (
        goal_dataset.generate(task, 3000, 5, distractors=each)
        for each in ((0, 4), None))
    self.assertEqual(goal_dataset.violations(made), 0)

    def others(dataset):
      blocks = np.count_nonzero(world.unpack(dataset.states).blocks, (1, 2))
      needed = np.array([
          4 if task == 'arrangements' else 2 - ('AGENT' in text)
          for text in dataset.instructions])[dataset.instruction]
      takes = np.array([task == 'relations' or 'Color' in text for text in
                        dataset.instructions])[dataset.instruction]
      self.assertTrue(np.all((blocks == needed)[~takes]))
      return np.unique((blocks - needed)[takes], return_counts=True)

    numbers, counts = others(made)
    self.assertEqual(numbers.tolist(), [0, 1, 2, 3, 4])
    np.testing.assert_allclose(counts / counts.sum(), .2, atol=.06)
    self.assertEqual(others(plain)[0].tolist(), [usual])

  @parameterized.product(
      task=('relations', 'crowded', 'arrangements'),
      distractors=((5, 1), (-2, 1), (0, 22), (0.5, 1), ('0', '1'), (1,), 3))
  def test_wrong_numbers_of_distractors_are_named(self, task, distractors):
    with self.assertRaisesRegex(
        ValueError, f'distractors is {re.escape(repr(distractors))}: expected '
        f'a pair, .* from 0 to {21 if task == "arrangements" else 8}.$'):
      goal_dataset.generate(task, 2, 0, distractors=distractors)

  @parameterized.parameters(('relations', 8), ('arrangements', 21))
  def test_goal_states_of_the_most_distractors(self, task, most):
    with self.assertRaisesRegex(ValueError, f'from 0 to {most}.$'):
      goal_dataset.generate(task, 2, 0, distractors=(most, most + 1))
    made = goal_dataset.generate(task, 50, 0, distractors=(most, most))
    blocks = np.count_nonzero(world.unpack(made.states).blocks, (1, 2))
    self.assertEqual(blocks.max(), most + (2 if task == 'relations' else 4))
    self.assertEqual(goal_dataset.violations(made), 0)

  def test_examples_can_be_of_some_instructions(self):
    some = language.relations_instructions()[100:103]
    texts = [str(some[0]), some[1], str(some[2]).replace("'", '"'),
             str(some[0])]
    dataset = goal_dataset.generate('relations', 100, 0, texts)
    self.assertEqual(dataset.instructions, tuple(map(str, some)))
    self.assertEqual(goal_dataset.violations(dataset), 0)

  def test_some_agents_carry(self):
    free, half, every = (
        world.unpack(
            goal_dataset.generate('relations', 4000, 0, carrying=share).states)
        for share in (0.0, 0.5, 1.0))
    on_block = free.blocks[np.arange(4000), *free.agent.T] > 0
    self.assertBetween(on_block.sum(), 300, 3700)
    self.assertFalse(free.carrying.any())
    self.assertAlmostEqual(
        half.carrying[on_block].mean(), 0.5, delta=4 * 0.5 / 300**.5)
    self.assertFalse(half.carrying[~on_block].any())
    np.testing.assert_array_equal(every.carrying, on_block)
    np.testing.assert_array_equal(every.blocks, free.blocks)

  def test_no_goal_state_carries_where_a_block_must_be_put_down(self):
    dataset = goal_dataset.generate('put_down', 2000, 0)
    self.assertFalse(world.unpack(dataset.states).carrying.any())
    self.assertEqual(goal_dataset.violations(dataset, 'put_down'), 0)
    with self.assertRaisesRegex(
        ValueError, 'carrying is 0.5: expected 0 in the task put_down.*Leave'):
      goal_dataset.generate('put_down', 10, 0, carrying=0.5)

  def test_the_truth_of_the_named_task_decides_what_violates_it(self):
    dataset = goal_dataset.generate('relations', 2000, 0, carrying=1.0)
    self.assertEqual(goal_dataset.violations(dataset), 0)
    self.assertEqual(goal_dataset.violations(dataset, 'crowded'), 0)
    self.assertGreater(goal_dataset.violations(dataset, 'put_down'), 50)

  def test_bad_arguments_are_named(self):
    with self.assertRaisesRegex(ValueError, 'carrying is 1.5'):
      goal_dataset.generate('relations', 1, 0, carrying=1.5)
    for name, values in (('count', (0, 2.5, True, '3', None)),
                         ('seed', (-1, 1.5, 'x')), ('carrying', ('x', None))):
      for value in values:
        with self.assertRaisesRegex(ValueError, f'^{name} is {value!r}: exp'):
          goal_dataset.generate(
              **{'task': 'relations', 'count': 1, 'seed': 0, name: value})
    self.assertLen(goal_dataset.generate('relations', np.int64(3), 0), 3)
    with self.assertRaisesRegex(ValueError, r'count is 1e\+30: expected at'):
      goal_dataset.generate('relations', 10**30, 0)
    with self.assertRaisesRegex(ValueError, 'dataset has images'):
      goal_dataset.violations(goal_dataset.GoalDataset(
          ("SameLocation(AGENT, Color('red', SCENE))",), [0],
          images=np.zeros((1, 24, 24, 3), np.uint8)))

  def test_values_that_are_no_arrays_are_named(self):
    images = np.zeros((2, 4, 6, 3), np.uint8)
    for name, value, message in (
        ('images', [np.zeros((4, 6, 3))] * 2, 'is float64'),
        ('images', [images[0], images[1, :, :2]], 'is no array'),
        ('instruction', [[0], [0, 0]], 'is no array'),
        ('instructions', None, 'is None: expected a tuple'),
        ('instructions', 5, 'is 5: expected a tuple'),
        ('instructions', {'a', 'b'}, 'is {.*: expected a tuple'),
        ('instructions', {'a': 1}, 'is {.*: expected a tuple')):
      arguments = {'instructions': ('a',), 'instruction': [0, 0],
                   'images': images} | {name: value}
      with self.assertRaisesRegex(ValueError, f'^{name} {message}'):
        goal_dataset.GoalDataset(**arguments)


class FileTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self._path = os.path.join(folder, 'goals.npz')

  @parameterized.parameters(
      goal_dataset.generate('arrangements', 200, seed=0),
      goal_dataset.GoalDataset(
          ('\u00f6ffne', 'close'), np.array([1, 0]),
          images=np.arange(210, dtype=np.uint8).reshape(2, 5, 7, 3)))
  def test_loading_returns_what_was_saved(self, dataset):
    goal_dataset.save(self._path, dataset)
    loaded = goal_dataset.load(self._path)
    self.assertEqual(loaded.instructions, dataset.instructions)
    for name in 'instruction', 'states', 'images':
      np.testing.assert_array_equal(
          getattr(loaded, name), getattr(dataset, name))
    self.assertEqual(loaded.instruction.dtype, np.int32)

  def test_two_spellings_of_a_letter_are_one(self):
    one, other = (unicodedata.normalize(form, 'красный')
                  for form in ('NFC', 'NFD'))
    images = np.zeros((1, 5, 7, 3), np.uint8)
    self.assertEqual(goal_dataset.GoalDataset(
        (other,), np.array([0]), images=images).instructions, (one,))
    with self.assertRaisesRegex(ValueError, 'more than once'):
      goal_dataset.GoalDataset((one, other), np.array([0]), images=images)

  def test_instructions_are_a_tuple(self):
    images = np.zeros((2, 5, 7, 3), np.uint8)
    index = np.array([1, 0])
    dataset = goal_dataset.GoalDataset(
        iter(['open', 'close']), index, images=images)
    self.assertEqual(dataset.instructions, ('open', 'close'))
    with self.assertRaisesRegex(ValueError, "instructions is 'open'"):
      goal_dataset.GoalDataset('open', index, images=images)

  @parameterized.named_parameters(
      ('no_format', dict(format=None), 'it has images, inst.*: expected form'),
      ('unknown_array', dict(labels=np.zeros(3)),
       'it has .*, labels, version: expected format'),
      ('strange_array', {'a\x1b[2J\u202e': np.zeros(3)},
       r'it has a\\x1b\[2J\\u202e, format, .*: expected format'),
      ('other_version', dict(version=np.array(2)),
       'version is 2: this program reads .* version 1'),
      ('bytes', dict(instructions=np.array([b'open', b'close'])),
       r'instructions is .S5 \[2\]: expected strings \[.M.\]'),
      ('number', dict(instructions=np.array(3)),
       r'instructions is int64 \[\]: expected strings'),
      ('twice', dict(instructions=np.array(['open', 'open'])),
       "'open' more than once"),
      ('control', dict(instructions=np.array(['open', 'a\x1b[2J'])),
       r"instructions\[1\] is 'a\\x1b\[2J': .* no control characters"),
      ('nul', dict(instructions=np.array(['op\0en', 'close'])),
       r"instructions\[0\] is 'op\\x00en'"),
      ('surrogate', dict(instructions=np.array(['open', '\ud800'])),
       r"instructions\[1\] is '\\ud800'"),
      ('long', dict(instructions=np.array(['open', 'a' * 100_000])),
       'instructions has 100,000 characters: expected at most 1,000'),
      ('long_format', dict(format=np.array('a' * 100_000)),
       'format has 100,000 characters'),
      ('rows', dict(images=np.zeros((50, 4, 6, 3), np.uint8)),
       r'images is uint8 \[50, 4, 6, 3\]; expected uint8 \[3, None, None, 3\]'),
      ('blank', dict(instructions=np.array(['open', ' '])),
       r'instructions\[1\] is'),
      ('float_index', dict(instruction=np.zeros(3)),
       'instruction is float64.*whole numbers'),
      ('index_too_large', dict(instruction=np.array([0, 2, 0])),
       r'instruction\[1\] is 2.*the 2 instructions'),
      ('negative_index', dict(instruction=np.array([0, 0, -1])),
       r'instruction\[2\] is -1'),
      ('empty', dict(instruction=np.zeros(0, int),
                     images=np.zeros((0, 4, 6, 3), np.uint8)),
       r'int64 \[0\]: expected .* one example or more'),
      ('neither', dict(images=None), 'neither of states and images'),
      ('too_many', dict(instructions=np.arange(10_001).astype('<U5')),
       'instructions has 10,001 texts for 3 examples: expected at most 10,000'),
      ('both', dict(states=np.zeros((3, 27), np.uint8)), 'both of states and'),
      ('float_images', dict(images=np.zeros((3, 4, 6, 3), np.float32)),
       r'images is float32 .*; expected uint8 \[3, None, None, 3\]'),
      ('state_shape', dict(images=None, states=np.zeros((3, 26), np.uint8)),
       r'states is uint8 \[3, 26\]; expected uint8 \[3, 27\]'),
      ('block', dict(images=None, states=np.eye(3, 27, 4, np.uint8) * 10),
       r'states\[0, 4\] is 10: expected less than 10'),
      ('agent', dict(images=None, states=np.eye(3, 27, 25, np.uint8) * 25),
       r'states\[0, 25\] is 25: expected less than 25'),
      ('carrying', dict(images=None, states=np.eye(3, 27, 26, np.uint8) * 2),
       r'states\[0, 26\] is 2: expected less than 2'),
  )
  def test_bad_content_is_named(self, changes, message):
    np.savez(self._path, **_arrays(**changes))
    with self.assertRaisesRegex(program.UserError,
                                f'goals.npz: .*{message}'):
      goal_dataset.load(self._path)

  @parameterized.parameters('format', 'instructions')
  def test_a_character_that_unicode_lacks_is_refused(self, name):
    changed = _arrays()
    changed[name].reshape(-1).view(np.uint32)[0] = 0x110000
    np.savez(self._path, **changed)
    with self.assertRaisesRegex(
        program.UserError,
        f"'{name}.npy' has a character of number 1,114,112; expected at most"):
      goal_dataset.load(self._path)

  def test_many_examples_and_their_instructions_are_loaded(self):
    texts = np.arange(131_072).astype('<U6')
    states = np.zeros((131_072, 27), np.uint8)
    np.savez(self._path, **_arrays(
        instructions=texts, instruction=np.arange(131_072), images=None,
        states=states))
    self.assertEqual(
        goal_dataset.load(self._path).instructions, tuple(texts.tolist()))
    # A part of them may keep all instructions, if these are not very many.
    np.savez(self._path, **_arrays(
        instructions=texts[:10_000], instruction=np.arange(5), images=None,
        states=states[:5]))
    self.assertLen(goal_dataset.load(self._path).instructions, 10_000)

  def test_a_missing_file_is_named(self):
    with self.assertRaisesRegex(program.UserError,
                                'goals.npz: there is no such file.*GridLU'):
      goal_dataset.load(self._path)

  @parameterized.parameters(5, None, 'a\0b')
  def test_what_is_no_path_is_refused(self, wrong):
    dataset = goal_dataset.generate('relations', 1, 0)
    for use in (goal_dataset.load,
                lambda path: goal_dataset.save(path, dataset)):
      with self.assertRaisesRegex(
          program.UserError, f'path is {re.escape(repr(wrong))}: expected a p'):
        use(wrong)

  def test_a_folder_is_refused(self):
    with self.assertRaisesRegex(program.UserError, r'^\.: '):
      goal_dataset.load('.')

  def test_examples_of_another_world_are_refused(self):
    np.savez(self._path, **_arrays())
    with self.assertRaisesRegex(
        ValueError, r'shape \[4, 6, 3\]; this world needs uint8 \[5, 6, 3\]'):
      goal_dataset.load(self._path, [5, 6, 3])

  @parameterized.parameters(
      OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
      OSError(errno.EIO, os.strerror(errno.EIO)), MemoryError())
  def test_an_error_of_the_system_says_nothing_about_the_file(self, error):
    np.savez(self._path, **_arrays())
    with mock.patch('builtins.open', side_effect=error):
      with self.assertRaisesRegex(
          program.UserError,
          'the system cannot read it .*; the file itself may be whole'):
        goal_dataset.load(self._path)
    self.assertLen(goal_dataset.load(self._path, [4, 6, 3]), 3)

  def _run(self, *arguments):
    return programs.call(goal_dataset, *arguments)

  def test_the_program_writes_what_generate_returns(self):
    run = self._run(f'--output={self._path}', '--task=arrangements',
                    '--size=50', '--seed=3', '--carrying=1')
    self.assertEqual(run.returncode, 0, run.stderr)
    self.assertIn('50 goal states', run.stdout)
    np.testing.assert_array_equal(
        goal_dataset.load(self._path).states,
        goal_dataset.generate('arrangements', 50, 3, carrying=1.0).states)
    # It does not overwrite.
    run = self._run(f'--output={self._path}', '--size=60')
    self.assertEqual(run.returncode, 1)
    self.assertIn('exists already', run.stderr)
    self.assertLen(goal_dataset.load(self._path), 50)

  @parameterized.parameters(
      (['--output='], 'expected the name of a new file'),
      (['--output=/proc/goals.npz'], 'cannot be written'),
      (['--output=/nowhere/goals.npz'], 'there is no folder /nowhere'),
      (['--output={folder}'], 'expected the name of a new file'),
      (['--output={folder}/' + 300 * 'g', '--size=1'], 'too long'),
      (['--output={folder}/g', '--carrying=nan'], 'carrying is nan'),
      (['--output={folder}/g', '--carrying=1', '--task=put_down'],
       'carrying is 1.0: expected 0 in the task put_down'))
  def test_bad_input_is_named(self, arguments, message):
    folder = os.path.dirname(self._path)
    run = self._run(*(each.format(folder=folder) for each in arguments))
    self.assertEqual(run.returncode, 1)
    self.assertIn(message, run.stderr)
    self.assertEmpty(os.listdir(folder))
