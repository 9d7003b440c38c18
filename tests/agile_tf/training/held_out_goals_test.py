"""Tests for goal examples on which nothing is trained."""

from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf import config as config_lib
from agile_tf import worlds
from agile_tf.agent import worlds as agent_worlds
from agile_tf.training import held_out_goals
from gridlu import goal_dataset
from tests.agile_tf import tiny


def _dataset(counts, copies=1):
  """Returns examples of instructions; each occurs several times, shuffled.

  The pixels of a picture are its number, which no other one has.
  """
  instruction = np.repeat(np.arange(len(counts)), counts)
  rows = np.random.default_rng(5).permutation(
      np.tile(np.arange(len(instruction)), copies))
  images = np.zeros([len(rows), 8, 8, 3], np.uint8)
  images[:, 0, 0, 0], images[:, 0, 0, 1] = rows % 256, rows // 256
  return goal_dataset.GoalDataset(
      tuple(f'do {i}' for i in range(len(counts))), instruction[rows],
      images=images)


def _examples(dataset):
  """Returns the examples as a list of texts and bytes."""
  return [(dataset.instructions[i], state.tobytes()) for i, state in zip(
      dataset.instruction, dataset.observations)]


class SplitTest(parameterized.TestCase):

  @parameterized.parameters(
      ([100, 200, 60], 1, 0.1, 36), ([100, 200, 60], 3, 0.1, 36),
      ([1, 1, 8], 1, 0.3, 3), ([1, 1, 8], 2, 0.5, 5), ([50], 1, 0.02, 1))
  def test_what_is_held_out_is_not_among_the_others(
      self, counts, copies, share, expected):
    dataset = _dataset(counts, copies)
    kept, apart = map(_examples, held_out_goals.split(dataset, share))
    self.assertCountEqual(kept + apart, _examples(dataset))
    self.assertEmpty({*kept} & {*apart})
    self.assertLen({*apart}, expected)
    self.assertLen(apart, expected * copies)
    self.assertEqual({text for text, _ in kept}, {*dataset.instructions})

  def test_equal_goal_examples_are_divided_equally(self):
    dataset = goal_dataset.generate('relations', 300, 3)
    first, second = ([*map(_examples, held_out_goals.split(dataset, 0.1))]
                     for _ in range(2))
    self.assertEqual(first, second)
    self.assertEqual([len({*part}) for part in first], [
        len({*_examples(dataset)}) - len({*first[1]}), len({*first[1]})])

  @parameterized.parameters(
      ([10, 10], 0.02, r'0.02 of 20 different .* is 0: expected 1 to 18'),
      ([1, 1, 1], 0.5, r'0.5 of 3 .* is 2: expected 1 to 0.*of 3 instructions'),
      ([3, 1, 1], 0.5, None), ([2, 1, 1], 0.5, 'is 2: expected 1 to 1'))
  def test_a_share_that_cannot_be_held_out_is_named(
      self, counts, share, problem):
    if problem is None:
      held_out_goals.split(_dataset(counts), share)
      return
    with self.assertRaisesRegex(config_lib.ConfigError, problem):
      held_out_goals.split(_dataset(counts), share)


class _Programs:
  """D is the number of a picture in hundredths, plus 0.3 for token 2."""
  reward_threshold = 0.75

  def probabilities(self, phi, observations, codes):
    assert phi == 'phi'
    return np.float32(
        observations[:, 0, 0, 0] / 100 + 0.3 * (codes == 2).any(-1))


class _World:

  class grammar:

    @staticmethod
    def encode(texts):
      return np.array([[int(text[3:])] for text in texts], np.int32)


class TestTest(parameterized.TestCase):

  @parameterized.parameters(90, 20)
  def test_accepted_shares_are_those_of_a_loop(self, most):
    dataset = _dataset([30, 30, 30])
    goals = agent_worlds.GoalExamples(dataset, _World())
    test = held_out_goals.GoalTest(goals, most)
    found = test.accepted(_Programs(), 'phi')
    self.assertEqual([*found], [
        'held_out_goals_accepted', 'mismatched_goals_accepted'])
    own = {state.tobytes(): i for i, state in zip(
        dataset.instruction.tolist(), dataset.observations)}
    for name, (codes, states) in test._pairs.items():
      self.assertLen(codes, most)
      accepted = 0
      for (code,), state in zip(codes.tolist(), states):
        is_own = own[state.tobytes()] == code
        self.assertEqual(is_own, name == 'held_out_goals')
        accepted += state[0, 0, 0] / 100 + 0.3 * (code == 2) > 0.75
      self.assertAlmostEqual(found[f'{name}_accepted'], accepted / most)
      self.assertBetween(accepted, 1, most - 1)
    if most == 90:  # All of them, and none twice.
      self.assertLen({state.tobytes() for state in test._pairs[
          'held_out_goals'].observations}, 90)

  def test_one_instruction_has_no_mismatched_examples(self):
    goals = agent_worlds.GoalExamples(_dataset([9]), _World())
    self.assertEqual(
        [*held_out_goals.GoalTest(goals).accepted(_Programs(), 'phi')],
        ['held_out_goals_accepted'])

  def test_without_a_share_nothing_changes(self):
    world = worlds.GridLUWorld()
    goals = agent_worlds.GoalExamples(
        goal_dataset.generate('relations', 50, 0), world)
    self.assertEqual(held_out_goals.divide(goals, world, 0.0), (goals, None))


@pytest.mark.slow
class RunTest(parameterized.TestCase):

  @parameterized.parameters(0.0, 0.25)
  def test_a_run_is_never_trained_on_what_it_holds_out(self, share):
    from agile_tf.training import trainer as trainer_lib
    plan = tiny.plan(held_out_goals=share, dataset_size=64, steps=128,
                     mismatched_share=0.5, reward_prediction_goals=1)
    trainer = trainer_lib.Trainer(plan)
    trained_on = []
    programs = trainer._parts.networks.discriminator_programs
    original = programs.gradient

    def spied(phi, goals, candidates):
      for pairs in goals, candidates.unrated:
        trained_on.extend(zip(pairs.codes.tolist(), pairs.observations))
      return original(phi, goals, candidates)

    programs.gradient = spied
    try:
      tiny.drive(trainer)
    finally:
      del programs.gradient
    self.assertNotEmpty(trained_on)
    row = trainer.row()
    names = {'held_out_goals_accepted', 'mismatched_goals_accepted'}
    apart = trainer._parts.data.held_out_goals
    if not share:
      self.assertIsNone(apart)
      self.assertEmpty(names & row.keys())
      return
    secret = {state.tobytes() for state in apart.observations}
    seen = {state.tobytes() for _, state in trained_on}
    self.assertLen(secret, 16)
    # Two instructions may have the same goal state; none here does.
    self.assertEmpty(secret & seen)
    of_prediction = trainer._parts.data.auxiliary
    codes, states, _ = of_prediction._others(np.random.default_rng(0))
    self.assertEmpty(secret & {state.tobytes() for state in states})
    for name, pairs in trainer._held_out_test._pairs.items():
      decided = programs.decisions(
          trainer.discriminator.snapshot(), pairs.observations, pairs.codes)
      self.assertAlmostEqual(
          row[f'{name}_accepted'], np.mean(decided), places=6)
