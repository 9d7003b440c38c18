"""Tests for functions: what they take, and what they answer with."""

import collections

from absl.testing import parameterized
import numpy as np

from agile_tf.evaluation import functions

_IMAGES = np.zeros([2, 24, 32, 3], np.uint8)
_SHAPE = r'uint8 \[2, 24, 32, 3\]'


def _network(images, texts):
  """Returns the mean of each image, and the length of each text."""
  return np.stack([images.mean((1, 2, 3)), [len(text) for text in texts]], 1)


class FunctionsTest(parameterized.TestCase):

  @parameterized.parameters(
      (None, ['a', 'b'], rf'images is object \[\]; expected {_SHAPE}'),
      ('x', ['a', 'b'], rf'images is <U1 \[\]; expected {_SHAPE}'),
      (5, [], r'images is int64 \[\]; expected uint8 \[0, 24, 32, 3\]'),
      ([[1], [1, 2]], ['a', 'b'], rf'images is no array .*expected {_SHAPE}'),
      (_IMAGES / 255, ['a', 'b'], rf'images is float64.*expected {_SHAPE}'),
      (_IMAGES[0], ['a', 'b'], rf'images is uint8 \[24, .*expected {_SHAPE}'),
      (_IMAGES, 'ab', "instructions is the string 'ab'; expected a list"),
      (_IMAGES, b'ab', "instructions is b'ab'; expected a list"),
      (_IMAGES, None, 'instructions is None; expected a list of strings'),
      (_IMAGES, iter('ab'), 'instructions is <str_.*; expected a list of'),
      (_IMAGES, {'a': 1, 'b': 2}, 'instructions is {.*; expected a list of'),
      (_IMAGES, {'a', 'b'}, 'instructions is {.*; expected a list of strings'),
      (_IMAGES, np.array('ab'), 'instructions is array.*; expected a list'))
  def test_what_they_cannot_take_is_named(self, images, texts, message):
    for make in functions.reward_model, functions.policy:
      with self.assertRaisesRegex(ValueError, message):
        make(_network, _IMAGES.shape[1:])(images, texts)

  @parameterized.parameters(
      (list,), (tuple,), (np.array,), (collections.deque,),
      (lambda texts: np.array(texts, object),))
  def test_any_list_of_texts_and_any_layout_of_images_will_do(self, kind):
    images = np.random.default_rng(0).integers(
        256, size=[2, 24, 32, 3]).astype(np.uint8)
    images = np.lib.stride_tricks.as_strided(
        images[:, ::-1, ::2], writeable=False)
    answers = functions.reward_model(
        lambda images, texts: _network(images, texts).sum(1), images.shape[1:]
        )(images, kind(['a', 'bcd']))
    np.testing.assert_allclose(answers, 1 / (1 + np.exp(
        -images.mean((1, 2, 3)) / 255 - [1, 3])), rtol=1e-6)

  def test_nothing_is_answered_with_nothing(self):
    for make, dtype in ((functions.reward_model, np.float32),
                        (functions.policy, np.int32)):
      for images in [], _IMAGES[:0], np.zeros([0, 5]):
        answer = make(_network, _IMAGES.shape[1:])(images, [])
        self.assertEqual((answer.shape, answer.dtype), ((0,), dtype))

  @parameterized.parameters(
      (dict(seed=-1), 'seed is -1; expected a whole number of at least 0'),
      (dict(seed='x'), "seed is 'x'; expected a whole number"),
      (dict(seed=1.5), 'seed is 1.5; expected a whole number'),
      (dict(greedy='no'), "greedy is 'no'; expected True or False"))
  def test_settings_of_a_policy_that_it_cannot_have_are_named(
      self, settings, message):
    with self.assertRaisesRegex(ValueError, message):
      functions.policy(_network, _IMAGES.shape[1:], **settings)
