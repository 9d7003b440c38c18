"""Tests for displaced goal examples and for what the policy imitates."""

import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import networks
from agile_tf.agent import worlds as agent_worlds
from agile_tf.recipe import displaced
from agile_tf.recipe import imitation
from gridlu import arrangements
from gridlu import goal_dataset
from gridlu import language
from gridlu import program
from gridlu import solver
from gridlu import world as world_lib
from tests.gridlu import boards


def _goals(count, seed=3):
  return agent_worlds.GoalExamples(
      goal_dataset.generate('arrangements', count, seed),
      worlds.GridLUWorld('arrangements'))


def _targets(goals):
  """Which blocks fit the instructions of goal examples, bool [N, 25]."""
  texts = np.take(goals.dataset.instructions, goals.dataset.instruction)
  cells = goals.dataset.states[:, :25]
  return np.array([
      [code > 0 and (
          'Color' not in text or world_lib.shape_and_color(code)[1] in text)
       for code in row] for text, row in zip(texts, cells)])


def _satisfied(goals, instruction, states):
  codes = arrangements.encode(
      [language.parse(text) for text in goals.dataset.instructions])
  return arrangements.satisfied(codes[instruction], world_lib.unpack(states))


def _looked(goals):
  """Demonstrations for which the checker has decided what matters."""
  number = {code.tobytes(): i for i, code in enumerate(goals.codes)}
  made = imitation.Demonstrations(goals)
  made.find_relevant_blocks(lambda codes, states: _satisfied(
      goals, [number[code.tobytes()] for code in codes], states),
            np.random.default_rng(0))
  return made


class DisplacedTest(absltest.TestCase):

  def test_moves_the_chosen_blocks_and_no_others(self):
    states, rng = _goals(300).dataset.states, np.random.default_rng(0)
    chosen = (states[:, :25] > 0) & (rng.random([300, 25]) < 0.5)
    made = displaced.displace(rng, states, chosen)
    for before, after, moves in zip(states[:, :25], made[:, :25], chosen):
      self.assertFalse(after[moves].any())
      stays = (before > 0) & ~moves
      np.testing.assert_array_equal(after[stays], before[stays])
      self.assertEqual(sorted(after), sorted(before))
    self.assertFalse(made[:, 26].any())
    self.assertGreater(np.ptp(made[:, 25]), 20)

  def test_displaces_one_to_all_equally_often(self):
    dataset = _goals(20).dataset
    first = np.flatnonzero(
        np.count_nonzero(dataset.states[:, :25], axis=1) == 4)[:1]
    goals = agent_worlds.GoalExamples(dataclasses.replace(
        dataset, instruction=dataset.instruction[first],
        states=dataset.states[first]), worlds.GridLUWorld('arrangements'))
    _, states = displaced.sample(goals, np.random.default_rng(1), 4000)
    before, after = goals.dataset.states[:, :25] > 0, states[:, :25] > 0
    np.testing.assert_allclose(
        np.bincount((after & ~before).sum(axis=1)) / 4000,
        [0, .25, .25, .25, .25], atol=0.03)
    # Each block as often, and to each free cell.
    np.testing.assert_allclose(
        after.mean(axis=0), np.where(before[0], 1.5 / 4, 2.5 / 21), atol=0.03)
    self.assertTrue((states[np.arange(4000), states[:, 25]] > 0)[
        states[:, 26] > 0].all())
    on_block = states[np.arange(4000), states[:, 25]] > 0
    self.assertAlmostEqual(states[on_block, 26].mean(), .5, delta=.08)

  def test_displaced_goals_keep_their_instructions(self):
    goals = _goals(300)
    known, found = ({(*code, *sorted(state[:25])) for code, state in zip(*each)}
                    for each in (
                        (goals.codes[goals.dataset.instruction],
                         goals.dataset.states),
                        displaced.sample(goals, np.random.default_rng(0), 500)))
    self.assertContainsSubset(found, known)


class DemonstrationsTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.goals = _goals(1500)
    cls.made = _looked(cls.goals)

  def test_finds_the_blocks_that_matter(self):
    """A form of four connected blocks may hold without one of its blocks."""
    found, targets = self.made.state()['matters'], _targets(self.goals)
    self.assertFalse((found & ~targets).any())
    self.assertGreater(found.sum() / targets.sum(), 0.9)

  def test_a_reward_model_that_accepts_everything_finds_no_blocks(self):
    with self.assertRaisesRegex(program.UserError, 'discriminator_head_start'):
      imitation.Demonstrations(self.goals).find_relevant_blocks(
          lambda codes, states: np.ones([len(states)], bool),
          np.random.default_rng(0))

  def test_the_agent_is_no_more_often_in_one_corner(self):
    _, states, _ = self.made.batch(np.random.default_rng(5), 40_000)
    few = np.count_nonzero(states[:, :25], axis=1) == 4
    agent = states[few, 25]
    empty = agent[states[few, agent] == 0]
    corners = np.bincount(empty, minlength=25)[[0, 4, 20, 24]]
    self.assertGreater(corners.min(), 100)
    self.assertLess(corners.max(), 1.5 * corners.min())

  def test_labels_are_steps_towards_a_goal(self):
    """By the exact solver: a good action leaves one step less, mostly."""
    codes, states, labels = self.made.batch(np.random.default_rng(5), 800)
    number = {code.tobytes(): i for i, code in enumerate(self.goals.codes)}
    instruction = np.array([number[code.tobytes()] for code in codes])
    keep = (np.count_nonzero(states[:, :25], axis=1) == 4) & (
        labels.sum(axis=1) > 0)
    instruction, states, labels = (
        x[keep] for x in (instruction, states, labels))
    np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
    texts = np.take(self.goals.dataset.instructions, instruction)
    action = np.argmax(labels, axis=1)
    before = world_lib.unpack(states)
    steps, following = (solver.shortest(texts, state) for state in (
        before, world_lib.step(before, action)))
    better = (following == steps - 1)[steps > 0]
    self.assertGreater(len(better), 200)
    self.assertGreater(better.mean(), 0.75)
    # Never INTERACT where the goal is reached by a free agent.
    done = (steps == 0) & (states[:, 26] == 0)
    self.assertGreater(done.sum(), 5)
    self.assertFalse(labels[done, world_lib.Action.INTERACT].any())

  def test_advice_leads_to_the_goal(self):
    """From scattered blocks, in hardly more steps than the exact solver's."""
    rng = np.random.default_rng(7)
    four = np.flatnonzero(np.count_nonzero(
        self.goals.dataset.states[:, :25], axis=1) == 4)[:150]
    instruction = self.goals.dataset.instruction[four]
    goal = self.goals.dataset.states[four]
    states = displaced.displace(rng, goal, goal[:, :25] > 0)
    texts = np.take(self.goals.dataset.instructions, instruction)
    shortest = solver.shortest(texts, world_lib.unpack(states))
    taken = np.where(_satisfied(self.goals, instruction, states), 0, -1)
    for step in range(1, 60):
      places = np.nonzero(states[:, :25])[1].reshape(-1, 4)
      labels = imitation._labels(
          states, places, self.made._nearest(instruction, states, places))
      states = world_lib.pack(world_lib.step(
          world_lib.unpack(states), np.argmax(labels, axis=1)))
      taken = np.where((taken < 0) & _satisfied(
          self.goals, instruction, states), step, taken)
    self.assertGreater((taken >= 0).mean(), 0.97)
    self.assertLess(taken[taken >= 0].mean(), 1.3 * shortest.mean())

  def test_a_block_is_put_down_where_another_has_its_place(self):
    labels = imitation._labels(
        world_lib.pack(boards.draw('rr! . rr'))[None], np.array([[0, 2]]),
        np.array([[2, 4]]))
    self.assertEqual(labels.tolist(), [[0, 0, 0, 0, 1]])

  def test_goals_are_not_where_other_blocks_stand(self):
    with mock.patch.object(
        self.made, '_nearest', wraps=self.made._nearest) as nearest:
      self.made.batch(np.random.default_rng(5), 2000)
    instruction, states, places = nearest.call_args.args
    others = states[:, :25] > 0
    np.put_along_axis(others, places, False, axis=1)
    goals = self.made._nearest(instruction, states, places)
    self.assertLess(
        np.take_along_axis(others, goals, axis=1).any(axis=1).mean(), .02)

  def test_agents_carry_blocks_to_their_places_and_blocks_are_mixed(self):
    rows = np.resize(self.made._usable, 8000)
    homes = self.made._homes[rows]
    states, places = imitation._draw(
        np.random.default_rng(0), self.made._states[rows], homes)
    # The share of the last kind of state.
    home = np.any((places == homes) & (places == states[:, 25:26]), axis=1)
    self.assertAlmostEqual(
        (home & (states[:, 26] > 0)).mean(), .18, delta=.02)
    self.assertAlmostEqual(  # And of those that are out of place, of any.
        (states[:, 26] > 0).mean(), .18 + .95 * .30, delta=.02)
    with mock.patch.object(imitation, '_draw', wraps=imitation._draw) as draw:
      self.made.batch(np.random.default_rng(0), 2000)
    self.assertBetween((np.diff(draw.call_args.args[2]) > 0).mean(), .4, .6)

  def test_each_worker_imitates_a_batch(self):
    made = self.made.add_and_sample(
        np.random.default_rng(5), mock.Mock(codes=np.zeros([3, 5])), None)
    for part, expected in zip(
        made, self.made.batch(np.random.default_rng(5), 48)):
      np.testing.assert_array_equal(part, expected.reshape(3, 16, -1))

  def test_loaded_demonstrations_are_the_saved_ones(self):
    other = imitation.Demonstrations(self.goals)
    other.load(self.made.state())
    for expected, found in zip(*(
        each.batch(np.random.default_rng(2), 50)
        for each in (self.made, other))):
      np.testing.assert_array_equal(found, expected)


class LossTest(absltest.TestCase):

  def test_the_loss_is_the_cross_entropy(self):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[2, 3, 5]).astype(np.float32)
    labels = np.zeros([2, 3, 5], np.float32)
    labels[0, 0, 1] = labels[1, 2, 4] = 1
    labels[0, 1, [0, 2]] = .5  # And three states without a good action.
    loss = imitation.auxiliary(2.0).loss.function(
        networks.PolicyOutput(tf.constant(logits), None, None),
        tf.constant(labels))
    self.assertEqual(loss.shape, (2, 3))
    exp = np.exp(logits)
    log = np.log(exp / exp.sum(-1, keepdims=True))
    np.testing.assert_allclose(np.mean(loss, 1), [
        -(log[0, 0, 1] + log[0, 1, 0] / 2 + log[0, 1, 2] / 2) / 3,
        -log[1, 2, 4] / 3], rtol=1e-5)
