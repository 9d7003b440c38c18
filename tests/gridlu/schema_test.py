"""Tests for schema."""

from absl.testing import parameterized
import numpy as np

from gridlu import schema

_CHECK = schema.named({
    'steps': schema.whole(0, 9), 'tokens': schema.each(schema.TEXT),
    'pair': schema.each(schema.BOOL, 2), 'sums': schema.by_name(schema.number),
    'board': schema.either(schema.NOTHING, schema.whole(1))},
                      {'name': schema.TEXT})
_RIGHT = {'steps': 9, 'tokens': ['red'], 'pair': [True, False],
          'sums': {'loss': -1.5, 'x': 3}, 'board': None}


class SchemaTest(parameterized.TestCase):

  @parameterized.parameters(
      {}, {'name': 'a'}, {'board': 1}, {'tokens': []}, {'other': object()},
      {'sums': {'loss': float('nan'), 'y': 2**1000}})
  def test_right_values_are_accepted(self, **changes):
    _CHECK(_RIGHT | changes, '')

  @parameterized.parameters(
      ({'steps': 10}, r'steps is 10: expected a whole number from 0 to 9'),
      ({'steps': -1}, 'steps is -1'), ({'steps': True}, 'steps is True'),
      ({'steps': 1.0}, 'steps is 1.0'), ({'steps': 'x'}, "steps is 'x'"),
      ({'steps': None}, 'steps is None'), ({'steps': [1]}, 'steps is a list'),
      ({'tokens': 'red'}, "tokens is 'red': expected a list"),
      ({'tokens': ['red', 3]}, r'tokens\[1\] is 3: expected a text'),
      ({'pair': [True]}, 'pair is a list: expected a list of 2 values'),
      ({'pair': [True, 1]}, r'pair\[1\] is 1: expected true or false'),
      ({'sums': []}, 'sums is a list: expected values by name'),
      ({'sums': {'loss': '1'}}, "sums.loss is '1': expected a number"),
      ({'sums': {'a b\x1b': True}}, r"sums.'a b\\x1b' is True"),
      ({'sums': {'x': 10**400}}, r'sums.x is 1000*\.\.\.: expected a number'),
      ({'board': 0}, 'board is 0: expected a whole number of at least 1'),
      ({'name': 3}, 'name is 3: expected a text'))
  def test_wrong_values_are_named_with_their_place(self, changes, problem):
    with self.assertRaisesRegex(ValueError, f'^{problem}'):
      _CHECK(_RIGHT | changes, '')
    with self.assertRaisesRegex(ValueError, f'^file.{problem}'):
      _CHECK(_RIGHT | changes, 'file')

  def test_numbers_of_things_are_counted_from_one(self):
    schema.count(1, 'size')
    schema.count(np.int64(3), 'size')
    for wrong, shown in ((0, '0'), (np.int32(-1), '-1'), (2.5, '2.5'),
                         (True, 'True'), ('3', "'3'"), (None, 'None'),
                         (np.ones(2, int), 'a ndarray')):
      with self.assertRaisesRegex(
          ValueError, f'^size is {shown}: expected a whole number of at least'):
        schema.count(wrong, 'size')

  @parameterized.parameters(
      (None, 'it is None: expected an object with steps, tokens'),
      ([], 'it is a list'), ('x', "it is 'x'"), ({}, 'it lacks steps, tokens'))
  def test_a_file_without_an_object_is_refused(self, value, problem):
    with self.assertRaisesRegex(ValueError, problem):
      _CHECK(value, '')

  def test_states_of_generators_are_checked(self):
    rng = np.random.default_rng(0)
    rng.integers(2**32, dtype=np.uint32)
    right = rng.bit_generator.state
    schema.generator(right, 'rng')
    other = np.random.Generator(np.random.Philox(0)).bit_generator.state
    for wrong in (
        right | {'state': right['state'] | {'state': -1}},
        right | {'state': right['state'] | {'inc': 2**200}},
        right | {'state': 5}, right | {'has_uint32': 2},
        right | {'uinteger': 2**32}, right | {'bit_generator': 'MT19937'},
        right | {'bit_generator': ['PCG64']}, other, {}, None, 'x'):
      with self.assertRaisesRegex(ValueError, '^rng'):
        schema.generator(wrong, 'rng')
