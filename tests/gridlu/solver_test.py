"""Tests for solver, against a plain search and the world itself."""

from absl.testing import parameterized
import numpy as np

import gridlu
from gridlu import arrangements
from gridlu import language
from gridlu import relations
from gridlu import solver
from gridlu import world
from tests.gridlu import boards


def _one(states, i):
  return world.State(*(x[i] for x in states))


def _chosen(task, drawn):
  """Returns the instructions of drawn instances."""
  return [task[i] for i in drawn.instruction]


def _plain_steps(instruction, state, physics, most):
  """Breadth-first search state by state; None if `most` steps do not do."""
  frontier, seen = [state], {world.pack(state).tobytes()}
  for steps in range(most + 1):
    if gridlu.satisfied(instruction, world.State(
        *(np.stack(x) for x in zip(*frontier)))).any():
      return steps
    if steps == most:
      break
    following = []
    for before in frontier:
      for action in world.Action:
        after = world.step(before, action, physics)
        key = world.pack(after).tobytes()
        if key not in seen:
          seen.add(key)
          following.append(after)
    frontier = following
    if not frontier:
      break
  return None


class SolverTest(parameterized.TestCase):

  def assert_solves(self, solution, instruction, state, physics=world.NORMAL):
    self.assertLen(solution.actions, solution.steps)
    for action in solution.actions:
      self.assertIsInstance(action, world.Action)
      self.assertFalse(gridlu.satisfied(instruction, state))
      state = world.step(state, action, physics)
    self.assertTrue(gridlu.satisfied(instruction, state))
    # An agent without NOOP can wait until the episode ends.
    for _ in range(3):
      state = world.step(state, world.Action.INTERACT, physics)
      self.assertTrue(gridlu.satisfied(instruction, state))

  @parameterized.parameters(
      # Go there.
      ("NorthFrom(AGENT, Color('red', SCENE))", '. . ./. rc ./@', 3),
      # It holds from the start; a carried block is where the agent is.
      ("SameLocation(AGENT, Shape('circle', SCENE))", 'rc!', 0),
      # Pick up, carry one cell; putting down is not needed.
      ("WestFrom(Shape('circle', SCENE), Shape('rect', SCENE))",
       'rc@ . br', 2),
      # The carried block is in the way: two steps around the other.
      ("WestFrom(Shape('circle', SCENE), Shape('rect', SCENE))",
       '. . ./. br rc!', 4),
      # Either rect will do, and the green one is nearer.
      ("SouthFrom(AGENT, Shape('rect', SCENE))",
       'br . . . ./. . . . ./. . . . gr/. . . . ./. . . . @', 1),
      # The fourth of a square.
      ('Square(AGENT, SCENE)', 'rr rr@ . ./rr . rr .', 4),
      # The others are in the way and do not count.
      ("Line(AGENT, Color('blue', SCENE))",
       'br br . br ./. gr br@ gr ./. gr . gr', 2),
  )
  def test_known_boards_are_solved_in_the_fewest_steps(
      self, text, board, steps):
    state = boards.draw(board)
    solution = solver.solve(text, state)
    self.assertEqual(solution.steps, steps)
    self.assert_solves(solution, text, state)

  @parameterized.parameters(
      # Nothing fits; nothing is there.
      ("NorthFrom(AGENT, Color('blue', SCENE))", '@ rc', 'normal'),
      ("EastFrom(Color('red', SCENE), Shape('rect', SCENE))", 'rr@ bc',
       'normal'),
      ('Square(AGENT, SCENE)', 'rr rr rr@', 'normal'),
      # There is no cell above it, and it stays there.
      ("NorthFrom(AGENT, Shape('rect', SCENE))", '. rr/@',
       'immovable_red_rects'),
      # Both would have to move.
      ("NorthFrom(Color('red', SCENE), Shape('rect', SCENE))",
       'rr . rr/. @ ./rr', 'immovable_red_rects'),
  )
  def test_impossible_boards_have_no_solution(self, text, board, physics):
    state = boards.draw(board)
    solution = solver.solve(text, state, world.PHYSICS[physics])
    self.assertEqual(solution, solver.Solution(solver.UNSOLVABLE, None))

  @parameterized.parameters(
      ('relations', world.Physics((1, 4, 5)), 3),
      ('arrangements', world.NORMAL, 4),
      ('arrangements', world.IMMOVABLE_RED_RECTS, 4))
  def test_plain_search_agrees(self, task, physics, most):
    rng = np.random.default_rng(3)
    if task == 'relations':
      # Of 0 to 22 blocks: with a table, with a smaller one and with none.
      states = boards.random_states(rng, 40)
      instructions = rng.choice(language.relations_instructions(), 40)
    else:
      # Start from goal states and walk away, so that a goal is near.
      drawn = arrangements.goal_states(rng, 24)
      instructions = _chosen(language.arrangements_instructions(), drawn)
      states = drawn.state
      for _ in range(12):
        states = world.step(states, rng.integers(0, 5, 24), physics)
    steps = solver.shortest(instructions, states, physics, max_steps=most)
    known = np.flatnonzero(steps != solver.UNKNOWN)
    self.assertGreater(len(known), len(steps) / 2)
    self.assertTrue(np.any(steps > 0))
    for i in known:
      instruction, state = instructions[i], _one(states, i)
      plain = _plain_steps(instruction, state, physics, most)
      self.assertEqual(steps[i], solver.UNSOLVABLE if plain is None else plain)
      self.assertEqual(
          solver.solve(instruction, state, physics, most).steps, steps[i])

  @parameterized.parameters(
      (relations, 80, world.NORMAL), (relations, 80, world.IMMOVABLE_RED_RECTS),
      (arrangements, 24, world.NORMAL))
  def test_solutions_lead_to_goal_states(self, task, count, physics):
    drawn = task.instances(np.random.default_rng(5), count)
    instructions = _chosen(task.all_instructions(), drawn)
    steps = solver.shortest(instructions, drawn.state, physics)
    if physics == world.NORMAL:  # More blocks than four may be too many.
      few = (drawn.state.blocks > 0).sum((1, 2)) <= 4
      self.assertTrue(np.all(steps[few] >= 0))
    for i, instruction in enumerate(instructions):
      state = _one(drawn.state, i)
      solution = solver.solve(instruction, state, physics)
      self.assertEqual(solution.steps, steps[i])
      if solution.steps >= 0:
        self.assert_solves(solution, instruction, state, physics)

  def test_most_instances_are_solvable_with_immovable_red_rects(self):
    chosen = [i for i in language.relations_instructions()
              if "Color('red', Shape('rect', SCENE))" in str(i)]
    drawn = relations.instances(np.random.default_rng(0), 1000, chosen)
    steps = solver.shortest(_chosen(chosen, drawn), drawn.state,
                            world.IMMOVABLE_RED_RECTS, max_steps=30)
    self.assertAlmostEqual(np.mean(steps != solver.UNSOLVABLE), .81, delta=.04)

  def test_a_search_that_is_given_up_is_unknown(self):
    drawn = arrangements.instances(
        np.random.default_rng(8), 10,
        [language.parse("Dline(AGENT, Color('blue', SCENE))")])
    texts = ["Dline(AGENT, Color('blue', SCENE))"] * 10
    steps = solver.shortest(texts, drawn.state, max_states=5)
    np.testing.assert_array_equal(steps, solver.UNKNOWN)
    self.assertEqual(
        solver.solve(texts[0], _one(drawn.state, 0), max_states=5),
        solver.Solution(solver.UNKNOWN, None))
    # What a table says does not depend on the bound.
    state = boards.draw('rr@ . ./. . ./. . br')
    text = "NorthFrom(Color('red', SCENE), Color('blue', SCENE))"
    self.assertEqual(solver.solve(text, state, max_states=0).steps, 4)

  def test_batches_take_strings_and_instructions(self):
    drawn = relations.instances(np.random.default_rng(10), 3)
    instructions = _chosen(language.relations_instructions(), drawn)
    steps = solver.shortest(instructions, drawn.state)
    self.assertEqual(steps.dtype, np.int32)
    np.testing.assert_array_equal(
        solver.shortest([str(i) for i in instructions], drawn.state), steps)
    np.testing.assert_array_equal(
        solver.shortest([i.twin for i in instructions],
                        drawn.state), steps)
    none = world.State(*(x[:0] for x in drawn.state))
    self.assertEqual(solver.shortest([], none).shape, (0,))

  def test_bad_arguments_are_named(self):
    text = "NorthFrom(AGENT, Color('red', SCENE))"
    state = boards.draw('rr@')
    batch = world.State(*(np.asarray(x)[None] for x in state))
    for message, call in (
        (r'instructions\[0\] is 3: expected', lambda: solver.solve(3, state)),
        (r'states.blocks is \(1, 5, 5\): expected \(2, 5, 5\)',
         lambda: solver.shortest([text] * 2, batch)),
        (r'states.blocks is \(1, 1, 5, 5\): expected \(1, 5, 5\)',
         lambda: solver.solve(text, batch)),
        ("physics is 'moon': expected a world.Physics",
         lambda: solver.solve(text, state, 'moon'))):
      with self.assertRaisesRegex(ValueError, message):
        call()
