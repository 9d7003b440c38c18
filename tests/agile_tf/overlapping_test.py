"""Tests for agile_tf.overlapping."""

import os
import sys
from unittest import mock

from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import overlapping
from agile_tf import worlds
from agile_tf.agent import instructions
from agile_tf.training import checkpoints
from agile_tf.training import own_networks
from agile_tf.training import train
from agile_tf.worlds import environments
from gridlu import goal_dataset
from tests.agile_tf import tiny

_TEXTS = ['go left', 'go right']
_SHAPE = (36, 29, 3)


class _Side(dm_env.Environment):
  """The agent is a bright column of pixels that goes left or right."""

  def __init__(self, seed):
    self._rng = np.random.default_rng(seed)

  def reset(self):
    self._text, self._place, self._steps = self._rng.choice(_TEXTS), 14, 0
    return dm_env.restart(self._observation())

  def step(self, action):
    self._place += 2 * int(action) - 1
    self._steps += 1
    end = dm_env.termination if self._steps == 4 else dm_env.transition
    return end(0.0, self._observation())

  def _observation(self):
    image = np.zeros(_SHAPE, np.uint8)
    image[:, self._place] = 255
    return {'image': image, 'instruction': self._text}

  def observation_spec(self):
    return {'image': specs.Array(_SHAPE, np.uint8),
            'instruction': specs.StringArray(())}

  def action_spec(self):
    return specs.DiscreteArray(2)


class OverlappingTest(parameterized.TestCase):

  @parameterized.parameters(
      ((24, 24, 3), (3, 3)), ((36, 29, 3), (5, 4)), ((40, 48, 3), (5, 6)))
  def test_each_part_of_the_image_is_seen(self, image_shape, sides):
    stem = overlapping.OverlappingStem()
    images = tf.Variable(np.random.default_rng(0).random([2, *image_shape]))
    with tf.GradientTape() as tape:
      h_stem = stem(tf.cast(images, tf.float32))
    self.assertEqual(h_stem.shape, (2, *sides, 64))
    seen = np.abs(tape.gradient(h_stem, images)).sum(axis=(0, 3))
    self.assertGreater(seen.min(), 0)  # Also the last rows and columns.

  def test_both_networks_have_these_parameters_and_outputs(self):
    world = environments.without_environments(
        instructions.Grammar(_TEXTS), (36, 36, 3))
    pi, d = own_networks.load('agile_tf.overlapping:make', world)
    stem = {'stem/near/w': (8, 8, 3, 16), 'stem/near/b': (16,),
            'stem/far/w': (4, 4, 16, 64), 'stem/far/b': (64,)}
    shapes = dict(zip(d.layout.names, d.layout.shapes))
    self.assertContainsSubset(
        {f'discriminator/features/{name}': shape
         for name, shape in stem.items()}, shapes)
    self.assertEqual(
        d.layout.lends(pi.layout),
        {name: name.replace('policy', 'discriminator')
         for name in pi.layout.names
         if '/stem/' in name or '/film_nmn/' in name})
    images = tf.random.stateless_uniform([3, 36, 36, 3], [0, 0])
    codes = tf.constant(world.grammar.encode(3 * _TEXTS[:1]))
    output = pi.apply(tf.constant(pi.initial(0)), images, codes)
    self.assertEqual([part.shape.as_list() for part in output],
                     [[3, 1], [3], [3, 2]])
    self.assertEqual(
        d.apply(tf.constant(d.initial(0)), images, codes).shape, [3])

  def test_a_gradient_reaches_each_parameter(self):
    world = environments.without_environments(
        instructions.Grammar(_TEXTS), (36, 36, 3))
    images = tf.random.stateless_uniform([8, 36, 36, 3], [0, 1])
    codes = tf.constant(world.grammar.encode(4 * _TEXTS))
    for network in own_networks.load('agile_tf.overlapping:make', world):
      parameters = tf.constant(network.initial(0))
      with tf.GradientTape() as tape:
        tape.watch(parameters)
        # Not just the sum of logits, of which a policy's is often constant.
        loss = tf.add_n([
            tf.reduce_sum(part**2) for part in tf.nest.flatten(
                network.apply(parameters, images, codes))])
      gradient = network.layout.split(tape.gradient(loss, parameters))
      for name, part in gradient.items():
        self.assertGreater(np.abs(part).max(), 0, name)

  @pytest.mark.slow
  def test_a_run_on_images_without_a_grid_ends(self):
    folder = self.create_tempdir().full_path
    goals = os.path.join(folder, 'goals.npz')
    images = np.zeros([2, *_SHAPE], np.uint8)
    images[0, :, 10] = images[1, :, 18] = 255
    goal_dataset.save(goals, goal_dataset.GoalDataset(
        _TEXTS, np.arange(2), images=images))
    module = mock.Mock(make_world=lambda: worlds.from_environment(
        _Side, goals, _TEXTS))
    run_dir = os.path.join(folder, 'run')
    with mock.patch.dict(sys.modules, side=module):
      train.train(tiny.plan(
          world='side:make_world', instructions='', episode_length=30,
          dataset_size=131072, model='agile_tf.overlapping:make', steps=32,
          run_dir=run_dir))
    checkpoint = checkpoints.load(run_dir)
    self.assertGreaterEqual(checkpoint.values['steps'], 32)
    self.assertGreater(checkpoint.values['totals']['discriminator_updates'], 0)
