"""Tests for gridlu.relations and gridlu.satisfied."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

import gridlu
from gridlu import language
from gridlu import relations
from gridlu import tasks
from gridlu import world
from tests.gridlu import boards

_GREEN_TRIANGLE = "Color('green', Shape('triangle', SCENE))"
_RED_CIRCLE = "Color('red', Shape('circle', SCENE))"


class SatisfiedTest(parameterized.TestCase):

  @parameterized.parameters(
      ('North', 'gt/rc/.@', True), ('North', 'rc/gt/.@', False),
      ('North', 'gt/./rc/.@', False), ('North', 'gt/. rc/.@', False),
      ('North', 'gc/rc/.@', False), ('North', 'bt/rc/.@', False),
      ('North', 'gt@/rc', True), ('North', 'gt!/rc', True),
      ('South', 'rc/gt/.@', True), ('South', 'gt/rc/.@', False),
      ('South', 'rc////gt@', False), ('South', 'rc gt/.@', False),
      ('East', 'rc gt/.@', True), ('East', 'gt rc/.@', False),
      ('East', 'rc . gt/.@', False), ('East', '. . . . rc/gt/.@', False),
      ('West', 'gt rc/.@', True), ('West', 'rc gt/.@', False),
      ('West', '. . . . gt/rc/.@', False), ('West', '///.@/. . . gt rc', True),
  )
  def test_relations_hold_between_adjacent_blocks(
      self, relation, board, expected):
    # Each is "a green triangle RELATION from a red circle".
    instruction = f'{relation}From({_GREEN_TRIANGLE}, {_RED_CIRCLE})'
    actual = gridlu.satisfied(instruction, boards.draw(board))
    self.assertEqual(actual, expected)

  @parameterized.parameters(
      ("NorthFrom(AGENT, Shape('rect', SCENE))", '.@/br', True),
      ("NorthFrom(AGENT, Shape('rect', SCENE))", '.@/bc', False),
      ("NorthFrom(Shape('rect', SCENE), AGENT)", 'br/.@', True),
      ("NorthFrom(Shape('rect', SCENE), AGENT)", '.@/br', False),
      ("SameLocation(AGENT, Color('blue', SCENE))", 'bt@', True),
      ("SameLocation(AGENT, Color('blue', SCENE))", 'bt!', True),
      ("SameLocation(AGENT, Color('blue', SCENE))", 'bt .@', False),
      ("SameLocation(AGENT, Color('blue', SCENE))", 'gt@ bt', False),
      ("SameLocation(Shape('rect', SCENE), AGENT)", '/rr@', True),
      ("SameLocation(Shape('rect', SCENE), AGENT)", '/rt@ rr', False),
      # Loose descriptions overlap: one block never stands beside itself, but
      # two may fit both.
      ("EastFrom(Color('red', SCENE), Shape('rect', SCENE))", 'rr .@', False),
      ("EastFrom(Color('red', SCENE), Shape('rect', SCENE))", 'rr rr .@', True),
  )
  def test_relations_hold_for_the_agent_and_loose_descriptions(
      self, instruction, board, expected):
    self.assertEqual(gridlu.satisfied(instruction, boards.draw(board)),
                     expected)

  def test_the_ground_truth_equals_the_scalar_oracle(self):
    rng = np.random.default_rng(0)
    instructions = language.relations_instructions()
    index = np.concatenate([np.arange(990), rng.integers(990, size=1000)])
    states = boards.random_states(rng, len(index))
    actual = relations.satisfied(relations.encode(instructions)[index], states)
    expected = [
        boards.scalar_satisfied(
            instructions[i], world.State(*(x[n] for x in states)))
        for n, i in enumerate(index)]
    np.testing.assert_array_equal(actual, expected)
    self.assertEqual(actual.dtype, np.bool_)
    self.assertBetween(np.mean(actual), .1, .9)


class InstancesTest(parameterized.TestCase):

  def test_instances_have_the_papers_shares(self):
    count = 40_000
    drawn = relations.instances(np.random.default_rng(0), count)
    self.assertEqual(drawn.instruction.dtype, np.int32)
    instructions = language.relations_instructions()
    is_go_to = np.array([i.is_go_to for i in instructions])[drawn.instruction]
    # Four standard errors of a share of 25 % are .0087.
    self.assertAlmostEqual(np.mean(is_go_to), .25, delta=.0087)
    # Uniform within a kind, but for what rejection shifts.
    counts = np.bincount(drawn.instruction, minlength=990)
    self.assertLess(np.max(np.abs(counts[:150] - 10_000 / 150)), 45)
    self.assertLess(np.max(np.abs(counts[150:] - 30_000 / 840)), 36)

    blocks, agent, carrying = drawn.state
    self.assertEqual(blocks.shape, (count, 5, 5))
    # No two blocks share a cell.
    np.testing.assert_array_equal(np.sum(blocks > 0, axis=(1, 2)),
                                  np.where(is_go_to, 2, 3))
    # Blocks are not all identical.
    kinds = [len(set(board[board > 0])) for board in blocks.reshape(count, 25)]
    self.assertGreater(min(kinds), 1)
    self.assertFalse(np.any(carrying))
    cells = np.bincount(world.cell_index(agent), minlength=25) / count
    np.testing.assert_allclose(cells, 1 / 25, atol=.005)
    cells = np.mean(blocks > 0, axis=0)
    np.testing.assert_allclose(cells, 2.75 / 25, atol=.01)
    # What instructions leave open is uniform, and so are distractors.
    np.testing.assert_allclose(
        np.bincount(blocks[blocks > 0], minlength=10)[1:] / np.sum(blocks > 0),
        1 / 9, atol=.01)
    # A start may already satisfy its instruction.
    codes = relations.encode(instructions)[drawn.instruction]
    self.assertAlmostEqual(
        np.mean(relations.satisfied(codes, drawn.state)), .046, delta=.004)

  def test_blocks_fit_the_instruction(self):
    text = ("WestFrom(Color('red', SCENE), "
            "Color('blue', Shape('triangle', SCENE)))")
    drawn = relations.instances(np.random.default_rng(0), 2000,
                                [language.parse(text)])
    np.testing.assert_array_equal(drawn.instruction, 0)
    boards_ = drawn.state.blocks.reshape(2000, 25)
    self.assertTrue(np.all(np.any(boards_ == 9, axis=1)))
    red = (boards_ > 0) & (boards_ % 3 == 1)
    self.assertTrue(np.all(np.any(red, axis=1)))
    # What is left open is drawn uniformly: a distractor is red in a third of
    # the cases, and each shape has a third.
    shapes = np.bincount(boards_[red], minlength=10)[[1, 4, 7]]
    np.testing.assert_allclose(shapes / np.sum(shapes), 1 / 3, atol=.05)

  def test_one_kind_alone_gets_all(self):
    instructions = language.relations_instructions()
    for some in (instructions[:10], instructions[-10:]):
      drawn = relations.instances(np.random.default_rng(0), 1000, some)
      self.assertLen(set(drawn.instruction), 10)
      self.assertLess(np.max(drawn.instruction), 10)

  def test_crowded_boards_have_none_to_three_distractors(self):
    drawn = tasks.find('crowded').goal_states(
        np.random.default_rng(0), 40_000)
    codes = relations.encode(language.relations_instructions())
    self.assertTrue(np.all(
        relations.satisfied(codes[drawn.instruction], drawn.state)))
    blocks = np.count_nonzero(drawn.state.blocks, axis=(1, 2))
    go_to, bring_to = (
        np.bincount(blocks[(drawn.instruction < 150) == side], minlength=6)
        for side in (True, False))
    np.testing.assert_array_equal(go_to > 0, [0, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(bring_to > 0, [0, 0, 1, 1, 1, 1])
    # All numbers are as likely, but a block more shares no cell with n others
    # only with probability 1 - n / 25.
    np.testing.assert_allclose(
        bring_to[4:] / bring_to[3:5], [22 / 25, 21 / 25], atol=.04)

  @parameterized.parameters(relations.instances, relations.goal_states)
  def test_as_many_are_drawn_as_asked_and_bad_instructions_are_refused(
      self, draw):
    rng = np.random.default_rng(0)
    for count in (0, 1, 5):
      drawn = draw(rng, count)
      self.assertEqual(drawn.instruction.shape, (count,))
      self.assertEqual(drawn.state.agent.shape, (count, 2))
    with self.assertRaisesRegex(ValueError, 'instructions is empty'):
      draw(rng, 1, [])
    with self.assertRaisesRegex(
        ValueError, 'expected an instruction of relations'):
      draw(rng, 1, language.arrangements_instructions())


class GoalStatesTest(absltest.TestCase):

  def test_all_goal_states_satisfy_their_instruction(self):
    drawn = relations.goal_states(np.random.default_rng(0), 20_000)
    codes = relations.encode(language.relations_instructions())
    self.assertTrue(np.all(
        relations.satisfied(codes[drawn.instruction], drawn.state)))
    self.assertFalse(np.any(drawn.state.carrying))
    is_go_to = drawn.instruction < 150
    self.assertAlmostEqual(np.mean(is_go_to), .25, delta=.0125)
    np.testing.assert_array_equal(np.sum(drawn.state.blocks > 0, axis=(1, 2)),
                                  np.where(is_go_to, 2, 3))

  def test_goal_states_are_uniform_over_placements(self):
    # 20 places for the agent and its rect below; the distractor, if it is not
    # a rect, is uniform over the 24 cells left.
    instruction = language.parse(
        "NorthFrom(AGENT, Color('red', Shape('rect', SCENE)))")
    drawn = relations.goal_states(np.random.default_rng(0), 20_000,
                                  [instruction])
    counts = np.bincount(world.cell_index(drawn.state.agent), minlength=25)
    np.testing.assert_array_equal(counts[20:], 0)
    np.testing.assert_allclose(counts[:20] / 20_000, 1 / 20, atol=.007)
    center = drawn.state.blocks[world.cell_index(drawn.state.agent) == 12]
    distractors = np.mean((center > 0) & (center != 4), axis=0)
    distractors[3, 2] = 1 / 24
    np.testing.assert_allclose(distractors, 1 / 24, atol=.025)
