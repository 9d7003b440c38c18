"""Tests for what a run has learned: functions, and played episodes."""

import contextlib
import os
import pathlib
import shutil
import sys
from unittest import mock

from absl.testing import absltest
import numpy as np

import agile_tf
from agile_tf import config as config_lib
from agile_tf.agent import rollouts
from agile_tf.evaluation import options
from agile_tf.evaluation import trained
from agile_tf.recipe import settings
from agile_tf.training import checkpoints
from agile_tf.training import own_networks
from gridlu import world
from tests.agile_tf import tiny


class TrainedTest(tiny.SavedRunTest):

  def test_the_agent_of_the_package_has_a_name(self):
    parse = options._RunParser().parse
    self.assertEqual(parse('trained'), agile_tf.TRAINED)
    self.assertTrue(os.path.exists(f'{agile_tf.TRAINED}/config.json'))
    self.assertEqual(parse('./runs/'), 'runs')
    with contextlib.chdir(self.create_tempdir().full_path):
      os.mkdir('trained')
      self.assertEqual(parse('trained'), 'trained')

  def test_no_pattern_of_a_run_is_matched(self):
    """Some of them would be for ever. The run has saved its instructions."""
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    shutil.copytree(self.run_dir, run_dir)
    path = os.path.join(run_dir, 'config.json')
    settings = config_lib.read(path)
    texts = settings[config_lib.SELECTED]
    self.assertLen(texts, 30)

    def load(only='', world='', **changes):
      changed = {**settings, **changes}
      config_lib.save({name: value for name, value in changed.items()
                       if value is not None}, path)
      loaded = trained.load(run_dir, only=only, world=world)
      environment = loaded.world.make_environment(0)
      self.assertTrue(all('red' in str(each) or not only
                          for each in environment.instructions))
      return [str(each) for each in environment.instructions]

    for pattern in r'(\w+\W*)+@', '|'.join(map(str, range(100_000))), '(':
      self.assertEqual(load(instructions=pattern), texts)
    self.assertLen(load('red', instructions='('), 8)
    self.assertEqual(load(world='crowded'), texts)
    self.assertEqual(load(selected_instructions=texts[::-1]), texts)
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'config.json has a pattern.*the command'):
      load(selected_instructions=None)
    for wrong, problem in (
        (['Snake'], "has 'Snake': expected"), ([], 'has no instruction:'),
        (texts[:1] * 2, 'has an instruction twice:'),
        (['\x1b[2J'], r"'\\x1b\[2J'"),
        (5, 'selected_instructions is 5: expected a list'),
        ([5], r'selected_instructions\[0\] is 5')):
      with self.assertRaisesRegex(config_lib.ConfigError, problem):
        load(selected_instructions=wrong)
    # Without a pattern a run has all instructions, and needs no list.
    self.assertLen(load(instructions='', selected_instructions=None), 990)

  def test_a_run_can_be_played_on_another_side_and_with_other_physics(self):
    run_dir = tiny.save_for(
        type(self), held_out='strings', held_out_share=.5,
        physics='immovable_red_rects', solved_starts=True)
    sides = []
    for held_out in False, True:
      loaded = trained.load(
          run_dir, held_out_instructions=held_out, only='red')
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

  def _save(self, world_name, where, model='nmn'):
    """Writes a run's configuration and the module of its world or networks."""
    config_lib.save(
        settings.saved(config_lib.Config(world=world_name, model=model),
                       settings.Recipe()),
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

  def test_networks_are_imported_only_if_they_are_named(self):
    imported = self._save(
        'relations', 'a_named_model.py', 'a_named_model:make')
    for load in (agile_tf.load_policy, agile_tf.load_reward_model,
                 trained.load):
      for named, message in (
          ('', 'add --model with the same name'),
          ('nmn', "on the networks 'a_named_model:make'"),
          ('a_named_model:other', "on the networks 'a_named_model:make'")):
        with self.assertRaisesRegex(config_lib.ConfigError, message):
          load(self.run_dir, model=named)
        self.assertFalse(imported.exists())
      # It is imported, and then its function takes no world.
      with self.assertRaises(own_networks.ModelError):
        load(self.run_dir, model='a_named_model:make')
      self.assertTrue(imported.exists())
      imported.unlink()
      del sys.modules['a_named_model']

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
    with self.assertRaisesRegex(config_lib.ConfigError, 'Leave --world out'):
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
        zeros, zeros, mask, ended, ('short', 'long'),
        truth=observations[1:, :, 0] % 10 == 3)


class PlayTest(absltest.TestCase):

  def _play(self, count, phi='phi', seed=0, greedy=False):
    """Plays with two workers; also returns how the actor was made."""
    world_ = mock.Mock()
    world_.make_environment.side_effect = lambda seed: seed
    # A state's number tells what D accepts, as it tells what a goal state is.
    rewards = mock.Mock(side_effect=lambda phi, observations, codes: (
        mock.Mock(numpy=lambda: observations[1:, :, 0] / 100),
        mock.Mock(numpy=lambda: observations[1:, :, 0] % 2 == 0)))
    run = trained.Trained(
        tiny.config(), world_, 0, None, 'theta', None, phi,
        mock.Mock(), mock.Mock(rewards=rewards))
    with (mock.patch.object(trained, '_BATCH', 2),
          mock.patch.object(trained.actors, 'kind') as kind):
      kind.return_value.return_value = _Actor()
      episodes = list(run.play(count, seed, greedy))
      return episodes, kind.return_value.call_args

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
        self.assertEqual(
            episode.probabilities.tolist(), (states[1:] / 100).tolist())
        self.assertEqual(episode.success, text == 'short')
    episodes, _ = self._play(2, phi=None)
    for values in zip(*((episode.decisions, episode.probabilities)
                        for episode in episodes)):
      self.assertEqual(values, (None, None))

  def test_the_seed_decides_everything_drawn(self):
    def drawn(seed):
      _, environments, rngs, _ = self._play(2, seed=seed)[1].args
      return [*environments, *(rng.integers(2**60) for rng in rngs)]

    self.assertEqual(drawn(3), drawn(3))
    both = drawn(3) + drawn(4)
    self.assertLen(set(both), len(both))
    for greedy in False, True:
      made = self._play(2, greedy=greedy)[1]
      self.assertEqual(made.args[3], 2)
      self.assertEqual(made.kwargs, dict(delayed=[False] * 2, greedy=greedy))
