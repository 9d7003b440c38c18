"""Tests for building: the parts of a run from its configuration."""

import dataclasses
import os
from unittest import mock

from absl.testing import parameterized
import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import optimizers
from agile_tf.agent import programs
from agile_tf.training import building
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from tests.agile_tf import tiny


class BuildingTest(parameterized.TestCase):

  def test_the_goal_examples_of_a_world_are_known_by_their_contents(self):
    path = self.create_tempfile('goals.npz', 'one').full_path
    digests = set()
    for text in 'one', 'other', 'one':
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      with mock.patch.object(building, 'make_world', return_value=mock.Mock(
          goal_examples=path)):
        digests.add(building.Builder(config_lib.Config(
            world='my.world:make')).saved()[config_lib.DATASET])
    self.assertLen(digests, 2)

  def test_a_changed_file_of_goal_examples_is_another_setting(self):
    path = self.create_tempfile('goals.npz', 'one').full_path
    one = tiny.builder(dataset=path)
    saved = one.saved()
    self.assertFalse(config_lib.differences(saved, tiny.builder(
        dataset=path).saved()))
    with open(path, 'a', encoding='utf-8') as file:
      file.write('more')
    self.assertTrue(config_lib.differences(saved, tiny.builder(
        dataset=path).saved()))

  @parameterized.parameters(
      ('SameLocation.*AGENT', 'meanings'),
      (r"^SameLocation\(AGENT, Color\('\w+', SCENE\)", 'none'))
  def test_goal_examples_of_a_file_are_of_the_runs_instructions(
      self, pattern, held_out):
    folder = self.create_tempdir()
    path = os.path.join(folder.full_path, 'goals.npz')
    drawn = goal_dataset.generate('relations', 3000, seed=0)
    order = np.argsort(drawn.instruction)
    goal_dataset.save(path, dataclasses.replace(
        drawn, instruction=drawn.instruction[order],
        states=drawn.states[order]))
    config = tiny.config(dataset=path, instructions=pattern, held_out=held_out,
                         held_out_share=.3)
    world = building.make_world(config)
    with self.assertLogs('absl', 'WARNING') as logs:
      examples = building.make_goal_examples(config, world)
    self.assertRegex(logs.output[0], r'\d+ of 3000 examples are of instruct')
    self.assertBetween(  # No longer sorted.
        (np.diff(examples.dataset.instruction) < 0).mean(), .25, .6)
    codes, _ = examples.sample(np.random.default_rng(0), 4000)
    training_side = world.grammar.encode(
        [world.make_environment(seed).reset().observation['instruction']
         for seed in range(200)])
    self.assertEqual(
        {tuple(code) for code in codes}, {tuple(c) for c in training_side})
    none = tiny.config(world='arrangements', instructions='', dataset=path,
                       episode_length=4)
    with self.assertRaisesRegex(
        program.UserError, 'no example of the instructions'):
      building.make_goal_examples(none, building.make_world(none))

  @parameterized.parameters(('nmn', 'film_nmn'), ('lstm', 'lstm'))
  def test_both_networks_are_of_the_model(self, model, part):
    config = tiny.config(model=model)
    parts = building.Builder(config).make()
    for network in parts.policy, parts.discriminator:
      self.assertIn(part, ' '.join(network.layout.names))

  def test_settings_of_losses_and_updates_reach_their_places(self):
    builder = tiny.builder(
        discount=.1, td_lambda=.2, baseline_cost=.3, reward_prediction=True,
        reward_prediction_batch_size=3, reward_prediction_cost=.4,
        reward_form='log', reward_scale=.5, policy_learning_rate=.5,
        policy_decay=.6, policy_epsilon=.7,
        policy_gradient_norm=.8, discriminator_learning_rate=1.5,
        discriminator_decay=.9, discriminator_epsilon=1.7,
        discriminator_gradient_norm=1.8, max_column_norm=1.9,
        entropy_weight=.75)
    with (mock.patch.object(builder, 'programs') as made,
          mock.patch.object(builder, 'parameters') as shared):
      parts = builder.make()
    (_, _, _, *arguments), _ = made.call_args
    self.assertEqual(arguments, [programs.Loss(
        discount=.1, td_lambda=.2, baseline_cost=.3,
        auxiliary_cost=.4), 'log', .5])
    self.assertEqual([call.args[2] for call in shared.call_args_list], [
        optimizers.Updates(
            decay=.6, epsilon=.7, gradient_norm=.8),
        optimizers.Updates(
            decay=.9, epsilon=1.7, gradient_norm=1.8, max_column_norm=1.9)])
    free = tiny.builder(max_column_norm=0.0)
    with mock.patch.object(free, 'parameters') as shared:
      free.make()
    self.assertIsNone(shared.call_args.args[2].max_column_norm)
    worker, = parts.policy_workers
    self.assertEqual(
        (worker._entropy_weight(0), worker._learning_rate(10**9),
         worker.auxiliary._batch_size, parts.discriminator_worker._batch_size,
         parts.discriminator_worker._learning_rate), (.75, .5, 3, 4, 1.5))

  def test_generated_goal_examples_are_those_of_the_settings(self):
    config = tiny.config(dataset_size=40, dataset_seed=5)
    made = building.make_goal_examples(
        config, building.make_world(config), 1.0).dataset
    expected = goal_dataset.generate(
        'relations', 40, 5, building.matching(
            config.instructions, language.relations_instructions()), 1.0)
    np.testing.assert_array_equal(made.states, expected.states)
    self.assertEqual(made.instructions, expected.instructions)

  def test_truncated_episodes_reach_their_place(self):
    world = building.make_world(tiny.config(truncate=True))
    self.assertEqual(world.final_discount, 1)

  def test_b_must_hold_one_draw(self):
    with self.assertRaisesRegex(
        config_lib.ConfigError, r'replay_size=5 is less .* \(6 pairs'):
      tiny.builder(batch_size=6, replay_size=5).make()
    tiny.builder(batch_size=6, replay_size=6).make()

  def test_a_checker_is_no_reward(self):
    with self.assertRaisesRegex(config_lib.ConfigError, 'needs a ground truth'):
      tiny.builder(
          world='arrangements', instructions='', reward='environment').make()

  def test_held_out_instructions(self):
    for way, count in (('strings', 3), ('meanings', 4)):
      # Of 30 instructions.
      config = tiny.config(held_out=way, dataset_size=500)
      seen, held_out = (
          {building.make_world(config, side).make_environment(
              seed).reset().observation['instruction'] for seed in range(300)}
          for side in (False, True))
      self.assertLen(held_out, count)
      self.assertLen(seen, 30 - count)
      self.assertEmpty(seen & held_out)
      world = building.make_world(config)
      examples = building.make_goal_examples(config, world).dataset
      self.assertEqual(set(examples.instructions), seen)
      # The networks can read the instructions of both sides.
      self.assertLen(world.grammar.encode(sorted(seen | held_out)), 30)

  def test_goal_states_that_are_none(self):
    path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
    dataset = goal_dataset.generate(
        'relations', 50, 0, ["SameLocation(AGENT, Shape('rect', SCENE))"])
    dataset.states[:3, :25] = 0  # Nothing is there.
    goal_dataset.save(path, dataset)
    config = tiny.config(dataset=path)
    world = building.make_world(config)
    with self.assertLogs('absl', 'WARNING') as logs:
      self.assertLen(building.make_goal_examples(config, world), 50)
    self.assertIn('3 of 50 goal states do not satisfy', logs.output[0])

  def test_goal_states_of_another_world_name_their_file(self):
    path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
    goal_dataset.save(path, goal_dataset.GoalDataset(
        ("SameLocation(AGENT, Shape('rect', SCENE))",),
        np.zeros([2], np.int32), images=np.zeros([2, 40, 40, 3], np.uint8)))
    config = tiny.config(dataset=path)
    with self.assertRaisesRegex(
        program.UserError,
        r'goals.npz: .*\[40, 40, 3\].*uint8 \[27\]'):
      building.make_goal_examples(config, building.make_world(config))

  def test_instructions_that_cannot_be_held_out(self):
    for changes, held_out, problem in (
        (dict(), True, 'held no instructions out'),
        (dict(held_out='strings', held_out_share=0.001), False,
         'a side would be empty')):
      with self.assertRaisesRegex(config_lib.ConfigError, problem):
        building.make_world(tiny.config(**changes), held_out)

  def test_bad_worlds_are_named(self):
    for name, part in (('nowhere', 'nowhere'),
                       ('no.such.module:f', 'no.such'),
                       ('json:nothing', 'nothing'),
                       ('builtins:list', 'returned list'),
                       ('.a:b', 'not the name'),
                       ('..', 'not the name of a function'),
                       (':', 'not the name'),
                       ('os:path', 'not a callable'),
                       ('os:chmod', 'missing a required argument')):
      with self.assertRaisesRegex(ValueError, part):
        building.make_world(config_lib.Config(world=name))

  @parameterized.parameters(*dict(
      instructions='AGENT', held_out='strings', held_out_share=0.5,
      held_out_seed=1, physics='immovable_red_rects', episode_length=4,
      solved_starts=True, truncate=True, dataset_size=10,
      dataset_seed=1).items())
  def test_other_worlds_do_not_have_gridlus_settings(self, name, value):
    with self.assertRaisesRegex(
        config_lib.ConfigError, f'--{name}={value} is a setting of GridLU'):
      building.make_world(
          config_lib.Config(world='builtins:list', **{name: value}))

  @parameterized.parameters(
      ('', 990), ('AGENT', 150), (r'^SameLocation\(AGENT', 15))
  def test_instructions_are_chosen_by_their_text(self, pattern, count):
    world = building.make_world(config_lib.Config(instructions=pattern))
    instructions = world.make_environment(0).instructions
    self.assertLen(instructions, count)
    for instruction in instructions:
      self.assertRegex(str(instruction), pattern or '.')

  @parameterized.parameters(
      ('(', 'not a regular expression'), ('(' * 5000, 'not a regular expres'),
      ('a{4294967296}', 'not a regular expression'),
      ('purple', 'none of the 990'))
  def test_bad_patterns_are_named(self, pattern, problem):
    with self.assertRaisesRegex(config_lib.ConfigError, problem):
      building.make_world(config_lib.Config(instructions=pattern))
