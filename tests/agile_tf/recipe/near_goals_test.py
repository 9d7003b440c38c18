"""Tests for gridlu.near_goals."""

from absl.testing import absltest
import numpy as np

from agile_tf.recipe import near_goals
import gridlu
from gridlu import goal_dataset
from gridlu import language
from gridlu import world

_SOUTH = "SouthFrom(AGENT, Color('red', SCENE))"
_WEST = "WestFrom(Color('red', SCENE), Shape('circle', SCENE))"


def _draw(distance, texts=(_SOUTH, _WEST), count=2000):
  dataset = goal_dataset.generate('relations', 300, 0, texts)
  drawn = near_goals.NearGoals(dataset, distance)(
      np.random.default_rng(0), count, [language.parse(text) for text in texts])
  return dataset, drawn


def _rows(states):
  return [bytes(row) for row in world.pack(states)]


class NearGoalsTest(absltest.TestCase):

  def test_at_distance_0(self):
    dataset, (instruction, state) = _draw(0)
    pairs = set(zip(
        np.take(dataset.instructions, dataset.instruction),
        map(bytes, dataset.states)))
    go_to = instruction == 0
    self.assertLess(abs(go_to.mean() - (dataset.instruction == (
        dataset.instructions.index(_SOUTH))).mean()), 0.1)
    # A go-to instruction's starts are goal examples.
    rows = _rows(state)
    for i in np.flatnonzero(go_to):
      self.assertIn((_SOUTH, rows[i]), pairs)
    # The other's have the blocks of goal examples, and the agent on one.
    bring = world.State(*(x[~go_to] for x in state))
    self.assertBetween(bring.carrying.mean(), 0.45, 0.55)
    here = bring.blocks[np.arange(len(bring.blocks)), *bring.agent.T]
    self.assertTrue(np.all(here > 0))
    blocks = {row[:25] for text, row in pairs if text == _WEST}
    self.assertContainsSubset({row[:25] for row in _rows(bring)}, blocks)
    # Each of three blocks.
    order = np.sum((bring.blocks > 0).reshape(-1, 25).cumsum(1)[
        np.arange(len(here)), 5 * bring.agent[:, 0] + bring.agent[:, 1]][
            :, None] == [1, 2, 3], axis=0)
    self.assertTrue(np.all(abs(order / order.sum() - 1 / 3) < 0.05), order)

  def test_within_the_distance(self):
    for distance in 1, 3:
      dataset, (instruction, state) = _draw(distance)
      for number, text in enumerate((_SOUTH, _WEST)):
        goals = world.unpack(dataset.states[
            dataset.instruction == dataset.instructions.index(text)])
        agents = world.cell_index(goals.agent)
        farthest = 0
        for i in np.flatnonzero(instruction == number)[:200]:
          row, column = state.agent[i]
          cells = np.array([[abs(r - row) + abs(c - column)
                             for c in range(5)] for r in range(5)]).reshape(-1)
          differ = np.sum(goals.blocks != state.blocks[i], axis=(1, 2))
          if number == 0:  # The agent alone has moved.
            found = np.min(np.where(differ == 0, cells[agents], 99))
          else:  # At most one block has moved.
            found = 0 if np.any(differ == 0) else (
                1 if np.any(differ == 2) else 99)
          farthest = max(farthest, found)
        self.assertEqual(farthest, 1 if number else distance)

  def test_a_long_walk_leaves_half_of_the_blocks_anywhere_on_the_way(self):
    dataset, (instruction, state) = _draw(300)
    down = (instruction == 1) & ~state.carrying
    blocks = state.blocks[down]
    # The agent is as likely in one cell as in another.
    here = blocks[np.arange(len(blocks)), *state.agent[down].T] > 0
    by_chance = np.mean(blocks > 0)
    self.assertAlmostEqual(here.mean(), .5 + .5 * by_chance, delta=0.06)
    starts = {bytes(row[:25]) for row in dataset.states}
    unmoved = np.mean([row[:25] in starts for row in np.array(
        _rows(state), object)[down]])
    self.assertLess(unmoved, 0.15)

  def test_an_environment_draws_from_it_and_resumes(self):
    dataset = goal_dataset.generate('relations', 100, 0)
    draw = near_goals.NearGoals(dataset, 2)
    environment, other = (gridlu.GridLU(seed=i, draw=draw) for i in range(2))
    for _ in range(3):
      environment.reset()
      self.assertIn(str(environment.instruction), dataset.instructions)
    other.set_state(environment.get_state())
    for _ in range(300):
      environment.reset()
      other.reset()
      self.assertEqual(other.instruction, environment.instruction)
      self.assertEqual(bytes(world.pack(other.state)),
                       bytes(world.pack(environment.state)))

  def test_only_the_given_instructions(self):
    dataset = goal_dataset.generate('relations', 300, 0, (_SOUTH, _WEST))
    draw = near_goals.NearGoals(dataset, 0)
    drawn = draw(np.random.default_rng(0), 20, [language.parse(_WEST)])
    np.testing.assert_array_equal(drawn.instruction, 0)
    # Also if an instruction is there twice, and in an environment.
    environment = gridlu.GridLU(
        seed=0, instructions=[_SOUTH, _SOUTH], draw=draw)
    for _ in range(20):
      environment.reset()
      self.assertEqual(str(environment.instruction), _SOUTH)
      self.assertTrue(environment.success)

  def test_nothing_immovable_is_carried_or_moved(self):
    red = world.block('circle', 'red')
    dataset = goal_dataset.generate('relations', 300, 0, (_WEST,), carrying=1)
    starts = {row[:25] for row in _rows(world.unpack(dataset.states))}
    instructions = [language.parse(_WEST)]
    physics = world.Physics(immovable=(red,))
    _, state = near_goals.NearGoals(dataset, 2)(
        np.random.default_rng(0), 1000, instructions, physics)
    here = state.blocks[np.arange(1000), *state.agent.T]
    self.assertFalse(np.any(here[state.carrying] == red))
    self.assertGreater(state.carrying.sum(), 300)
    goals = {tuple(np.array(list(row)) == red) for row in starts}
    self.assertContainsSubset(
        {tuple(x) for x in (state.blocks == red).reshape(-1, 25)}, goals)
    everything = world.Physics(tuple(range(1, world.NUM_BLOCK_CODES)))
    _, state = near_goals.NearGoals(dataset, 2)(
        np.random.default_rng(0), 100, instructions, everything)
    self.assertFalse(np.any(state.carrying))
    self.assertContainsSubset({row[:25] for row in _rows(state)}, starts)

  def test_errors(self):
    dataset = goal_dataset.generate('relations', 10, 0, (_SOUTH,))
    with self.assertRaisesRegex(ValueError, 'none of the 10 goal examples'):
      gridlu.GridLU(
          instructions=[_WEST], draw=near_goals.NearGoals(dataset, 1))
    images = goal_dataset.GoalDataset(
        (_SOUTH,), np.array([0]), images=np.zeros((1, 56, 56, 3), np.uint8))
    with self.assertRaisesRegex(ValueError, 'are images'):
      near_goals.NearGoals(images, 1)
