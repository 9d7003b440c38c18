"""Tests that the fast networks are the plain ones: outputs and gradients."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.fast import networks as fast
from gridlu import goal_dataset
from gridlu import language
from tests.agile_tf.agent import network_oracles

_WIDTH, _ROWS = 3, 4


def _gridlu(rng):
  """A world of tiles, whose images minimal filtering is for; and examples."""
  world = worlds.GridLUWorld()
  texts = [str(text) for text in language.relations_instructions()[::83]]
  states = goal_dataset.generate('relations', 64, 0, carrying=0.5).states
  return world, texts, states[rng.integers(64, size=_WIDTH * _ROWS)]


def _images(rng):
  """A world of images that minimal filtering is not for; and examples."""
  shape = 43, 50, 3  # A board of 3 x 4, and a margin without patches.
  trees = network_oracles.TREES
  world = worlds.EnvironmentWorld(
      None, instructions.Grammar(list(trees), trees.get), shape,
      num_actions=3, goal_examples='', has_ground_truth=False)
  return world, list(trees), rng.integers(
      256, size=[_WIDTH * _ROWS, *shape]).astype(np.uint8)


class NetworksTest(parameterized.TestCase):

  def _assert_close(self, actual, expected, message=''):
    """Compares numbers by the largest, and all together by their norm.

    Where a ReLU's input is nearly 0, its sign may be another, and with it one
    row's share of a gradient.
    """
    largest = np.abs(expected).max()
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=2e-3 * largest, err_msg=message)
    self.assertLessEqual(
        np.linalg.norm(np.subtract(actual, expected)),
        5e-4 * np.linalg.norm(expected), message)

  @parameterized.product(
      make=(_gridlu, _images), model=networks.MODELS, index=(0, 1))
  def test_outputs_and_gradients_are_those_of_plain_networks(
      self, make, model, index):
    rng = np.random.default_rng(0)
    world, texts, observations = make(rng)
    codes = world.grammar.encode(
        [texts[i % len(texts)] for i in range(len(observations))])
    pair = networks.make(model, world)
    plain = pair[index]
    quick = fast.accelerate(*pair, model, world)[index]
    theta = network_oracles.large(plain, 1)
    flat = tf.constant(observations), tf.constant(codes)
    outputs, activations = quick.at(theta)(*flat)
    expected, nothing = plain.at(theta)(*flat)
    self.assertEmpty(nothing)
    tf.nest.map_structure(self._assert_close, outputs, expected)

    by_worker = [
        tf.reshape(x, [_WIDTH, _ROWS, *x.shape[1:]]) for x in flat]
    weights = tf.nest.map_structure(
        lambda x: tf.constant(rng.normal(size=[_WIDTH, _ROWS, *x.shape[1:]]),
                              tf.float32), expected)

    def losses(output):
      """Each worker's loss, and what else a loss may return."""
      self.assertEqual(tf.nest.flatten(output)[0].shape[:2], [_WIDTH, _ROWS])
      return sum(
          tf.reduce_sum(tf.reshape(w * tf.sin(x), [_WIDTH, -1]), 1)
          for w, x in zip(*map(tf.nest.flatten, (weights, output)))), output

    def total(output):
      each, extras = losses(output)
      return tf.reduce_sum(each * tf.range(1.0, 1.0 + _WIDTH)), extras

    own, _ = plain.gradients(theta, *by_worker, losses)
    one, _ = plain.gradient(theta, *by_worker, total)
    self.assertLen(own, _WIDTH)
    self.assertFalse(np.allclose(own[0], own[1], rtol=0.1))
    self._assert_close(one, own[0] + 2 * own[1] + 3 * own[2])
    # What was computed before, for none, some or all of a worker's rows.
    for count in 0, 2, _ROWS:
      known = [tf.reshape(x, [_WIDTH, _ROWS, *x.shape[1:]])[:, :count]
               for x in activations] if count else ()
      actual, extras = quick.gradients(theta, *by_worker, losses, known)
      for w in range(_WIDTH):
        for name, value in plain.layout.split(own[w]).items():
          self._assert_close(
              plain.layout.split(actual[w])[name], value, f'{w} {name}')
      tf.nest.map_structure(
          lambda x, y: self._assert_close(tf.reshape(x, y.shape), y),
          extras, expected)
      actual, _ = quick.gradient(theta, *by_worker, total, known)
      self._assert_close(actual, one)
    # It is believed, so it is not computed again.
    wrong, _ = quick.gradient(
        theta, *by_worker, total, [tf.zeros_like(x) for x in known])
    self.assertFalse(np.allclose(wrong, one, rtol=0.1))

  @parameterized.parameters(*networks.MODELS)
  def test_parameters_are_those_of_plain_networks(self, model):
    world = worlds.GridLUWorld()
    pair = networks.make(model, world)
    for plain, quick in zip(pair, fast.accelerate(*pair, model, world)):
      self.assertIs(quick.layout, plain.layout)
      np.testing.assert_array_equal(quick.initial(3), plain.initial(3))
