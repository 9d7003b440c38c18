"""Tests for loading a policy and a reward model as functions."""

import os
import re
from unittest import mock

from absl.testing import absltest
import numpy as np

import agile_tf
from agile_tf import config as config_lib
from agile_tf.evaluation import playing
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from gridlu import world
from tests.agile_tf import tiny


class TrainedTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.save_for(cls)

  def test_trained_networks_are_functions(self):
    reward_model = agile_tf.load_reward_model(self.run_dir)
    policy = agile_tf.load_policy(self.run_dir)
    images = np.zeros([3, 56, 56, 3], np.uint8)
    texts = ["SameLocation(AGENT, Shape('rect', SCENE))"] * 3
    probabilities = reward_model(images, texts)
    self.assertEqual(probabilities.shape, (3,))
    self.assertTrue(((probabilities > 0) & (probabilities < 1)).all())
    loaded = trained.load(self.run_dir)
    inputs = (np.zeros([1, 56, 56, 3], np.float32),
              loaded.world.grammar.encode(texts[:1]))
    accepted = loaded.discriminator(loaded.phi, *inputs)
    np.testing.assert_allclose(
        probabilities, np.repeat(1 / (1 + np.exp(-accepted)), 3), rtol=1e-5)
    logits = loaded.policy(loaded.theta, *inputs).logits.numpy()
    self.assertEqual(policy(images, texts).tolist(), [logits.argmax()] * 3)
    # With a generator it samples the policy's distribution.
    sampled = policy(np.repeat(images[:1], 4000, 0), texts[:1] * 4000,
                     np.random.default_rng(0))
    odds = np.exp(logits[0]) / np.exp(logits[0]).sum()
    np.testing.assert_allclose(
        np.bincount(sampled, minlength=5) / 4000, odds, atol=0.03)
    with self.assertRaisesRegex(ValueError, re.escape('[2, 56, 56, 3]')):
      reward_model(images, texts[:2])
    for function, kind in (reward_model, np.float32), (policy, np.int32):
      for nothing in images[:0], []:
        empty = function(nothing, [])
        self.assertEqual((empty.shape, empty.dtype), ((0,), kind))
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'step 7'):
      agile_tf.load_policy(self.run_dir, step=7)
    with self.assertRaisesRegex(config_lib.ConfigError, 'nowhere'):
      agile_tf.load_policy('nowhere')

  def test_plays_with_its_own_parameters(self):
    loaded = trained.load(self.run_dir)
    with mock.patch.object(playing.Player, 'play') as play:
      loaded.play(7, 3, True)
    play.assert_called_once_with(loaded.theta, loaded.phi, 7, 3, True)

  def test_networks_alone_are_enough(self):
    """A shipped checkpoint needs no slots, buffers or random states."""
    whole = checkpoints.load(self.run_dir)
    run_dir = self.create_tempdir().full_path
    config_lib.save(tiny.config(), os.path.join(run_dir, 'config.json'))
    loaded = trained.load(self.run_dir)
    names = {f'{group}:{name}'
             for group, network in (('policy', loaded.policy),
                                    ('discriminator', loaded.discriminator))
             for name in network.layout.names}
    values = {key: whole.values[key] for key in ('config', 'steps', 'tokens')}
    checkpoints.save(run_dir, whole.values['steps'], checkpoints.Checkpoint(
        {name: whole.arrays[name] for name in names}, values), keep=1)
    alone = trained.load(run_dir)
    np.testing.assert_array_equal(alone.theta, loaded.theta)
    np.testing.assert_array_equal(alone.phi, loaded.phi)

  def test_the_world_of_another_side_and_physics(self):
    run_dir = tiny.save_for(type(self), held_out='strings', held_out_share=.5)
    sides = []
    for held_out in False, True:
      loaded = trained.load(run_dir, held_out=held_out, only='red')
      environment = loaded.world.make_environment(0)
      sides.append({environment.reset().observation['instruction']
                    for _ in range(300)})
      self.assertTrue(all('red' in text for text in sides[-1]))
    self.assertNoCommonElements(*sides)
    for solved_starts, expected in (
        (None, False), (False, False), (True, True)):
      environment = trained.load(
          run_dir, solved_starts=solved_starts).world.make_environment(0)
      solved = []
      for _ in range(300):
        environment.reset()
        solved.append(environment.success)
      self.assertEqual(any(solved), expected)
    blocks = np.zeros([1, 5, 5], np.int32)
    blocks[0, 2, 2] = world.block('rect', 'red')
    on_it = world.pack(world.State(
        blocks, np.array([[2, 2]], np.int32), np.array([False])))
    for physics, carries in ('normal', True), ('immovable_red_rects', False):
      rules = trained.load(run_dir, physics=physics).world.compiled
      assert rules is not None
      state = world.unpack(np.asarray(
          rules.step(on_it, np.array([world.Action.INTERACT], np.int32))))
      self.assertEqual(bool(state.carrying[0]), carries)


if __name__ == '__main__':
  absltest.main()
