"""Tests for networks: heads, initial values, and functions of parameters."""

from concurrent import futures

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.fast import networks as fast
from gridlu import goal_dataset
from gridlu import language
from gridlu import tasks
from tests.agile_tf.agent import network_oracles

_TEXTS = [str(text) for text in language.relations_instructions()]
_ARRANGEMENTS = [str(text) for text in language.arrangements_instructions()]
_SHAPE = (56, 56, 3)
_WORLD = worlds.GridLUWorld()

# The standard deviation of a normal distribution that is cut at two sigma.
_TRUNCATED = 0.87962566

# Parameters by name: shape, and fan_in of weights.
_NMN = {
    'features/stem/patches/w': ((8, 8, 3, 16), 8 * 8 * 3),
    'features/stem/patches/b': ((16,), None),
    'features/stem/neighbours/w': ((3, 3, 16, 64), 3 * 3 * 16),
    'features/stem/neighbours/b': ((64,), None),
    'features/film_nmn/w': ((3, 3, 128, 64), 3 * 3 * 128),
    'features/film_nmn/gamma': ((12, 64), 12),  # Of an embedding: its tokens.
    'features/film_nmn/beta': ((12, 64), 12),
}
_MERGE = {
    'features/merge/convolution/w': ((3, 3, 128, 64), 3 * 3 * 128),
    'features/merge/convolution/b': ((64,), None),
}
_FILM = 16 + 32 + 3 * 64  # The channels of all five layers.
_LSTM = {
    'features/layer_1/w': ((8, 8, 3, 16), 8 * 8 * 3),
    'features/layer_2/w': ((3, 3, 16, 32), 3 * 3 * 16),
    'features/layer_3/w': ((3, 3, 32, 64), 3 * 3 * 32),
    'features/layer_4/w': ((3, 3, 64, 64), 3 * 3 * 64),
    'features/layer_5/w': ((3, 3, 64, 64), 3 * 3 * 64),
    'features/instruction_lstm/embeddings': ((12, 11), 12),
    'features/instruction_lstm/w': ((11 + 100, 400), 11 + 100),
    'features/instruction_lstm/b': ((400,), None),
    'features/gamma/w': ((100, _FILM), 100),
    'features/gamma/b': ((_FILM,), None),
    'features/beta/w': ((100, _FILM), 100),
    'features/beta/b': ((_FILM,), None),
}
_POLICY_HEADS = {
    'hidden/w': ((64, 100), 64),
    'hidden/b': ((100,), None),
    'logits/w': ((100, 5), 100),
    'logits/b': ((5,), None),
    'baseline/w': ((100, 1), 100),
    'baseline/b': ((1,), None),
    'reward_prediction/w': ((64, 2), 64),
    'reward_prediction/b': ((2,), None),
}
_DISCRIMINATOR_HEAD = {
    'hidden/w': ((64, 100), 64),
    'hidden/b': ((100,), None),
    'logit/w': ((100, 1), 100),  # And no bias.
}


_RIGHT_ALONE = {'one': ('a', (), ('b',)), 'two': ('b', (), ('a',))}
_CHAINS = ['go to red', 'red', 'to red', 'go go go']


def _gridlu_tree(text):
  return language.parse(text).tree


def _case(name):
  return {
      'relations': (_gridlu_tree, _TEXTS, _TEXTS[::124]),
      'arrangements': (_gridlu_tree, _ARRANGEMENTS, _ARRANGEMENTS[::5]),
      'mixed': (network_oracles.TREES.get, list(network_oracles.TREES),
                list(network_oracles.TREES)),
      'right_alone': (_RIGHT_ALONE.get, list(_RIGHT_ALONE),
                      list(_RIGHT_ALONE)),
      'chains': (instructions.chain, _CHAINS, _CHAINS),
  }[name]


def _network(kind, model='nmn'):
  pi, d = networks.make(model, _WORLD)
  return pi if kind == 'policy' else d


def _initial(network, seed):
  """The initial values by name."""
  return {name: value.numpy() for name, value in network.layout.split(
      network.initial(seed)).items()}


class NetworksTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._images = np.random.default_rng(0).uniform(
        size=[3, *_SHAPE]).astype(np.float32)
    self._texts = [_TEXTS[3], _TEXTS[400], _TEXTS[901]]
    self._trees = [language.parse(text).tree for text in self._texts]
    self._grammar = _WORLD.grammar
    self._codes = self._grammar.encode(self._texts)

  @parameterized.product(kind=('policy', 'discriminator'),
                         model=('nmn', 'lstm'))
  def test_outputs_are_the_formulas(self, kind, model):
    network = _network(kind, model)
    parameters = network_oracles.parameters(network, 1)
    expected = network_oracles.apply(
        getattr(network_oracles, kind), model, self._images, self._trees,
        self._grammar.tokens, network_oracles.variables(network, parameters))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        tf.nest.flatten(network.apply(
            parameters, self._images, self._codes)),
        tf.nest.flatten(expected))

  @parameterized.parameters(
      ('policy', 'nmn', _NMN | _MERGE | _POLICY_HEADS),
      ('policy', 'lstm', _LSTM | _POLICY_HEADS),
      ('discriminator', 'nmn', _NMN | _DISCRIMINATOR_HEAD),
      ('discriminator', 'lstm', _LSTM | _DISCRIMINATOR_HEAD))
  def test_initial_weights_have_the_papers_distribution(
      self, kind, model, expected):
    network = _network(kind, model)
    self.assertCountEqual(
        network.layout.names, [f'{kind}/{name}' for name in expected])
    self.assertEqual(network.initial(5).shape, (network.layout.size,))
    for name, value in _initial(network, 5).items():
      shape, fan_in = expected[name.partition('/')[2]]
      self.assertEqual(value.shape, shape, name)
      self.assertEqual(value.dtype, np.float32, name)
      if fan_in is None:
        np.testing.assert_array_equal(value, 0, name)
        continue
      sigma = fan_in**-0.5
      self.assertLessEqual(np.abs(value).max(), 2 * sigma * (1 + 1e-6), name)
      # Four standard errors at most.
      error = 4 / np.sqrt(2 * value.size)
      self.assertAlmostEqual(
          value.std() / sigma, _TRUNCATED, delta=error * _TRUNCATED, msg=name)
      self.assertAlmostEqual(
          value.mean() / sigma, 0, delta=4 / np.sqrt(value.size), msg=name)

  @parameterized.product(
      kind=('policy', 'discriminator'), model=('nmn', 'lstm'))
  def test_the_recipes_weights_before_a_relu_start_larger(self, kind, model):
    """Before a ReLU weights are larger; all others start as in the paper."""
    he, paper = (
        _initial(networks.make(model, _WORLD, initialization)[
            kind == 'discriminator'], 5)
        for initialization in (networks.HE, networks.PAPER))
    for name, value in he.items():
      is_relu = name.endswith('/w') and not any(
          part in name for part in (
              'logit', 'baseline', 'reward_prediction', 'gamma', 'beta',
              'lstm/w'))
      ratio = 2**0.5 / _TRUNCATED if is_relu else 1
      if 'film_nmn/w' in name:  # Half of the input channels are counted.
        ratio *= 2**0.5
      if name.endswith('logits/w') and 'reward' not in name:
        ratio = 0.01  # A uniform policy to begin with.
      np.testing.assert_allclose(
          value, ratio * paper[name], rtol=1e-5, err_msg=name)

  def test_an_unknown_model_is_named(self):
    with self.assertRaisesRegex(ValueError, "Model 'mlp': expected one of nmn"):
      _network('policy', 'mlp')

  def test_each_thread_has_its_own_parameters(self):
    """Eager calls from many threads at once do not mix their parameters."""
    network = _network('discriminator')
    arguments = tf.constant(self._images), tf.constant(self._codes)
    phis = [tf.constant(network.initial(seed)) for seed in range(4)]
    expected = [network.apply(phi, *arguments).numpy() for phi in phis]

    def call(i):
      for _ in range(4):
        np.testing.assert_array_equal(
            network.apply(phis[i], *arguments), expected[i])

    with futures.ThreadPoolExecutor(4) as pool:
      list(pool.map(call, range(4)))  # Raises their errors.


class FilmNmnTest(parameterized.TestCase):

  @parameterized.parameters(
      'relations', 'arrangements', 'mixed', 'right_alone', 'chains')
  def test_mixed_batch_equals_each_tree_on_its_own(self, name):
    parse, texts, batch = _case(name)
    grammar = instructions.Grammar(texts, parse)
    tf.random.set_seed(1)
    nmn = networks.FilmNmn(grammar, networks.Initialization())
    codes = tf.constant(grammar.encode(batch))
    nmn(tf.zeros([len(batch), 3, 4, networks.CHANNELS]), codes)
    parameters = {
        variable.name.split('/')[-1].removesuffix(':0'): variable
        for variable in nmn.trainable_variables}
    h_stem, weights = np.random.default_rng(2).normal(
        size=[2, len(batch), 3, 4, networks.CHANNELS])

    def compute(sources, apply):
      """The output, and its gradients to h_stem and the parameters."""
      with tf.GradientTape() as tape:
        tape.watch(sources)
        output = apply(sources[0])
        loss = tf.reduce_sum(tf.cast(weights, output.dtype) * output)
      return output, *map(tf.convert_to_tensor, tape.gradient(loss, sources))

    h, *values = map(tf.constant, (
        h_stem, *(x.numpy().astype(float) for x in parameters.values())))

    def alone(h):
      return tf.stack([
          network_oracles.nmn(
              each, network_oracles.numbered(parse(text), grammar.tokens),
              **dict(zip(parameters, values)))
          for each, text in zip(tf.unstack(h), batch)])

    actual = compute(
        [tf.constant(h_stem, tf.float32), *parameters.values()],
        lambda h: nmn(h, codes))
    expected = compute([h, *values], alone)
    for part, one, other in zip(['output', 'h', *parameters], actual, expected):
      self.assertGreater(np.abs(other).max(), 0.1)
      np.testing.assert_allclose(
          one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max(), err_msg=part)


class AllInstructionsTest(parameterized.TestCase):
  """Every instruction of GridLU, on a random state of its own."""

  def test_outputs_are_the_formulas(self):
    self._test_outputs('relations', 'policy', 'nmn', every=9)

  @parameterized.product(
      task=('relations', 'arrangements'), kind=('policy', 'discriminator'),
      model=('nmn', 'lstm'))
  @pytest.mark.slow
  def test_all_outputs_are_the_formulas(self, task, kind, model):
    self._test_outputs(task, kind, model)

  def _test_outputs(self, task, kind, model, every=1):
    world = worlds.GridLUWorld(task)
    texts = [str(text) for text in tasks.find(task).instructions()][::every]
    examples = goal_dataset.generate(task, len(texts), 0, carrying=0.5)
    pixels = world.pixels(examples.states) / 255
    codes = tf.constant(world.grammar.encode(texts))
    pair = networks.make(model, world)
    network = pair[kind == 'discriminator']
    parameters = network_oracles.large(network, 1)
    expected = tf.nest.flatten(network_oracles.apply(
        getattr(network_oracles, kind), model, tf.constant(pixels),
        [language.parse(text).tree for text in texts], world.grammar.tokens,
        network_oracles.variables(network, parameters)))
    for pi, d in pair, fast.accelerate(*pair, model, world):
      compute = tf.function(
          (d if kind == 'discriminator' else pi).at(parameters),
          autograph=False, jit_compile=True)
      # The fast one convolves a single state as usual, and a batch by minimal
      # filtering.
      for count, size in ((len(texts), len(texts)), (36, 1)):
        batches = [
            tf.nest.flatten(compute(
                examples.states[i:i + size], codes[i:i + size])[0])
            for i in range(0, count, size)]
        for actual, values in zip(zip(*batches), expected):
          largest = np.abs(values).max()
          self.assertGreater(largest, 0.1)
          np.testing.assert_allclose(
              np.concatenate(actual), values[:count], rtol=0,
              atol=1e-4 * largest)
