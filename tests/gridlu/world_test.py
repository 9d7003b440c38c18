"""Tests for gridlu.world."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import world
from tests.gridlu import boards

_ACTIONS = world.Action


class BlockTest(parameterized.TestCase):

  @parameterized.parameters(
      ('circle', 'red', 1), ('circle', 'blue', 3), ('rect', 'red', 4),
      ('triangle', 'red', 7), ('triangle', 'blue', 9))
  def test_each_block_has_its_code(self, shape, color, code):
    self.assertEqual(world.block(shape, color), code)

  @parameterized.parameters(('square', 'red', 'shape'),
                            ('rect', 'yellow', 'color'))
  def test_unknown_words_are_named(self, shape, color, name):
    with self.assertRaisesRegex(ValueError, f'{name} is .*expected one of'):
      world.block(shape, color)


class ActionTest(absltest.TestCase):

  def test_actions_keep_their_numbers(self):
    """Trained policies and users' code have them."""
    self.assertEqual(
        {action.name: int(action) for action in world.Action},
        {'UP': 0, 'DOWN': 1, 'LEFT': 2, 'RIGHT': 3, 'INTERACT': 4, 'NOOP': 5})


class PhysicsTest(parameterized.TestCase):

  def test_physics_are_compared_by_value(self):
    self.assertEqual(world.Physics((9, 4, 4)), world.Physics((4, 9)))
    self.assertEqual(world.Physics(iter((9, 4))), world.Physics((4, 9)))
    self.assertLen({world.Physics((9, 4)), world.Physics((4, 9))}, 1)

  @parameterized.parameters(0, 10, -1, True, 1.5, 'rect')
  def test_bad_codes_are_named(self, code):
    with self.assertRaisesRegex(ValueError, 'expected block codes from 1 to 9'):
      world.Physics((code,))


class StepTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('north_wall', '. .@', _ACTIONS.UP, '. .@'),
      ('south_wall', '////.@', _ACTIONS.DOWN, '////.@'),
      ('west_wall', '/.@', _ACTIONS.LEFT, '/.@'),
      ('east_wall', '. . . . .@', _ACTIONS.RIGHT, '. . . . .@'),
      ('wall_while_carrying', 'rc!', _ACTIONS.UP, 'rc!'),
      ('carries_into_free_cell', 'rc! .', _ACTIONS.RIGHT, '. rc!'),
      ('carrying_is_stopped_by_block', 'rc! gt', _ACTIONS.RIGHT, 'rc! gt'),
      ('free_enters_block', 'rc@ gt', _ACTIONS.RIGHT, 'rc gt@'),
      ('picks_up', 'rc@', _ACTIONS.INTERACT, 'rc!'),
      ('puts_down', 'rc!', _ACTIONS.INTERACT, 'rc@'),
      ('nothing_to_pick_up', '.@ rc', _ACTIONS.INTERACT, '.@ rc'),
      ('noop_on_block', 'rc@', _ACTIONS.NOOP, 'rc@'),
      ('noop_carrying', 'rc!', _ACTIONS.NOOP, 'rc!'),
  )
  def test_a_step_follows_the_rules(self, before, action, after):
    boards.assert_equal(world.step(boards.draw(before), action),
                        boards.draw(after))

  @parameterized.parameters(
      ('rr@', 'rr@'), ('rc@', 'rc!'), ('br@', 'br!'), ('rr!', 'rr@'))
  def test_red_rects_can_be_made_immovable(self, before, after):
    state = world.step(boards.draw(before), _ACTIONS.INTERACT,
                       world.IMMOVABLE_RED_RECTS)
    boards.assert_equal(state, boards.draw(after))

  @parameterized.parameters((world.NORMAL,), (world.Physics((4, 9)),))
  def test_a_step_equals_the_scalar_oracle(self, physics):
    rng = np.random.default_rng(0)
    count = 3000
    state = boards.random_states(rng, count)
    for _ in range(3):
      action = rng.integers(0, 6, count)
      actual = world.step(state, action, physics)
      expected = [
          boards.scalar_step(world.State(*(x[i] for x in state)), action[i],
                             physics.immovable) for i in range(count)]
      boards.assert_equal(actual, world.State(
          *(np.stack(field) for field in zip(*expected, strict=True))))
      state = actual

  def test_one_agent_can_act_on_several_boards(self):
    state = boards.random_states(np.random.default_rng(0), 9)
    one = state._replace(agent=np.array([1, 2]), carrying=np.array(False))
    each = state._replace(
        agent=np.tile([1, 2], [9, 1]), carrying=np.zeros(9, np.bool_))
    for action in _ACTIONS:
      expected = world.step(each, action)
      for actual, wanted in zip(world.step(one, action), expected):
        np.testing.assert_array_equal(
            np.broadcast_to(actual, wanted.shape), wanted)

  def test_a_step_leaves_its_argument_alone(self):
    state = boards.draw('rc! .')
    world.step(state, _ACTIONS.RIGHT)
    boards.assert_equal(state, boards.draw('rc! .'))


class PackTest(absltest.TestCase):

  def test_packed_states_have_the_documented_layout(self):
    packed = world.pack(boards.draw('. rc/. . . bt!'))
    expected = np.zeros(27, np.uint8)
    expected[[1, 8, 25, 26]] = 1, 9, 8, 1
    self.assertEqual(packed.dtype, np.uint8)
    np.testing.assert_array_equal(packed, expected)

  def test_unpacking_inverts_packing(self):
    state = boards.random_states(np.random.default_rng(0), 200)
    boards.assert_equal(world.unpack(world.pack(state)), state)
    single = world.State(*(x[7] for x in state))
    boards.assert_equal(world.unpack(world.pack(single)), single)
