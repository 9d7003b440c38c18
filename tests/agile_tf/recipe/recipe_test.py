"""Tests for the recipe: each trick by itself."""

import itertools
import os
from unittest import mock

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf import worlds
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import variation
from agile_tf.agent import workers
from agile_tf.agent import worlds as agent_worlds
from agile_tf.recipe import adam
from agile_tf.recipe import annealing
from agile_tf.recipe import mismatched
from agile_tf.recipe import settings
from agile_tf.recipe import variations
from agile_tf.training import building
from agile_tf.training import start
from agile_tf.training import trainer as trainer_lib
from gridlu import goal_dataset
from gridlu import language
from gridlu import relations
from gridlu import world as world_lib
from tests.agile_tf import tiny


class LinearTest(parameterized.TestCase):

  @parameterized.parameters(
      (1.0, 0.4, 1000, 0, 1.0), (1.0, 0.4, 1000, 250, 0.85),
      (1.0, 0.4, 1000, 1000, 0.4), (1.0, 0.4, 1000, 10**9, 0.4),
      (0.25, 1.0, 100, 50, 0.625), (7.0, 0.25, 0, 0, 0.25))
  def test_a_linear_setting_changes_linearly(
      self, first, last, steps, step, expected):
    self.assertAlmostEqual(annealing.Linear(first, last, steps)(step), expected)


class MismatchedTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.world = worlds.GridLUWorld()
    self.dataset = goal_dataset.generate('relations', 200, seed=1)
    self.goals = agent_worlds.GoalExamples(self.dataset, self.world)

  def test_mismatched_goals_never_have_their_own_instruction(self):
    codes, observations = self.goals.sample_mismatched(
        np.random.default_rng(0), 2000)
    own: dict[bytes, set[bytes]] = {}
    for i, state in zip(self.dataset.instruction, self.dataset.states):
      own.setdefault(state.tobytes(), set()).add(
          self.world.grammar.encode([self.dataset.instructions[i]])[0].tobytes())
    for code, state in zip(codes, observations):
      self.assertNotEqual(own[state.tobytes()], {code.tobytes()})
    # Nearly all of them are negatives.
    texts = [str(x) for x in language.relations_instructions()]
    numbers = {code.tobytes(): i
               for i, code in enumerate(self.world.grammar.encode(texts))}
    truth = relations.satisfied(
        relations.encode(language.relations_instructions())[
            [numbers[code.tobytes()] for code in codes]],
        world_lib.unpack(observations))
    self.assertBetween(truth.mean(), 0.01, 0.15)

  @parameterized.parameters(
      dict(mismatched_share=.5), dict(reward_prediction_goals=1))
  def test_goals_of_one_instruction_alone_are_refused(self, **changes):
    with self.assertRaisesRegex(worlds.WorldError, '--mismatched_share'):
      building.build_data(tiny.plan(
          instructions=r"^Same.*AGENT, Color\('red', SCENE", **changes))

  def _buffer(self, count):
    buffer = replay.ReplayBuffer(100, len(self.world.grammar.slots), [27])
    buffer.add(self.goals.codes[:1].repeat(count, 0),
               np.full([count, 27], 77, np.uint8))
    return buffer

  def test_displaced_goals_are_among_the_mismatched_ones(self):
    buffer, boards = self._buffer(8), np.full([3, 27], 55, np.uint8)
    negatives = mismatched.Negatives(
        annealing.Linear(1.0, 1.0, 1), kept=8, num_mismatched=1,
        num_displaced=3)
    with mock.patch.object(
        mismatched.displaced, 'sample', return_value=rollouts.Pairs(
            self.goals.codes[:3], boards)) as sample:
      made = negatives.draw(buffer, self.goals, np.random.default_rng(0), 0)
    sample.assert_called_once_with(self.goals, mock.ANY, 3)
    self.assertEqual(
        (made.unrated.observations == 55).all(1).tolist(),
        [False] + [True] * 3)

  @parameterized.parameters((0, 8), (50, 13), (100, 32), (1000, 32))
  def test_draws_as_many_as_rho_forgives(self, step, drawn):
    """rho falls from 1 to 1/4; 8 of 16 negatives are from B."""
    negatives = mismatched.Negatives(
        annealing.Linear(1.0, 0.25, 100), kept=8, num_mismatched=8,
        num_displaced=0)
    self.assertEqual(negatives.largest_draw, 32)
    made = negatives.draw(
        self._buffer(32), self.goals, np.random.default_rng(0), step)
    self.assertEqual(made.num_counted, drawn)
    self.assertLen(made.pairs.codes, 32)
    self.assertLen(made.unrated.codes, 8)

  def test_rho_may_fall_without_other_negatives(self):
    made = mismatched.Negatives(
        annealing.Linear(1.0, 0.25, 100), kept=8, num_mismatched=0,
        num_displaced=0).draw(
            self._buffer(32), self.goals, np.random.default_rng(0), 50)
    self.assertEqual(made.num_counted, 13)
    self.assertIsNone(made.unrated)

  def test_prediction_learns_from_goal_examples_too(self):
    auxiliary = mismatched.prediction(0.5, 4, 100, 6)
    self.assertEqual(auxiliary.loss.cost, 0.5)
    rollout = mock.Mock(codes=self.goals.codes[:2], **{
        'pairs.return_value': (self.goals.codes[:1].repeat(10, 0),
                               np.full([10, 27], 77, np.uint8)),
        'played.return_value': np.zeros([10], np.bool_)})
    of_workers = auxiliary.make(self.world, self.goals).add_and_sample(
        np.random.default_rng(0), rollout, None)
    self.assertEqual(of_workers.labels.shape, (2, 4 + 6 + 6))
    codes, observations, positive = (part[1] for part in of_workers)
    self.assertEqual(
        positive.tolist(), [False] * 4 + [True] * 6 + [False] * 6)
    self.assertTrue((observations[:4] == 77).all())
    own = {(self.goals.codes[i].tobytes(), state.tobytes())
           for i, state in zip(self.dataset.instruction, self.dataset.states)}
    pairs = [(code.tobytes(), state.tobytes())
             for code, state in zip(codes, observations)]
    self.assertEqual([pair in own for pair in pairs[4:]],
                     [True] * 6 + [False] * 6)


_IMITATION = dict(
    world='arrangements', instructions='', imitation_cost=2.0,
    reward_prediction=False, mismatched_share=.5, batch_size=32,
    discriminator_head_start=1)


class VariationTest(parameterized.TestCase):

  def test_without_the_recipe_a_run_is_the_papers(self):
    self.assertEqual(tiny.plan().variation, variation.Variation())
    self.assertEqual(
        variations.make(config_lib.Config(), settings.Recipe()),
        variation.Variation())

  def test_settings_reach_their_places(self):
    made = tiny.plan(
        optimizer='adam', policy_update='averaged', initialization='he',
        policy_learning_rate=.5, first_policy_learning_rate=.7,
        policy_learning_rate_steps=10, entropy_weight=.1,
        first_entropy_weight=.3, entropy_weight_steps=20,
        discriminator_actors=3, discriminator_head_start=2,
        dataset_carrying=.25, dataset_any_distractors=True, batch_size=16,
        mismatched_share=.25, anticipated_negative_rate_steps=30)
    varied = made.variation
    self.assertIs(varied.rule, adam.adam)
    self.assertTrue(varied.averaged)
    rate = varied.learning_rate
    self.assertEqual((rate(0), rate(10)), (.7, .5))
    weight = varied.entropy_weight
    self.assertEqual((weight(0), weight(20)), (.3, .1))
    self.assertAlmostEqual(weight(10), .2)
    self.assertEqual(varied.carrying, .25)
    self.assertEqual(varied.distractors, (0, 4))
    parts = building.build(made)
    # He's last layer begins near 0; the paper's sigma there is 0.1.
    self.assertLess(
        np.abs(parts.networks.policy.state()['policy/logits/w']).max(), .01)
    self.assertTrue(parts.data.goals.observations[:, 26].any())
    negatives = made.negatives
    self.assertEqual(
        (negatives.kept, negatives.num_mismatched,
         negatives.num_displaced), (6, 2, 0))
    self.assertEqual(
        [negatives.rho(step) for step in (0, 15, 30)], [1, .75, .5])
    self.assertLen(parts.discriminator_worker.actor.environments, 3)
    self.assertEqual(
        made.settings['discriminator_head_start'], 2)

  @parameterized.parameters('worker', 'averaged')
  def test_mismatched_goal_examples_are_negatives(self, update):
    plan = tiny.plan(
        policy_update=update, batch_size=16, mismatched_share=.5)
    parts = building.build(plan)
    learner, goals = parts.discriminator_worker.learner, parts.data.goals
    pairs = goals.sample(learner.rng, 8)
    learner.add(pairs.codes, 0 * pairs.observations)
    drawn = plan.negatives.draw(learner.buffer, goals, learner.rng, 0)
    kept, _ = parts.networks.discriminator_programs._negatives(
        learner.parameters.snapshot(), drawn, 8)
    np.testing.assert_array_equal(
        kept.observations[4:], drawn.unrated.observations)

  def test_goals_can_be_predicted_without_a_discriminator(self):
    parts = building.build(tiny.plan(
        reward='environment', reward_prediction_goals=2))
    self.assertIsNone(parts.discriminator_worker)
    codes, _, rewarded = parts.data.auxiliary._others(np.random.default_rng(0))
    self.assertLen(codes, 4)
    self.assertEqual(rewarded.tolist(), [True] * 2 + [False] * 2)

  def test_a_run_goes_on_with_its_recipe_alone(self):
    run_dir = self.create_tempdir().full_path
    path = os.path.join(run_dir, 'config.json')
    both = [tiny.plan(run_dir=run_dir, **tricks)
            for tricks in ({}, {'policy_update': 'averaged'})]
    for made, other in itertools.permutations(both):
      config_lib.save(made.settings, path)
      with open(f'{run_dir}/metrics.csv', 'w', encoding='utf-8') as file:
        file.write('steps\n1\n')
      start.check_same_run(run_dir, made.settings, made.defaults)
      with self.assertRaisesRegex(
          config_lib.ConfigError,
          r'other settings:\n  --policy_update: .*\nTo resume'):
        start.check_same_run(run_dir, other.settings, other.defaults)
    config_lib.save({'sede': 3}, path)
    with self.assertRaisesRegex(
        config_lib.ConfigError, f'{path}: .* has no setting sede'):
      start.check_same_run(run_dir, made.settings, made.defaults)

  def test_a_run_that_is_older_than_a_setting_goes_on(self):
    made = tiny.plan(run_dir=self.create_tempdir().full_path)
    other = tiny.plan(
        run_dir=made.config.run_dir, policy_update='averaged')
    path = start.config_path(made.config.run_dir)
    earlier = {name: value for name, value in made.settings.items()
               if name not in settings.DEFAULTS}
    config_lib.save(earlier, path)
    with open(f'{made.config.run_dir}/metrics.csv', 'w', encoding='utf-8'
              ) as file:
      file.write('steps\n1\n')
    self.assertEqual(settings.load(path), (made.config, settings.Recipe()))
    start.check_same_run(made.config.run_dir, made.settings, made.defaults)
    with self.assertRaisesRegex(
        config_lib.ConfigError, "policy_update: 'worker' there, 'averaged' h"):
      start.check_same_run(
          made.config.run_dir, other.settings, other.defaults)

  def test_d_says_which_blocks_matter(self):
    made = tiny.plan(**_IMITATION)
    self.assertEqual(made.auxiliary.loss[:2], ('imitation', 2))
    self.assertEqual(made.negatives.num_displaced, 6)  # Of 8 not from B.
    parts = building.build(made)
    learner = parts.discriminator_worker.learner
    with mock.patch.object(
        parts.data.auxiliary, 'find_relevant_blocks') as find:
      made.variation.head_start.then(
          parts.networks.policy, learner, parts.data.auxiliary)
    (accepts, _), _ = find.call_args
    codes, states = parts.data.goals.sample(np.random.default_rng(0), 32)
    logits, _ = parts.networks.discriminator_programs._discriminator.at(
        learner.parameters.snapshot())(
            tf.constant(states), tf.constant(codes))
    np.testing.assert_array_equal(accepts(codes, states), logits > 0)

  @parameterized.parameters(
      (dict(mismatched_share=.9), 'leaves none of the 2 negatives'),
      (dict(mismatched_share=.1), 'gives none of the 2 negatives'),
      (dict(dataset_carrying=.5, world='my.world:make', dataset='goals.npz',
            dataset_size=131072, instructions=''),
       'dataset_carrying=0.5 needs a GridLU task as --world'),
      (dict(dataset_carrying=.5, world='put_down'),
       'dataset_carrying=0.5 needs another --world than put_down, .* set it to '
       '0'),
      (dict(reward_prediction=False, reward_prediction_goals=1),
       'needs --reward_prediction'),
      (dict(discriminator_head_start=1, reward='environment'),
       'needs --reward=discriminator'),
      (dict(discriminator_head_start=1, initial_policy='x'),
       'needs an empty --initial_policy'),
      (dict(dataset_carrying=-1), 'dataset_carrying=-1.0: expected at least 0'),
      (dict(reward_prediction_goals=10**30), 'expected .* at most 10000'),
      (_IMITATION | dict(world='relations'), 'needs --world=arrangements'),
      (_IMITATION | dict(physics='immovable_red_rects'), '--physics=normal'),
      (_IMITATION | dict(reward_prediction=True),
       'needs --noreward_prediction'),
      (_IMITATION | dict(mismatched_share=0), 'needs --mismatched_share'),
      (_IMITATION | dict(discriminator_head_start=0),
       'needs --discriminator_head_start'))
  def test_settings_that_do_not_fit_are_named(self, changes, message):
    with self.assertRaisesRegex(config_lib.ConfigError, message):
      tiny.plan(**changes)

  def test_the_policy_takes_over_the_features(self):
    trainer = trainer_lib.Trainer(tiny.plan(discriminator_head_start=3))
    self.enter_context(mock.patch.object(
        trainer.discriminator_worker, 'iterate',
        return_value=workers.Iteration(mock.Mock(steps=2), {})))
    names = [name.removeprefix('discriminator/')
             for name in trainer.discriminator.layout.names
             if 'features' in name]
    self.assertIn('features/stem/patches/w', names)
    first = trainer.policy.layout.split(trainer.policy.snapshot())
    for count in itertools.count():
      own = trainer.policy.layout.split(trainer.policy.snapshot())
      theirs = trainer.discriminator.layout.split(
          trainer.discriminator.snapshot())
      equal = all(np.array_equal(
          own[f'policy/{name}'], theirs[f'discriminator/{name}'])
                  for name in names)
      self.assertEqual(equal, count == 3)
      if equal:
        break
      trainer.schedule.begin('discriminator')
      trainer.iterate_discriminator(trainer.snapshot())
      trainer.schedule.end('discriminator')
    kept = first.keys() - {f'policy/{name}' for name in names}
    self.assertIn('policy/features/merge/convolution/w', kept)
    for name in kept:
      np.testing.assert_array_equal(own[name], first[name])
    self.assertTrue(trainer.schedule.may('policy'))
