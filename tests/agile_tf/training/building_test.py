"""Tests for building: the parts of a run from its configuration."""

import dataclasses
import os
from unittest import mock

from absl.testing import parameterized
import numpy as np

from agile_tf import config as config_lib
from agile_tf.agent import optimizers
from agile_tf.agent import programs
from agile_tf.agent import variation
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.training import building
from agile_tf.training import selection
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
        digests.add(building.Plan(config_lib.Config(
            world='my.world:make')).settings[config_lib.DATASET_SHA256])
    self.assertLen(digests, 2)

  def test_a_changed_file_of_goal_examples_is_another_setting(self):
    path = self.create_tempfile('goals.npz', 'one').full_path
    one = tiny.plan(dataset=path)
    saved = one.settings
    self.assertFalse(config_lib.differences(saved, tiny.plan(
        dataset=path).settings))
    with open(path, 'a', encoding='utf-8') as file:
      file.write('more')
    self.assertTrue(config_lib.differences(saved, tiny.plan(
        dataset=path).settings))

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
    made = building.build_networks(building.Plan(config))
    for network in made.policy, made.discriminator:
      self.assertIn(part, ' '.join(network.layout.names))

  def test_settings_of_losses_and_updates_reach_their_places(self):
    plan = tiny.plan(
        discount=.1, td_lambda=.2, baseline_cost=.3, reward_prediction=True,
        reward_prediction_batch_size=3, reward_prediction_cost=.4,
        reward_form='log', reward_scale=.5, reward_threshold=.65,
        policy_learning_rate=.5,
        policy_decay=.6, policy_epsilon=.7,
        policy_gradient_norm=.8, discriminator_learning_rate=1.5,
        discriminator_decay=.9, discriminator_epsilon=1.7,
        discriminator_gradient_norm=1.8, max_column_norm=1.9,
        entropy_weight=.75)
    rule = mock.Mock()
    plan = dataclasses.replace(
        plan, variation=plan.variation._replace(rule=rule))
    with (mock.patch.object(building, '_policy_programs') as policy,
          mock.patch.object(building, '_discriminator_programs') as d,
          mock.patch.object(optimizers, 'SharedParameters') as shared):
      parts = building.build(plan)
    (_, _, settings, auxiliary, averaged), _ = policy.call_args
    self.assertEqual(settings, programs.LossSettings(
        discount=.1, td_lambda=.2, baseline_cost=.3))
    self.assertEqual(d.call_args.args[1:], ('log', .5, .65))
    self.assertEqual(auxiliary[:2], ('reward_prediction', .4))
    self.assertFalse(averaged)
    self.assertEqual(
        [call.args for call in rule.call_args_list], [(.6, .7), (.9, 1.7)])
    self.assertEqual([call.args[3:] for call in shared.call_args_list],
                     [(.8,), (1.8, 1.9, False)])
    free = tiny.plan(max_column_norm=0.0)
    with mock.patch.object(optimizers, 'SharedParameters') as shared:
      building.build(free)
    self.assertIsNone(shared.call_args.args[4])
    worker, = parts.policy_workers
    self.assertEqual(
        (worker._entropy_weight(0), worker._learning_rate(10**9),
         worker._data._batch_size), (.75, .5, 3))
    self.assertEqual(
        parts.discriminator_worker.learner._settings,
        workers.DiscriminatorSettings(
            4, 1.5, workers.AnticipatedNegatives(2, .5)))

  def test_generated_goal_examples_are_those_of_the_settings(self):
    config = tiny.config(dataset_size=40, dataset_seed=5)
    made = building.make_goal_examples(
        config, building.make_world(config), 1.0).dataset
    expected = goal_dataset.generate(
        'relations', 40, 5, selection.matching(
            config.instructions, language.relations_instructions()), 1.0)
    np.testing.assert_array_equal(made.states, expected.states)
    self.assertEqual(made.instructions, expected.instructions)

  def test_truncated_episodes_reach_their_place(self):
    world = building.make_world(tiny.config(truncate=True))
    self.assertEqual(world.final_discount, 1)

  def test_b_must_hold_one_draw(self):
    with self.assertRaisesRegex(
        config_lib.ConfigError, r'replay_size=5 is less .* \(6 pairs'):
      tiny.plan(batch_size=6, replay_size=5).check()
    tiny.plan(batch_size=6, replay_size=6).check()

  def test_a_head_start_needs_a_discriminator_that_is_trained(self):
    plan = tiny.plan(reward='environment')
    plan = dataclasses.replace(plan, variation=plan.variation._replace(
        head_start=variation.HeadStart(1, lambda *_: None)))
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'reward=environment trains no discriminator'):
      plan.check()

  def test_a_checker_is_no_reward(self):
    with self.assertRaisesRegex(config_lib.ConfigError, 'needs a ground truth'):
      tiny.plan(
          world='arrangements', instructions='', reward='environment').check()

  @parameterized.parameters('nmn', 'lstm')
  def test_pixels_that_no_patch_of_the_papers_networks_has_are_refused(
      self, model):
    for shape in (56, 56, 3), (24, 80, 3):
      building.check_image_shape(model, shape)
    for shape, unseen in (
        ((36, 36, 3), 'the last 4 rows of pixels and the last 4 columns of'),
        ((40, 47, 3), 'not see the last 7 columns of pixels, and'),
        ((31, 24, 3), 'not see the last 7 rows of pixels, and')):
      with self.assertRaisesRegex(
          worlds.WorldError, f'{shape[0]} x {shape[1]} pixels.*--model={model}'
          f'.*{unseen}.*overlapping'):
        building.check_image_shape(model, shape)
      building.check_image_shape('agile_tf.overlapping:make', shape)

  def test_a_plan_checks_its_images(self):
    plan = tiny.plan()
    with (mock.patch.object(plan.world, 'image_shape', (36, 36, 3)),
          self.assertRaisesRegex(worlds.WorldError, '36 x 36')):
      plan.check()

  def test_held_out_instructions_are_not_trained_on(self):
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

  def test_invalid_goal_states_are_reported(self):
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

  def test_goal_states_are_checked_by_the_truth_of_the_runs_task(self):
    path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
    text = "SameLocation(AGENT, Shape('rect', SCENE))"
    dataset = goal_dataset.generate('relations', 50, 0, [text], carrying=1.0)
    goal_dataset.save(path, dataset)
    config = tiny.config(dataset=path, world='put_down')
    world = building.make_world(config)
    with self.assertLogs('absl', 'WARNING') as logs:
      building.make_goal_examples(config, world)
    self.assertIn('50 of 50 goal states do not satisfy', logs.output[0])

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

  def test_splits_that_are_impossible_are_refused(self):
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

  def test_a_run_saves_the_instructions_that_its_pattern_selects(self):
    saved = tiny.plan(instructions=r'^SameLocation\(AGENT').settings
    self.assertEqual(saved[config_lib.SELECTED], [
        str(each) for each in language.relations_instructions()
        if str(each).startswith('SameLocation(AGENT')])
    self.assertNotIn(
        config_lib.SELECTED, tiny.plan(instructions='').settings)
    # An earlier version saved none.
    earlier = {name: value for name, value in saved.items()
               if name != config_lib.SELECTED}
    self.assertEmpty(config_lib.differences(earlier, saved))

  @parameterized.parameters(
      ('(', 'not a regular expression'), ('(' * 5000, 'not a regular expres'),
      ('a{4294967296}', 'not a regular expression'),
      ('purple', 'none of the 990'))
  def test_bad_patterns_are_named(self, pattern, problem):
    with self.assertRaisesRegex(config_lib.ConfigError, problem):
      building.make_world(config_lib.Config(instructions=pattern))
