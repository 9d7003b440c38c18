"""Tests for worlds: GridLU's, and AGILE on a world of one's own."""

import array
import contextlib
import dataclasses
import os
import re
import sys
import types
from unittest import mock

from absl import flags
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest

from agile_tf import config as config_lib
from agile_tf import own_world
from agile_tf import worlds
from agile_tf.agent import instructions
from agile_tf.agent import worlds as agent_worlds
from agile_tf.evaluation import trained
from agile_tf.training import checkpoints
from agile_tf.training import train
from gridlu import arrangements
from gridlu import goal_dataset
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import world as world_lib
from tests.agile_tf import tiny
from tests.gridlu import programs


def _odd(observation_spec, action_spec):
  """Returns an environment with these specs."""
  return mock.Mock(**{'observation_spec.return_value': observation_spec,
                      'action_spec.return_value': action_spec})


def _image(shape, dtype=np.uint8):
  return {'image': specs.Array(shape, dtype),
          'instruction': specs.StringArray(())}


def _unchecked(**image):
  """Returns an observation spec that no class has checked."""
  return {'image': types.SimpleNamespace(dtype=np.dtype(np.uint8), **image),
          'instruction': specs.StringArray(())}


class WorldsTest(parameterized.TestCase):

  def test_the_checker_judges_each_instruction_by_its_own_states(self):
    drawn = arrangements.goal_states(np.random.default_rng(0), 20)
    texts = [str(arrangements.all_instructions()[i]) for i in drawn.instruction]
    states = world_lib.pack(drawn.state)
    np.testing.assert_array_equal(
        worlds.GridLUWorld('arrangements').check(
            texts, np.stack([states, 0 * states])),
        [[True] * 20, [False] * 20])

  @parameterized.parameters(False, True)
  def test_a_world_of_an_environment(self, has_ground_truth):
    environment = _odd(_image((24, 32, 3)), specs.DiscreteArray(3))
    trees = {'red by blue': ('by', ('red',), ('blue',)), 'red': ('red',)}
    world = worlds.from_environment(
        lambda seed: environment, 'none.npz', list(trees), trees.get,
        has_ground_truth)
    self.assertEqual(world.has_ground_truth, has_ground_truth)
    self.assertEqual((world.image_shape, world.num_actions), ((24, 32, 3), 3))
    images = np.random.default_rng(0).integers(
        256, size=[2, 24, 32, 3]).astype(np.uint8)
    np.testing.assert_allclose(world.images(images), images / 255, rtol=1e-6)
    np.testing.assert_array_equal(world.pixels(images), images)
    # As the parser says, and not the words in a row.
    expected = instructions.Grammar(list(trees), trees.get)
    self.assertEqual(world.grammar.slots, expected.slots)
    self.assertNotEqual(
        expected.slots, instructions.Grammar(list(trees)).slots)

  def test_a_gridlu_world_hands_its_arguments_on(self):
    some = [language.parse(text) for text in (
        "SameLocation(AGENT, Color('red', SCENE))",
        "NorthFrom(AGENT, Color('red', SCENE))")]
    world = worlds.GridLUWorld(
        instructions=some[:1], physics=world_lib.IMMOVABLE_RED_RECTS,
        episode_length=7, known=some, solved_starts=False)
    environment = world.make_environment(3)
    self.assertEqual(environment.physics, world_lib.IMMOVABLE_RED_RECTS)
    self.assertEqual(environment.episode_length, 7)
    self.assertEqual(environment.instructions, tuple(some[:1]))
    for _ in range(100):
      environment.reset()
      self.assertFalse(environment.success)
    # Networks of other instructions have the same tokens.
    self.assertEqual(world.grammar.tokens, relations.TOKENS)
    self.assertLen(world.grammar.encode(list(map(str, some))), 2)

  @parameterized.parameters('nmn', 'lstm')
  @pytest.mark.slow
  def test_the_example_trains_from_its_goal_examples(self, model):
    folder = self.create_tempdir().full_path
    goals = os.path.join(folder, 'goals.npz')
    goal_dataset.save(goals, own_world.goal_examples(count=40))
    run_dir = os.path.join(folder, 'run')
    with mock.patch.object(own_world, 'GOALS', goals):
      train.train(tiny.plan(
          world='agile_tf.own_world:make_world', instructions='',
          episode_length=30, model=model, run_dir=run_dir, steps=40,
          rollout_length=5, all_workers_write=True, dataset_size=131072,
          steps_per_discriminator_update=10))
      run = trained.load(run_dir, world='agile_tf.own_world:make_world')
    checkpoint = checkpoints.load(run_dir)
    self.assertGreaterEqual(checkpoint.values['steps'], 40)
    self.assertGreater(checkpoint.values['totals']['discriminator_updates'], 0)
    self.assertEqual(run.world.num_actions, 4)
    buffer = checkpoint.arrays['buffer:observations']
    self.assertEqual(buffer.shape[1:], (40, 40, 3))
    self.assertGreater(buffer.max(), 0)
    with open(os.path.join(run_dir, 'metrics.csv'), encoding='utf-8') as file:
      header, row = file.read().splitlines()[:2]
    values = dict(zip(header.split(','), row.split(',')))
    self.assertNotIn('', (values['success_rate'], values['modelled_reward']))

  @pytest.mark.slow
  def test_the_example_learns(self):
    folder = self.create_tempdir().full_path
    with mock.patch.object(own_world, 'GOALS', f'{folder}/goals.npz'):
      programs.call(own_world)
      train.train(tiny.read_plan(
          ['--preset=own_world', f'--run_dir={folder}/run', '--steps=20000']))
    last = tiny.rows(f'{folder}/run')[-1]
    self.assertGreater(float(last['success_rate']), .3)  # .04 at first.

  def test_goals_of_the_example_are_goals(self):
    path = os.path.join(self.create_tempdir().full_path, 'runs', 'goals.npz')
    with mock.patch.object(own_world, 'GOALS', path):
      self.assertIn(path, programs.call(own_world).stdout)
    dataset = goal_dataset.load(path)
    for index, image in zip(dataset.instruction, dataset.images):
      name = dataset.instructions[index].split()[3]
      color, (row, column) = own_world.CORNERS[name]
      cell = image[8 * row:8 * row + 8, 8 * column:8 * column + 8]
      self.assertEqual(tuple(cell[0, 0]), color)
      # The agent's white square covers the middle of the cell.
      self.assertEqual(cell[4, 4].tolist(), [255, 255, 255])

  def test_images_of_states_are_the_environments(self):
    world = worlds.GridLUWorld()
    states = relations.instances(np.random.default_rng(0), 20).state
    pixels = rendering.render(states)
    np.testing.assert_array_equal(world.pixels(world_lib.pack(states)), pixels)
    np.testing.assert_allclose(
        world.images(world_lib.pack(states)), pixels / 255, rtol=1e-6)
    tiled = world.tiles(world_lib.pack(states))
    tiles = np.take(tiled.table, tiled.indices, axis=0)
    np.testing.assert_array_equal(
        tiles.transpose(0, 1, 3, 2, 4, 5).reshape(pixels.shape),
        pixels.astype(np.float32) / 255)

  def test_examples_are_drawn_as_pairs(self):
    world = worlds.GridLUWorld()
    dataset = goal_dataset.generate('relations', 200, seed=1)
    examples = agent_worlds.GoalExamples(dataset, world)
    codes, observations = examples.sample(np.random.default_rng(0), 500)
    pairs = {
        (*world.grammar.encode([dataset.instructions[i]])[0], *state)
        for i, state in zip(dataset.instruction, dataset.states)}
    drawn = {(*code, *state) for code, state in zip(codes, observations)}
    self.assertLessEqual(drawn, pairs)
    self.assertGreater(len(drawn), 150)  # 184 are expected.

  def test_bad_environments_are_refused(self):
    moves = specs.DiscreteArray(4)
    for environment, message in (
        (_odd(specs.Array((40, 40, 3), np.uint8), moves), 'image'),
        (_odd(_image((40, 40, 1)), moves), 'H, W, 3'),
        (_odd(_image((16, 16, 3)), moves), 'at least 24'),
        (_odd(_image((40, 40, 3), np.float32), moves), 'uint8'),
        (_odd(_image((40, 40, 3)), specs.Array((2,), np.float32)),
         'DiscreteArray'),
        (_odd(_unchecked(shape=(None, 40, 3)), moves), 'None, 40, 3'),
        (_odd(_unchecked(shape=(40.5, 40, 3)), moves), '40.5, 40, 3'),
        (_odd({'image': None, 'instruction': None}, moves), 'is .*None'),
        (_odd(None, moves), 'it is None'),
        *((_odd(_image((40, 40, 3)), types.SimpleNamespace(
            num_values=count, dtype=np.dtype(np.int32))),
           f'num_values={re.escape(repr(count))}; expected a whole number')
          for count in (0, -1, 1.5, '4', None, True, 100_001)),
        (_odd(_image((40, 40, 3)), types.SimpleNamespace(num_values=4)),
         'dtype=None; expected a NumPy type of whole'),
        (_odd(_image((40, 40, 3)), types.SimpleNamespace(
            num_values=4, dtype=np.dtype(np.float32))), 'dtype=.*float32'),
        (_odd(_image((40, 40, 3)), types.SimpleNamespace(
            num_values=300, dtype=np.dtype(np.int8))),
         'dtype=int8, which has no number 299; expected a larger type')):
      with self.assertRaisesRegex(worlds.WorldError, message):
        worlds.from_environment(
            lambda seed, made=environment: made, 'goals.npz', ['go'])

  def test_arguments_of_another_kind_are_named(self):
    for arguments, message in (
        ((own_world.Corners(0), '', own_world.INSTRUCTIONS), 'a function'),
        ((own_world.Corners, '', 'go there'), 'expected a list'),
        ((own_world.Corners, '', None), 'instructions is None; expected'),
        ((own_world.Corners, '', [None]), r'instructions\[0\] is None; exp'),
        ((own_world.Corners, '', ['go', 2]), r'instructions\[1\] is 2; exp'),
        ((own_world.Corners, '', []), 'instructions are not valid'),
        ((own_world.Corners, '', ['go', ' ']), 'instructions are not valid'),
        ((own_world.Corners, 5, ['go']), 'goal_examples is 5; expected the'),
        ((own_world.Corners, '', ['go'], 'chain'), 'parse is .*; expected'),
        ((own_world.Corners, '', ['go'], instructions.chain, 'no'),
         "has_ground_truth is 'no'; expected True or False")):
      with self.assertRaisesRegex(worlds.WorldError, message):
        worlds.from_environment(*arguments)

  def test_what_makes_no_environment_of_a_seed_is_named(self):
    class Room:
      pass

    def small(seed):
      array.array('i', [seed])  # A C int.
      return own_world.Corners(seed)

    for make, message in (
        (Room, 'cannot be called with a seed .*lambda seed: Room'),
        (lambda: own_world.Corners(0), 'expected a function of one argument'),
        (lambda seed: Room(), r'Room.* and no observation_spec\(\) and no '
         r'action_spec\(\) and no close\(\); expected a dm_env.Environment'),
        (lambda seed: None, r'None, which has no reset\(\)')):
      with self.assertRaisesRegex(worlds.WorldError, message):
        worlds.from_environment(make, 'goals.npz', ['go'])
    world = worlds.from_environment(
        small, 'goals.npz', own_world.INSTRUCTIONS)
    with self.assertRaisesRegex(
        worlds.WorldError, r'make_environment\(4294967295\): .* use seed % 2'):
      world.make_environment(2**32 - 1)

  def test_all_environments_have_the_same_actions(self):
    for later, problem in (
        (None, 'must be a dm_env DiscreteArray; it is None'),
        (specs.DiscreteArray(1), r'make_environment\(7\) returned an '
         'environment of 1 actions; expected 2,')):
      world = worlds.from_environment(
          lambda seed, later=later: _odd(_image((24, 24, 3)), (
              later if seed else specs.DiscreteArray(2))), 'none.npz', ['go'])
      world.make_environment(0)
      with self.assertRaisesRegex(worlds.WorldError, problem):
        world.make_environment(7)

  def test_workers_do_not_share_an_environment(self):
    one = own_world.Corners(0)
    world = worlds.from_environment(
        lambda seed: one if seed < 3 else own_world.Corners(seed), 'goals.npz',
        own_world.INSTRUCTIONS)
    kept = [world.make_environment(seed) for seed in (1, 3, 4)]
    with self.assertRaisesRegex(worlds.WorldError, 'the same object twice'):
      world.make_environment(2)
    del kept

  def test_worlds_of_the_current_directory(self):
    folder = self.create_tempdir()
    folder.create_file('broken_world.py', 'def make():\n  pass\n1 / 0\n')
    folder.create_file('wrong_world.py', 'def make():\n  pass\nint("a")\n')
    folder.create_file('needy_world.py', 'import no_such_package\n')
    folder.mkdir('elsewhere')
    make = 'def make():\n  '
    for name, text in (
        ('leaving', 'import sys; sys.exit(0)'),
        ('late', f'import sys\n{make}sys.exit("bye")'),
        ('moving', 'import os; os.chdir("elsewhere")'),
        ('moving_late', f'import os\n{make}os.chdir("elsewhere")'),
        ('flagged', 'from absl import flags\n'
         'flags.DEFINE_integer("steps", 3, "")'),
        ('wrong_value', 'from agile_tf import own_world, worlds\n'
         f'{make}return worlds.from_environment('
         'own_world.Corners, "", [None])')):
      folder.create_file(f'{name}_world.py', text)
    self.enter_context(mock.patch.object(sys, 'path', [*sys.path]))
    self.enter_context(contextlib.chdir(folder.full_path))
    with self.assertRaises(ZeroDivisionError):  # With the file's traceback.
      worlds.load('broken_world:make')
    with self.assertRaisesRegex(ValueError, 'invalid literal for int'):
      worlds.load('wrong_world:make')
    with self.assertRaisesRegex(ModuleNotFoundError, 'no_such_package'):
      worlds.load('needy_world:make')
    config_lib.define_flags()  # As agile_tf.launch does.
    self.addCleanup(lambda: [
        delattr(flags.FLAGS, field.name)
        for field in dataclasses.fields(config_lib.Config)])
    for name, message in (
        ('leaving', r'importing leaving_world called exit\(0\)'),
        ('late', r"make\(\) called exit\('bye'\)"),
        ('moving', 'changed the current directory from .* to .*elsewhere'),
        ('moving_late', r'make\(\) changed the current directory'),
        ('flagged', 'defines the flag --steps, which this program has too'),
        ('wrong_value', r'instructions\[0\] is None')):
      with self.assertRaisesRegex(
          worlds.WorldError, f"World '{name}_world:make': .*{message}"):
        worlds.load(f'{name}_world:make')
      self.assertEqual(os.getcwd(), os.path.realpath(folder.full_path))
