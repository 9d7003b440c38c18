"""Tests for modules: the slots' shared computation is each tree's own."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions
from agile_tf.agent import modules
from agile_tf.agent.fast import convolutions
from gridlu import language
from tests.agile_tf.agent import network_oracles

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


class FilmNmnTest(parameterized.TestCase):

  @parameterized.parameters(
      'relations', 'arrangements', 'mixed', 'right_alone', 'chains')
  def test_mixed_batch_equals_each_tree_on_its_own(self, name):
    parse, texts, batch = _case(name)
    grammar = instructions.Grammar(texts, parse)
    tf.random.set_seed(1)
    nmn = modules.FilmNmn(grammar, modules.Initialization())
    parameters = {
        variable.name.split('/')[-1].removesuffix(':0'): variable
        for variable in nmn.trainable_variables}
    h_stem, weights = np.random.default_rng(2).normal(
        size=[2, len(batch), 3, 4, modules.CHANNELS])

    def compute(sources, apply):
      """The output, and its gradients to h_stem and the parameters."""
      with tf.GradientTape() as tape:
        tape.watch(sources)
        output = apply(sources[0])
        loss = tf.reduce_sum(tf.cast(weights, output.dtype) * output)
      return output, *map(tf.convert_to_tensor, tape.gradient(loss, sources))

    def shared(h):  # Features are space-major.
      return tf.transpose(nmn(
          tf.transpose(h, [1, 2, 0, 3]), tf.constant(grammar.encode(batch)),
          convolutions.Convolver()), [2, 0, 1, 3])

    h, *values = map(tf.constant, (
        h_stem, *(x.numpy().astype(float) for x in parameters.values())))

    def alone(h):
      return tf.stack([
          network_oracles.nmn(
              each, network_oracles.numbered(parse(text), grammar.tokens),
              **dict(zip(parameters, values)))
          for each, text in zip(tf.unstack(h), batch)])

    actual = compute(
        [tf.constant(h_stem, tf.float32), *parameters.values()], shared)
    expected = compute([h, *values], alone)
    for part, one, other in zip(['output', 'h', *parameters], actual, expected):
      self.assertGreater(np.abs(other).max(), 0.1)
      np.testing.assert_allclose(
          one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max(), err_msg=part)
