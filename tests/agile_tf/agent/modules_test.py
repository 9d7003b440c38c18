"""Tests for modules: the slots' shared computation is each tree's own."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions
from agile_tf.agent import modules
from agile_tf.agent.fast import convolutions
from gridlu import language
from tests.agile_tf.agent import network_oracles

_PAPER = modules.Initialization()
_RELATIONS = [str(text) for text in language.relations_instructions()]
_ARRANGEMENTS = [str(text) for text in language.arrangements_instructions()]

# Sets of trees that differ in arity, in depth and in who takes the scene.
_MIXED = {
    'unary leaf': ('a',),
    'unary': ('b', ('a',)),
    'scene right': ('c', ('a',), ()),
    'scene left': ('c', (), ('a',)),
    'scene twice': ('c', (), ()),
    'binary below unary': ('b', ('c', ('a',), ('b',))),
    'deep right': ('c', ('b',), ('b', ('a',))),
    'just the scene': (),
}
_RIGHT_ALONE = {'one': ('a', (), ('b',)), 'two': ('b', (), ('a',))}
_CHAINS = ['go to red', 'red', 'to red', 'go go go']


def _gridlu_tree(text):
  return language.parse(text).tree


def _case(name):
  return {
      'relations': (_gridlu_tree, _RELATIONS, _RELATIONS[::124]),
      'arrangements': (_gridlu_tree, _ARRANGEMENTS, _ARRANGEMENTS[::5]),
      'mixed': (_MIXED.get, list(_MIXED), list(_MIXED)),
      'right_alone': (_RIGHT_ALONE.get, list(_RIGHT_ALONE),
                      list(_RIGHT_ALONE)),
      'chains': (instructions.chain, _CHAINS, _CHAINS),
  }[name]


def _features(images):
  """Space-major features of [B, h, w, channels]."""
  return tf.transpose(images, [1, 2, 0, 3])


def _images(features):
  """[B, h, w, channels] of space-major features."""
  return tf.transpose(features, [2, 0, 1, 3])


class FilmNmnTest(parameterized.TestCase):

  def _make(self, name):
    """A grammar's network, and a batch of different instructions for it."""
    parse, texts, batch = _case(name)
    grammar = instructions.Grammar(texts, parse)
    tf.random.set_seed(1)
    nmn = modules.FilmNmn(grammar, _PAPER)
    h_stem = np.random.default_rng(2).normal(
        size=[len(batch), 3, 4, modules.CHANNELS]).astype(np.float32)
    parameters = {
        variable.name.split('/')[-1].removesuffix(':0'): variable
        for variable in nmn.trainable_variables}
    return grammar, nmn, h_stem, parameters, [parse(text) for text in batch], (
        grammar.encode(batch))

  @parameterized.parameters(
      'relations', 'arrangements', 'mixed', 'right_alone', 'chains')
  def test_mixed_batch_equals_each_tree_on_its_own(self, name):
    grammar, nmn, h_stem, parameters, trees, codes = self._make(name)
    output = _images(nmn(
        _features(h_stem), tf.constant(codes), convolutions.Convolver()))
    p = {key: value.numpy().astype(np.float64)
         for key, value in parameters.items()}
    for h, tree, actual in zip(h_stem, trees, output.numpy()):
      expected = network_oracles.nmn(
          h.astype(np.float64), tree, grammar.tokens, **p)
      np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
      self.assertGreater(np.std(expected), 0.01)

  @parameterized.parameters('relations', 'arrangements', 'mixed', 'right_alone')
  def test_gradients_equal_those_of_plain_trees(self, name):
    grammar, nmn, h_stem, parameters, trees, codes = self._make(name)
    weights = tf.constant(np.random.default_rng(3).normal(
        size=h_stem.shape).astype(np.float32))
    sources = [tf.constant(h_stem), *parameters.values()]
    with tf.GradientTape() as tape:
      tape.watch(sources[0])
      loss = tf.reduce_sum(
          weights * _images(nmn(
              _features(sources[0]), tf.constant(codes),
              convolutions.Convolver())))
    actual = tape.gradient(loss, sources)
    with tf.GradientTape() as tape:
      tape.watch(sources[0])
      outputs = [
          network_oracles.nmn(h, tree, grammar.tokens, **{
              name: tf.convert_to_tensor(value)
              for name, value in parameters.items()})
          for h, tree in zip(tf.unstack(sources[0]), trees)]
      loss = tf.reduce_sum(weights * tf.stack(outputs))
    expected = tape.gradient(loss, sources)
    for name, one, other in zip(['h', *parameters], actual, expected):
      other = tf.convert_to_tensor(other).numpy()
      self.assertGreater(np.abs(other).max(), 0.1)
      np.testing.assert_allclose(
          one.numpy(), other, rtol=1e-3, atol=1e-4 * np.abs(other).max(),
          err_msg=name)


if __name__ == '__main__':
  absltest.main()
