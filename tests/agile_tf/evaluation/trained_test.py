"""Tests for what a run has learned: functions, and played episodes."""

import contextlib
import copy
import dataclasses
import os
import pathlib
import pickle
import re
import sys
from unittest import mock

from absl.testing import absltest
import numpy as np
import tensorflow as tf

import agile_tf
from agile_tf import config as config_lib
from agile_tf.agent import rollouts
from agile_tf.evaluation import options
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import world
from tests.agile_tf import tiny


class TrainedTest(tiny.SavedRunTest):

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
    accepted = loaded.discriminator.at(loaded.phi)(*inputs)
    np.testing.assert_allclose(
        probabilities, np.repeat(1 / (1 + np.exp(-accepted)), 3), rtol=1e-5)
    logits = loaded.policy.at(loaded.theta)(*inputs).logits.numpy()
    self.assertEqual(policy(images, texts).tolist(), [logits.argmax()] * 3)
    # With a generator it samples the policy's distribution.
    sampled = policy(np.repeat(images[:1], 4000, 0), texts[:1] * 4000,
                     np.random.default_rng(0))
    odds = np.exp(logits[0]) / np.exp(logits[0]).sum()
    np.testing.assert_allclose(
        np.bincount(sampled, minlength=5) / 4000, odds, atol=0.03)
    images = np.random.default_rng(0).integers(
        256, size=[2, 56, 56, 3]).astype(np.uint8)
    texts = [f"SameLocation(AGENT, Shape('{shape}', SCENE))"
             for shape in ('rect', 'circle')]
    inputs = ((images / 255).astype(np.float32),
              loaded.world.grammar.encode(texts))
    for largest in trained._LARGEST, 1:
      with mock.patch.object(trained, '_LARGEST', largest):
        np.testing.assert_allclose(
            reward_model(images, texts),
            tf.sigmoid(loaded.discriminator.at(loaded.phi)(*inputs)), rtol=1e-5)
    images, texts = images[[0, 1, 1]], texts + texts[:1]
    with self.assertRaisesRegex(ValueError, re.escape('[2, 56, 56, 3]')):
      reward_model(images[:2], texts)
    for function, kind in (reward_model, np.float32), (policy, np.int32):
      for nothing in images[:0], []:
        empty = function(nothing, [])
        self.assertEqual((empty.shape, empty.dtype), ((0,), kind))
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'step 7'):
      agile_tf.load_policy(self.run_dir, step=7)
    with self.assertRaisesRegex(config_lib.ConfigError, 'nowhere'):
      agile_tf.load_policy('nowhere')

  def test_no_other_process_can_use_loaded_networks(self):
    reward_model = agile_tf.load_reward_model(self.run_dir)
    self.assertIs(copy.deepcopy(reward_model), reward_model)
    with self.assertRaisesRegex(pickle.PicklingError, 'in that process'):
      pickle.dumps(reward_model)
    # A fork is another process. Here it only seems to be one.
    with mock.patch.object(os, 'getpid', return_value=os.getpid() + 1):
      for use in (lambda: reward_model([], []),
                  lambda: agile_tf.load_policy(self.run_dir),
                  lambda: machine.prepare(config_lib.Config())):
        with self.assertRaisesRegex(RuntimeError, "fork of .*'spawn'"):
          use()

  def test_the_agent_of_the_package_has_a_name(self):
    parse = options._RunParser().parse
    self.assertEqual(parse('trained'), agile_tf.TRAINED)
    self.assertTrue(os.path.exists(f'{agile_tf.TRAINED}/config.json'))
    self.assertEqual(parse('./runs/'), 'runs')
    with contextlib.chdir(self.create_tempdir().full_path):
      os.mkdir('trained')
      self.assertEqual(parse('trained'), 'trained')

  def test_the_world_of_another_side_and_physics(self):
    run_dir = tiny.save_for(
        type(self), held_out='strings', held_out_share=.5,
        physics='immovable_red_rects', solved_starts=True)
    sides = []
    for held_out in False, True:
      loaded = trained.load(run_dir, held_out=held_out, only='red')
      environment = loaded.world.make_environment(0)
      sides.append({environment.reset().observation['instruction']
                    for _ in range(300)})
      self.assertTrue(all('red' in text for text in sides[-1]))
    self.assertNoCommonElements(*sides)
    for solved_starts, expected in (
        (None, True), (False, False), (True, True)):
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
    for physics, carries in (
        ('', False), ('normal', True), ('immovable_red_rects', False)):
      loaded = trained.load(run_dir, physics=physics)
      self.assertEqual(loaded.config.physics, physics or 'immovable_red_rects')
      rules = loaded.world.compiled
      assert rules is not None
      state = world.unpack(np.asarray(
          rules.step(on_it, np.array([world.Action.INTERACT], np.int32))))
      self.assertEqual(bool(state.carrying[0]), carries)

_WORLD = """
import pathlib
pathlib.Path(__file__).with_suffix('.imported').touch()
import numpy as np
from agile_tf import own_world
def make():
  return own_world.make_world()
"""


class WorldTest(absltest.TestCase):
  """A run's config.json alone decides of no import."""

  def setUp(self):
    super().setUp()
    self.folder = self.create_tempdir()
    self.run_dir = self.folder.mkdir('run').full_path
    self.enter_context(contextlib.chdir(self.folder.full_path))
    self.enter_context(mock.patch.object(sys, 'path', [*sys.path]))

  def _save(self, world_name, where):
    """Writes a run's configuration and its world's module."""
    config_lib.save(
        dataclasses.asdict(config_lib.Config(world=world_name)),
        os.path.join(self.run_dir, 'config.json'))
    return pathlib.Path(self.folder.create_file(
        where, content=_WORLD).full_path).with_suffix('.imported')

  def test_a_world_is_imported_only_if_it_is_named(self):
    imported = self._save('a_named_world:make', 'a_named_world.py')
    for load in (agile_tf.load_policy, agile_tf.load_reward_model,
                 trained.load):
      for named, message in (
          ('', 'add --world with the same name'),
          ('a_named_world:other', "on the world 'a_named_world:make'")):
        with self.assertRaisesRegex(config_lib.ConfigError, message):
          load(self.run_dir, world=named)
        self.assertFalse(imported.exists())
      # It is imported, and then there is no checkpoint.
      with self.assertRaises(checkpoints.CheckpointError):
        load(self.run_dir, world='a_named_world:make')
      self.assertTrue(imported.exists())
      imported.unlink()
      del sys.modules['a_named_world']
    self.assertNotIn(self.run_dir, sys.path)

  def test_nothing_is_imported_from_the_runs_directory(self):
    for name, where, path in (
        ('its_world', 'run/its_world.py', [self.run_dir]),
        ('its_world', 'run/code/its_world.py', [f'{self.run_dir}/code']),
        ('run.its_world', 'run/its_world.py', []),
        ('run', 'run/__init__.py', [])):
      imported = self._save(f'{name}:make', where)
      with mock.patch.object(sys, 'path', [*path, *sys.path]):
        with self.assertRaisesRegex(
            config_lib.ConfigError, 'in the directory of the run'):
          trained.load(self.run_dir, world=f'{name}:make')
      self.assertFalse(imported.exists())
    imported = self._save('its_world:make', 'run/its_world.py')
    with (contextlib.chdir(self.run_dir),
          self.assertRaisesRegex(config_lib.ConfigError, 'another directory')):
      trained.load('.', world='its_world:make')
    self.assertFalse(imported.exists())

  def test_a_world_of_gridlu_need_not_be_named(self):
    run_dir = tiny.save_for(type(self))
    for named in '', 'relations':
      self.assertEqual(trained.load(run_dir, world=named).steps, 0)
    with self.assertRaisesRegex(config_lib.ConfigError, 'leave --world out'):
      trained.load(run_dir, world='arrangements')

  def test_a_run_of_relations_can_play_crowded(self):
    run = trained.load(tiny.save_for(type(self)), world='crowded')
    blocks = {np.count_nonzero(episode.states[0, :25])
              for episode in run.play(40, 0, False)}
    self.assertContainsSubset({1, 4}, blocks)  # One distractor makes 2.


# Worker 0 has episodes of 3 steps, worker 1 of 5. Rollouts have 2.
_LENGTHS = (3, 5)


class _Actor:
  """Plays episodes whose states are numbered.

  State s of a worker's episode e is 10 e + s, and where nothing was played 99.
  """

  def __init__(self):
    self._episodes, self._steps = [0, 0], [0, 0]

  def close(self):
    pass

  def play(self, theta):
    assert theta == 'theta'
    observations = np.full([3, 2, 1], 99, np.uint8)
    mask = np.zeros([2, 2], np.float32)
    ended = np.zeros([2], bool)
    for w, length in enumerate(_LENGTHS):
      played = min(2, length - self._steps[w])
      first = 10 * self._episodes[w] + self._steps[w]
      observations[:played + 1, w, 0] = first + np.arange(played + 1)
      mask[:played, w] = 1
      self._steps[w] += played
      if self._steps[w] == length:
        ended[w] = True
        self._episodes[w] += 1
        self._steps[w] = 0
    zeros = np.zeros([2, 2], np.float32)
    return rollouts.Rollout(
        observations, np.zeros([2, 1], np.int32), zeros.astype(np.int32),
        zeros, zeros, mask, ended, ('short', 'long'))


class PlayTest(absltest.TestCase):

  def _play(self, count, phi='phi', seed=0, greedy=False):
    """Plays with two workers; also returns how the actor was made."""
    world_ = mock.Mock()
    world_.make_environment.side_effect = lambda seed: seed
    # What is a goal state, and what D accepts, can be told from the number.
    world_.truth.side_effect = (
        lambda rollout: rollout.observations[1:, :, 0] % 10 == 3)
    reward = mock.Mock(side_effect=lambda phi, observations, codes: (
        mock.Mock(), mock.Mock(numpy=lambda: observations[1:, :, 0] % 2 == 0)))
    run = trained.Trained(
        tiny.config(), world_, 0, None, 'theta', None, phi,
        mock.Mock(reward=reward))
    with (mock.patch.object(trained, '_BATCH', 2),
          mock.patch.object(trained.actors, 'kind') as kind):
      kind.return_value.return_value = _Actor()
      episodes = list(run.play(count, seed, greedy))
      return episodes, kind.return_value.call_args.args[1:]

  def test_short_episodes_are_no_likelier(self):
    episodes, _ = self._play(5)
    self.assertCountEqual([episode.instruction for episode in episodes],
                          ['short'] * 3 + ['long'] * 2)

  def test_episodes_are_of_their_own_states(self):
    episodes, _ = self._play(4)
    for text, length in zip(('short', 'long'), _LENGTHS):
      ours = [each for each in episodes if each.instruction == text]
      for number, episode in enumerate(ours):
        states = 10 * number + np.arange(length + 1)
        self.assertEqual(episode.states.squeeze(1).tolist(), states.tolist())
        self.assertEqual(
            episode.truth.tolist(), (states[1:] % 10 == 3).tolist())
        self.assertEqual(
            episode.decisions.tolist(), (states[1:] % 2 == 0).tolist())
        self.assertEqual(episode.success, text == 'short')
    episodes, _ = self._play(2, phi=None)
    self.assertEqual([episode.decisions for episode in episodes], [None] * 2)

  def test_the_seed_decides_everything_drawn(self):
    def drawn(seed):
      environments, rngs, *_ = self._play(2, seed=seed)[1]
      return [*environments, *(rng.integers(2**60) for rng in rngs)]

    self.assertEqual(drawn(3), drawn(3))
    both = drawn(3) + drawn(4)
    self.assertLen(set(both), len(both))
    for greedy in False, True:
      _, (_, _, length, delayed, chosen) = self._play(2, greedy=greedy)
      self.assertEqual((length, delayed, chosen), (2, [False] * 2, greedy))
