"""Tests for gridlu.vectorized."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

import gridlu
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import vectorized
from gridlu import world
from tests.gridlu import boards

# Interacts more often than at random, so that much is carried.
_ACTIONS = [0, 1, 2, 3, 4, 4, 5]


def _board(states: world.State, i: int) -> world.State:
  return world.State(*(x[i] for x in states))


class VectorGridLUTest(parameterized.TestCase):

  @parameterized.product(
      task=('relations', 'arrangements'),
      physics=(world.NORMAL, world.IMMOVABLE_RED_RECTS))
  def test_plays_by_the_rules_board_by_board(self, task, physics):
    num_boards = 12
    environment = vectorized.VectorGridLU(
        num_boards, task, seed=0, physics=physics, rewarded=True)
    rng = np.random.default_rng(0)
    step = environment.reset()
    carried, rewarded = 0, 0
    for t in range(1, 8 * environment.episode_length + 1):
      before, actions = step, rng.choice(_ACTIONS, num_boards)
      step = environment.step(actions)
      for i in range(num_boards):
        reached = world.step(_board(before.states, i), actions[i], physics)
        boards.assert_equal(_board(step.reached, i), reached)
        self.assertEqual(
            step.rewards[i],
            gridlu.satisfied(
                environment.texts[before.instruction[i]], reached))
        np.testing.assert_array_equal(
            step.images[i], rendering.render(_board(step.states, i)))
      last = t % environment.episode_length == 0
      np.testing.assert_array_equal(step.ended, [last] * num_boards)
      if last:
        self.assertFalse(np.any(step.states.carrying))
        self.assertFalse(np.array_equal(step.states.blocks,
                                        step.reached.blocks))
      else:
        boards.assert_equal(step.states, step.reached)
        np.testing.assert_array_equal(step.instruction, before.instruction)
      carried += np.sum(step.reached.carrying)
      rewarded += np.sum(step.rewards)
    self.assertGreater(carried, 0)
    if task == 'relations':
      self.assertGreater(rewarded, 0)

  @parameterized.parameters(
      ('relations', True), ('relations', False), ('arrangements', True))
  def test_one_board_plays_as_gridlu_with_the_same_seed(
      self, task, solved_starts):
    arguments = dict(seed=3, episode_length=4, solved_starts=solved_starts)
    many = vectorized.VectorGridLU(1, task, **arguments)
    one = gridlu.GridLU(task, **arguments)
    step, expected = many.reset(), one.reset()
    rng = np.random.default_rng(0)
    # On into the second block of instances.
    for _ in range(260 * one.episode_length):
      self.assertEqual(many.texts[step.instruction[0]],
                       expected.observation['instruction'])
      np.testing.assert_array_equal(step.images[0],
                                    expected.observation['image'])
      action = int(rng.integers(6))
      step, expected = many.step(np.array([action])), one.step(action)
      self.assertEqual(step.rewards[0], expected.reward)
      self.assertEqual(step.ended[0], expected.last())
      if expected.last():
        boards.assert_equal(_board(step.reached, 0), one.state)
        expected = one.reset()

  @parameterized.parameters(1, 3, 300)
  def test_starts_are_the_instances_in_order(self, num_boards):
    some = language.relations_instructions()[:50]
    environment = vectorized.VectorGridLU(
        num_boards, seed=4, instructions=some, images=False,
        solved_starts=True)
    rounds = max(1, 256 // num_boards)
    rng = np.random.default_rng(4)
    for _ in range(2):
      drawn = relations.instances(rng, rounds * num_boards, some)
      for i in range(rounds):
        chosen = slice(i * num_boards, (i + 1) * num_boards)
        step = environment.reset()
        np.testing.assert_array_equal(step.instruction,
                                      drawn.instruction[chosen])
        boards.assert_equal(
            step.states, world.State(*(x[chosen] for x in drawn.state)))

  def test_shapes_and_dtypes(self):
    environment = vectorized.VectorGridLU(5, seed=0, episode_length=2)
    for step in (environment.reset(), environment.step(np.zeros(5, np.int64)),
                 environment.step([5] * 5)):
      self.assertEqual(
          [(x.shape, x.dtype) for x in (
              *step.states, *step.reached, step.images, step.instruction,
              step.rewards, step.ended)],
          2 * [((5, 5, 5), np.int32), ((5, 2), np.int32), ((5,), np.bool_)] + [
              ((5, 56, 56, 3), np.uint8), ((5,), np.int32),
              ((5,), np.float32), ((5,), np.bool_)])
    self.assertTrue(np.all(step.ended))

  def test_reset_starts_anew_before_the_end(self):
    environment = vectorized.VectorGridLU(2, seed=0, episode_length=3,
                                          images=False)
    environment.reset()
    environment.step([0, 0])
    step = environment.reset()
    self.assertFalse(np.any(step.ended))
    np.testing.assert_array_equal(step.rewards, 0)
    ended = [bool(environment.step([5, 5]).ended[0]) for _ in range(6)]
    self.assertEqual(ended, [False, False, True] * 2)

  def test_boards_cannot_be_written(self):
    step = vectorized.VectorGridLU(2, seed=0).reset()
    with self.assertRaisesRegex(ValueError, 'read-only'):
      step.states.blocks[0] = 0
    step.images[0] = 0  # These are the caller's.

  @parameterized.parameters(0, 1.5)
  def test_bad_numbers_of_boards_are_named(self, count):
    with self.assertRaisesRegex(ValueError, f'num_boards is {count}'):
      vectorized.VectorGridLU(count)

  @parameterized.named_parameters(
      ('low', [0, -1], 'from -1 to 0'),
      ('high', [0, 6], 'from 0 to 6'),
      ('too_many_dimensions', [[0, 0]], r'actions are int64 \[1, 2\]'),
      ('fraction', [0., 1.], 'actions are float64'),
      ('truth', [True, False], 'actions are bool'),
  )
  def test_bad_actions_are_named(self, actions, message):
    environment = vectorized.VectorGridLU(2, seed=0, images=False)
    environment.reset()
    with self.assertRaisesRegex(ValueError, message):
      environment.step(actions)


if __name__ == '__main__':
  absltest.main()
