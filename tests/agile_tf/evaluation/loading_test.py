"""Tests for what a run has learned, as functions."""

import copy
import functools
import os
import pickle
import re
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

import agile_tf
from agile_tf import config as config_lib
from agile_tf import own_world
from agile_tf.evaluation import functions
from agile_tf.evaluation import loading
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import goal_dataset
from gridlu import program
from tests.agile_tf import tiny

_TEXTS = [f"SameLocation(AGENT, Shape('{shape}', SCENE))"
          for shape in ('rect', 'circle', 'triangle')]

# A process of its own, to which tests add what it does.
_ALONE = f"""
import multiprocessing, pickle, sys
import numpy as np
import agile_tf
run_dir, images, texts = sys.argv[1], np.load(sys.argv[2]), {_TEXTS}
def values(function): return function(images, texts).tolist()
"""
_FORKED = """
reward_model = agile_tf.load_reward_model(run_dir, backend='numpy')
policy = agile_tf.load_policy(run_dir, seed=3, backend='numpy')
copy = pickle.dumps(policy)
with multiprocessing.get_context('fork').Pool(1) as forks:
  assert forks.apply(values, [reward_model]) == values(reward_model)
assert values(pickle.loads(copy)) == values(policy)
assert 'tensorflow' not in sys.modules
print(*values(reward_model))
"""


def _images(count):
  return np.random.default_rng(0).integers(
      256, size=[count, 56, 56, 3]).astype(np.uint8)


class LoadingTest(tiny.SavedRunTest, parameterized.TestCase):

  @parameterized.parameters(*loading.BACKENDS)
  def test_functions_of_images_and_instructions(self, backend):
    reward_model = agile_tf.load_reward_model(self.run_dir, backend=backend)
    likeliest = agile_tf.load_policy(
        self.run_dir, greedy=True, backend=backend)
    images = _images(3)
    loaded = trained.load(self.run_dir)
    inputs = ((images / 255).astype(np.float32),
              loaded.world.grammar.encode(_TEXTS))
    for largest in functions._LARGEST, 2:
      with mock.patch.object(functions, '_LARGEST', largest):
        np.testing.assert_allclose(
            reward_model(images, _TEXTS),
            tf.sigmoid(loaded.discriminator.apply(loaded.phi, *inputs)),
            rtol=1e-5)
    logits = loaded.policy.apply(loaded.theta, *inputs).logits.numpy()
    self.assertEqual(
        likeliest(images, _TEXTS).tolist(), logits.argmax(-1).tolist())
    for function, kind in (reward_model, np.float32), (likeliest, np.int32):
      self.assertEqual(function(images, _TEXTS).dtype, kind)
      for nothing in images[:0], []:
        empty = function(nothing, [])
        self.assertEqual((empty.shape, empty.dtype), ((0,), kind))

  @parameterized.parameters(*loading.BACKENDS)
  def test_a_policy_samples_unless_it_is_greedy(self, backend):
    images, texts = _images(1).repeat(4000, axis=0), _TEXTS[:1] * 4000
    loaded = trained.load(self.run_dir)
    logits = loaded.policy.apply(
        loaded.theta, (images[:1] / 255).astype(np.float32),
        loaded.world.grammar.encode(texts[:1])).logits.numpy()
    odds = np.exp(logits[0]) / np.exp(logits[0]).sum()
    actions = {
        seed: agile_tf.load_policy(self.run_dir, seed=seed, backend=backend)(
            images, texts).tolist() for seed in (None, 0, 1)}
    for sampled in actions.values():
      np.testing.assert_allclose(
          np.bincount(sampled, minlength=5) / 4000, odds, atol=0.03)
    self.assertLen(set(map(tuple, actions.values())), 3)
    again = agile_tf.load_policy(self.run_dir, seed=1, backend=backend)
    self.assertEqual(again(images, texts).tolist(), actions[1])
    self.assertNotEqual(again(images, texts).tolist(), actions[1])

  @parameterized.parameters('nmn', 'lstm')
  def test_both_backends_agree(self, model):
    run_dir = tiny.save_for(type(self), model=model)
    images, texts = _images(30), 10 * _TEXTS
    for load, most in (
        (agile_tf.load_reward_model, 1e-5),
        (functools.partial(agile_tf.load_policy, seed=0), 0)):
      ours, theirs = (load(run_dir, backend=backend)(images, texts)
                      for backend in loading.BACKENDS)
      np.testing.assert_allclose(ours, theirs, rtol=0, atol=most)
      self.assertGreater(len(set(ours)), 2)

  def test_backends_agree_on_a_world_of_ones_own(self):
    path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
    self.enter_context(mock.patch.object(own_world, 'GOALS', path))
    goal_dataset.save(path, own_world.goal_examples(8))
    world = 'agile_tf.own_world:make_world'
    default = config_lib.Config()
    run_dir = tiny.save_for(type(self), world=world, **{
        name: getattr(default, name) for name in (
            'instructions', 'episode_length', 'dataset_size')})
    images = own_world.goal_examples(8).observations
    texts = 2 * own_world.INSTRUCTIONS
    ours, theirs = (
        agile_tf.load_reward_model(run_dir, world=world, backend=backend)(
            images, texts) for backend in loading.BACKENDS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    self.assertLen(set(ours), 8)
    with self.assertRaisesRegex(config_lib.ConfigError, 'name it too'):
      agile_tf.load_policy(run_dir, backend='numpy')

  @parameterized.parameters(*loading.BACKENDS)
  def test_wrong_arguments_are_named(self, backend):
    reward_model = agile_tf.load_reward_model(self.run_dir, backend=backend)
    images = _images(3)
    with self.assertRaisesRegex(ValueError, re.escape('[2, 56, 56, 3]')):
      reward_model(images, _TEXTS[:2])
    with self.assertRaisesRegex(ValueError, 'is the string'):
      reward_model(images, 'go')
    with self.assertRaisesRegex(ValueError, 'go'):
      reward_model(images[:1], ['go'])
    for load in agile_tf.load_policy, agile_tf.load_reward_model:
      with self.assertRaisesRegex(checkpoints.CheckpointError, 'step 7'):
        load(self.run_dir, step=7, backend=backend)
      with self.assertRaisesRegex(config_lib.ConfigError, 'nowhere'):
        load('nowhere', backend=backend)
      for wrong in 5, None, 'a\0b', ['a']:
        with self.assertRaisesRegex(
            program.UserError, f'run_dir is {re.escape(repr(wrong))}: expected '
            'a path, as a string'):
          load(wrong, backend=backend)
      with self.assertRaisesRegex(ValueError, "'torch': expected one of"):
        load(self.run_dir, backend='torch')
    without = tiny.save_for(type(self), reward='environment')
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'no discriminator: it was trained on'):
      agile_tf.load_reward_model(without, backend=backend)
    other = tiny.save_for(type(self), model='lstm')
    checkpoint = checkpoints.load(other)
    run_dir = tiny.save_for(type(self))
    checkpoints.save(run_dir, 99, checkpoint._replace(
        values=checkpoint.values | {'steps': 99}), keep=9)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'does not fit .*(film_nmn|stem)'):
      agile_tf.load_reward_model(run_dir, 99, backend=backend)

  def test_numpy_needs_no_tensorflow_and_serves_other_processes(self):
    path = os.path.join(self.create_tempdir().full_path, 'images.npy')
    np.save(path, _images(3))
    printed = subprocess.run(
        [sys.executable, '-c', _ALONE + _FORKED, self.run_dir, path],
        check=True, capture_output=True, text=True).stdout
    np.testing.assert_allclose(
        [float(x) for x in printed.split()],
        agile_tf.load_reward_model(self.run_dir)(_images(3), _TEXTS), rtol=1e-5)

  def test_no_other_process_can_use_tensorflows_networks(self):
    reward_model = agile_tf.load_reward_model(self.run_dir)
    np.testing.assert_array_equal(
        copy.deepcopy(reward_model)(_images(3), _TEXTS),
        reward_model(_images(3), _TEXTS))
    with self.assertRaisesRegex(pickle.PicklingError, "backend='numpy'"):
      pickle.dumps(reward_model)
    # A fork is another process. Here it only seems to be one.
    with mock.patch.object(os, 'getpid', return_value=os.getpid() + 1):
      for use in (lambda: reward_model(_images(3), _TEXTS),
                  lambda: agile_tf.load_policy(self.run_dir),
                  lambda: machine.prepare(config_lib.Config())):
        with self.assertRaisesRegex(RuntimeError, "fork of .*'spawn'"):
          use()
