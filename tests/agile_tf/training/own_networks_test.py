"""Tests for networks that a user's function makes."""

import importlib
import os
import pathlib
import re
import sys
from unittest import mock

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import optimizers
from agile_tf.training import own_networks
from gridlu import goal_dataset
from gridlu import language

_TEXTS = [str(text) for text in language.relations_instructions()]
_WORLD = worlds.GridLUWorld()

_OWN = """
import os
import sonnet as snt
import tensorflow as tf
from agile_tf.agent import networks

class Linear(snt.Module):
  def __init__(self, units, name):
    super().__init__(name=name)
    self._layer = snt.Linear(units, name='layer')
    self._words = snt.Embed(20, units, name='words')
    self._rows = tf.Variable(tf.zeros([3, units]), name='rows')
  def __call__(self, images, codes):
    words = self._words(tf.maximum(codes, 0))
    row = tf.gather(self._rows, [2]) + tf.gather_nd(self._rows, [[2]])
    return self._layer(snt.flatten(images)) + tf.reduce_sum(words, 1) + row

class Policy(Linear):
  def __call__(self, images, codes):
    x = super().__call__(images, codes)
    return networks.PolicyOutput(x[:, :-3], x[:, -3], x[:, -2:])

class D(Linear):
  def __call__(self, images, codes):
    return super().__call__(images, codes)[:, 0]

class Twice(Linear):
  def __init__(self, units, name):
    super().__init__(units, name)
    self._other = snt.Linear(units, name='layer')
  def __call__(self, images, codes):
    return self._other(super().__call__(images, codes))[:, 0]

def make(world):
  return networks.Pair(Policy(world.num_actions + 3, 'policy'), D(1, 'd'))

def make_hidden(world):
  inner = D(1, 'd')
  class Hidden(snt.Module):
    def __init__(self):
      super().__init__(name='hidden')
      self._call = [lambda images, codes: inner(images, codes)]
    def __call__(self, images, codes):
      return self._call[0](images, codes)
  return make(world)._replace(discriminator=Hidden())

def make_one(world):
  return make(world)[0]

def make_narrow(world):
  return make(world)._replace(policy=Policy(world.num_actions, 'policy'))

def make_logits(world):
  return make(world)._replace(policy=D(1, 'policy'))

def make_twice(world):
  return make(world)._replace(discriminator=Twice(1, 'd'))

def make_without_rewards(world):
  class NoRewards(Policy):
    def __call__(self, images, codes):
      return super().__call__(images, codes)._replace(reward_logits=None)
  return make(world)._replace(policy=NoRewards(world.num_actions + 3, 'policy'))

def make_half(world):
  class Half(D):
    def __call__(self, images, codes):
      return tf.cast(super().__call__(images, codes), tf.float16)
  return make(world)._replace(discriminator=Half(1, 'd'))

def make_function(world):
  return make(world)._replace(discriminator=lambda images, codes: images[:, 0])

def make_constant(world):
  class Constant(snt.Module):
    def __call__(self, images, codes):
      return images[:, 0, 0, 0]
  return make(world)._replace(discriminator=Constant())

_KEPT = []

def make_same(world):
  _KEPT.append(D(1, 'd'))
  return make(world)._replace(discriminator=_KEPT[0])

def make_counter(world, trainable=False):
  class Counter(D):
    def __call__(self, images, codes):
      if not hasattr(self, '_calls'):
        self._calls = tf.Variable(0.0, trainable=trainable, name='calls')
      self._calls.assign_add(1)
      return super().__call__(images, codes)
  return make(world)._replace(discriminator=Counter(1, 'd'))

def make_trainable_counter(world):
  return make_counter(world, trainable=True)

def make_random(world):
  class Random(D):
    def __call__(self, images, codes):
      return super().__call__(tf.nn.dropout(images, .5), codes)
  return make(world)._replace(discriminator=Random(1, 'd'))

def make_text(world):
  return make(world)._replace(tables='words')

def make_table(world):
  return make(world)._replace(tables=('vectors',))

def make_lender(world):
  return make(world)._replace(lent=('layer', 'stem'))

def make_nothing():
  pass

def leave(world):
  raise SystemExit(0)

def move(world):
  os.chdir('..')
"""


class OwnNetworksTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = self.create_tempdir()
    self.enter_context(
        mock.patch.object(sys, 'path', [self._folder.full_path, *sys.path]))
    self.enter_context(mock.patch.dict(sys.modules))

  def _file(self, name, content):
    self._folder.create_file(f'{name}.py', content=content)
    importlib.invalidate_caches()

  def test_gradients_are_those_of_the_modules(self):
    self._file('own_networks', _OWN)
    pi, d = own_networks.load('own_networks:make', _WORLD)
    rng = np.random.default_rng(0)
    observations = goal_dataset.generate('relations', 6, 0).states.reshape(
        [3, 2, -1])
    codes = _WORLD.grammar.encode(_TEXTS[:6]).reshape([3, 2, -1])
    images = _WORLD.pixels(observations.reshape([6, -1])).reshape([6, -1]) / 255
    weights = tf.constant(rng.normal(size=[3, 2]), tf.float32)
    gradients, extras = d.gradients(
        tf.constant(d.initial(0)), tf.constant(observations),
        tf.constant(codes),
        lambda logits: (tf.reduce_sum(weights * logits, 1), logits.shape))
    self.assertEqual(extras, [3, 2])
    self.assertLen(gradients, 3)
    for w, gradient in enumerate(gradients):
      parts = d.layout.split(gradient)
      np.testing.assert_allclose(
          parts['d/layer/w'][:, 0],
          weights[w].numpy() @ images[2 * w:2 * w + 2], rtol=1e-4, atol=1e-5)
      np.testing.assert_allclose(
          parts['d/layer/b'], [sum(weights[w].numpy())], rtol=1e-5)
      # Two of the three rows of this table are not looked up.
      np.testing.assert_allclose(
          parts['d/rows'][:, 0], [0, 0, 2 * sum(weights[w].numpy())],
          rtol=1e-5)
      counts = np.zeros([20])
      for weight, row in zip(weights[w].numpy(), codes[w]):
        np.add.at(counts, np.maximum(row, 0), weight)
      np.testing.assert_allclose(
          parts['d/words/embeddings'][:, 0], counts, rtol=1e-4, atol=1e-5)
    self.assertEqual(d.layout.lends(pi.layout), {})
    self.assertEqual(
        [optimizers.has_columns(d.layout, name) for name in d.layout.names],
        [name in ('d/layer/w', 'd/rows') for name in d.layout.names])

  def _example(self, name):
    """Writes the file of this name that the page shows."""
    text = pathlib.Path(__file__).parents[3].joinpath(
        'docs/own_networks.md').read_text('utf-8')
    _, _, rest = text.partition(f'`{name}.py`')
    self._file(name, re.search(
        r'```python\n(import sonnet.*?)```', rest, re.DOTALL)[1])

  def test_variables_that_are_no_attributes_are_found(self):
    self._file('own_networks', _OWN)
    _, d = own_networks.load('own_networks:make_hidden', _WORLD)
    _, other = own_networks.load('own_networks:make', _WORLD)
    self.assertEqual(d.layout.names, other.layout.names)

  def test_a_bag_of_words_does_not_know_their_order(self):
    self._example('bag_of_words')
    pi, d = own_networks.load('bag_of_words:make', _WORLD)
    texts = ["NorthFrom(Color('red', SCENE), Color('blue', SCENE))",
             "NorthFrom(Color('blue', SCENE), Color('red', SCENE))",
             "SouthFrom(Color('blue', SCENE), Color('red', SCENE))"]
    states = goal_dataset.generate('relations', 1, 0).states.repeat(3, axis=0)
    logits = d.apply(
        tf.constant(d.initial(0)), _WORLD.images(tf.constant(states)),
        tf.constant(_WORLD.grammar.encode(texts))).numpy()
    self.assertAlmostEqual(logits[0], logits[1], places=5)
    self.assertNotAlmostEqual(logits[0], logits[2], places=3)
    self.assertEqual(
        d.layout.lends(pi.layout),
        {name: name.replace('policy', 'discriminator')
         for name in pi.layout.names if '/trunk/' in name})
    self.assertEqual(
        {name.partition('/')[2] for name in d.layout.names
         if optimizers.has_columns(d.layout, name)},
        {'logit/w', 'trunk/neighbours/w', 'trunk/patches/w'})

  def test_the_networks_of_the_page(self):
    self._example('my_networks')
    pi, d = own_networks.load('my_networks:make', _WORLD)
    shapes = dict(zip(pi.layout.names, pi.layout.shapes))
    self.assertEqual(
        shapes['policy/features/stem/patches/w'], (8, 8, 3, 32))
    self.assertEqual(
        d.layout.lends(pi.layout),
        {name: name.replace('policy', 'discriminator') for name in shapes
         if '/features/stem/' in name or '/film_nmn/' in name})
    self.assertEqual(
        {name.rsplit('/', 1)[-1] for name in d.layout.names
         if optimizers.has_columns(d.layout, name)}, {'w'})

  @parameterized.parameters(
      ('own_networks', 'not the name of a function'),
      ('no_such_module:make', 'no_such_module'),
      ('own_networks:other', 'other'),
      ('own_networks:make_nothing', 'too many positional'),
      ('own_networks:make_one', 'returned Policy; expected an agile_tf.agent'),
      ('own_networks:make_narrow', r'The policy .* expected PolicyOutput'),
      ('own_networks:make_logits', r'The policy .* returned float32 \[2\] for'),
      ('own_networks:make_without_rewards',
       r"reward_logits='NoneType'\).* expected .*'float32 \[2, 2\]'"),
      ('own_networks:make_half', r'returned float16 \[2\] .* float32 \[2\]'),
      ('own_networks:make_function', 'of type function; expected a module of'),
      ('own_networks:make_constant', 'uses no trainable variable'),
      ('own_networks:make_same', 'the same discriminator in two calls'),
      ('own_networks:make_counter', 'd/calls:0, which is not trainable'),
      ('own_networks:make_trainable_counter', 'changes its variable d/calls:0'),
      ('own_networks:make_random', 'other values .* as dropout does'),
      ('own_networks:make_text', r"tables .* are 'words'; .* \('words',\)"),
      ('own_networks:make_table', "table 'vectors'.* expected of .*embeddings"),
      ('own_networks:make_lender', "lends 'stem', .* has these: d/"),
      ('own_networks:make_twice', 'several parameters of the name d/layer/'),
      ('own_networks:leave', r'leave\(\) called exit\(0\)'),
      ('own_networks:move', r'move\(\) changed the current directory'))
  def test_functions_that_make_no_networks_are_refused(self, name, message):
    self._file('own_networks', _OWN)
    before = os.getcwd()
    with self.assertRaisesRegex(own_networks.ModelError, message):
      own_networks.load(name, _WORLD)
    self.assertEqual(os.getcwd(), before)
