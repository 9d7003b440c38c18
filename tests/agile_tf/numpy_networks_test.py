"""Tests for the networks in NumPy, against appendix H term by term."""

import glob
import textwrap

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

import agile_tf
from agile_tf import numpy_networks
from agile_tf.training import checkpoints
from gridlu import language
from gridlu import rendering
from gridlu import tasks
from tests.agile_tf.agent import network_oracles

_TOKENS = tasks.find('relations').tokens


def _parameters(model, kind, num_tokens=12):
  """Draws parameters with which instructions make a large difference."""
  rng = np.random.default_rng(0)
  drawn = {}
  for name, shape in numpy_networks.shapes(model, kind, num_tokens, 5).items():
    scale = 1.0 if len(shape) == 2 and shape[0] == num_tokens else 0.2
    if name.endswith('/w'):
      scale = (0.3 if name.endswith(('gamma/w', 'beta/w')) else
               1.5 * np.prod(shape[:-1])**-0.5)
    drawn[name] = rng.normal(scale=scale, size=shape).astype(np.float32)
  return drawn


def _expected(model, kind, p, tokens, images, trees):
  return [np.asarray(x) for x in tf.nest.flatten(network_oracles.apply(
      getattr(network_oracles, kind), model, tf.constant(images), trees, tokens,
      {name: tf.constant(value, tf.float64) for name, value in p.items()}))]


def _boards(count):
  """Returns images and instructions, half of which do not fit them."""
  instructions = tasks.find('crowded').instructions()
  rng = np.random.default_rng(0)
  drawn, states = tasks.find('crowded').goal_states(rng, count, None)
  drawn[::2] = rng.permutation(drawn[::2])
  return (rendering.render(states), [str(instructions[i]) for i in drawn])


class NumpyNetworksTest(parameterized.TestCase):

  @parameterized.product(model=('nmn', 'lstm'),
                         kind=('policy', 'discriminator'))
  def test_outputs_are_the_formulas(self, model, kind):
    images, texts = _boards(20)
    images = images.astype(np.float32) / 255
    trees = [language.parse(text).tree for text in texts]
    p = _parameters(model, kind)
    outputs = getattr(numpy_networks, kind)(p, _TOKENS, images, trees)
    for actual, expected in zip(
        tf.nest.flatten(outputs),
        _expected(model, kind, p, _TOKENS, images, trees), strict=True):
      self.assertEqual((actual.dtype, actual.shape),
                       (np.float32, expected.shape))
      largest = np.abs(expected).max()
      self.assertGreater(largest, 0.1)
      np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * largest)

  @parameterized.product(model=('nmn', 'lstm'))
  def test_trees_of_any_form_and_images_of_any_size(self, model):
    tokens = ('a', 'b', 'c')
    p = _parameters(model, 'discriminator', num_tokens=3)
    trees = [('a',), ('b', ()), ('a', (), ('b',)), ('c', ('b',), ()),
             ('a', ('b', ('c', ('a',)))), ('a', ('b', (), ()), ('c', ('a',)))]
    images = np.random.default_rng(0).random([6, 45, 26, 3], np.float32)
    expected, = _expected(model, 'discriminator', p, tokens,
                          # The patches leave the last rows and columns out.
                          images[:, :40, :24], trees)
    np.testing.assert_allclose(
        numpy_networks.discriminator(p, tokens, images, trees), expected,
        rtol=1e-4, atol=1e-5)

  def test_unknown_tokens_are_named(self):
    with self.assertRaisesRegex(ValueError, "the token 'd'; .* knows a, b"):
      numpy_networks.discriminator(
          _parameters('nmn', 'discriminator', 2), 'ab',
          np.zeros([1, 24, 24, 3], np.float32), [('a', ('d',))])

  def test_probabilities_of_the_trained_agent_agree_on_1000_boards(self):
    images, texts = _boards(1000)
    pixels = images.astype(np.float32) / 255
    trees = [language.parse(text).tree for text in texts]
    checkpoint = checkpoints.load(agile_tf.TRAINED)
    loaded = {kind: {
        name.removeprefix(f'{kind}/'): value
        for name, value in checkpoint.group(kind).items()}
              for kind in ('discriminator', 'policy')}
    logits, = _expected('nmn', 'discriminator', loaded['discriminator'],
                        _TOKENS, pixels, trees)
    probabilities = 1 / (1 + np.exp(-logits))
    self.assertBetween(np.mean(probabilities > 0.5), 0.3, 0.7)
    for backend, most in ('numpy', 1e-5), ('tensorflow', 1e-4):
      np.testing.assert_allclose(
          agile_tf.load_reward_model(
              agile_tf.TRAINED, backend=backend)(images, texts),
          probabilities, rtol=0, atol=most)
    logits, *_ = _expected(
        'nmn', 'policy', loaded['policy'], _TOKENS, pixels, trees)
    outputs = numpy_networks.policy(loaded['policy'], _TOKENS, pixels, trees)
    np.testing.assert_allclose(
        tf.nn.softmax(outputs.logits), tf.nn.softmax(logits), rtol=0, atol=1e-5)

  def test_the_example_of_the_module_runs(self):
    path, = glob.glob(f'{agile_tf.TRAINED}/checkpoints/*/arrays.npz')
    example = textwrap.dedent(numpy_networks.__doc__.split('\n\n')[-1])
    images, texts = _boards(3)
    names = {'np': np, 'numpy_networks': numpy_networks, 'tokens': _TOKENS,
             'images': images.astype(np.float32) / 255,
             'trees': [language.parse(text).tree for text in texts]}
    exec(example.replace("'arrays.npz'", repr(path)), names)
    np.testing.assert_allclose(
        1 / (1 + np.exp(-names['logits'])),
        agile_tf.load_reward_model(agile_tf.TRAINED, backend='numpy')(
            images, texts), rtol=1e-5)
