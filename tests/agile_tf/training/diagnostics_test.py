"""Tests for agile_tf.training.diagnostics."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf import worlds
from agile_tf.training import diagnostics
from gridlu import rendering
from gridlu import tasks
from gridlu import world as world_lib


class FiltersAliveTest(absltest.TestCase):

  def test_counts_filters_that_some_patch_excites(self):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=[8, 8, 3, 4]).astype(np.float32)
    bias = np.zeros(4, np.float32)
    kernel[..., 0] = -np.abs(kernel[..., 0])  # Zero on every image.
    kernel[..., 1], bias[1] = 0, 1  # A constant.
    bias[2] = -1e6  # Too low for any patch.
    kernel[..., 3] = 0
    kernel[0, 0, 0, 3] = 1  # Only the first red pixel counts.
    images = np.zeros([2, 17, 24, 3], np.uint8)
    images[1, 8, 16, 0] = 9  # The first pixel of a patch.
    images[0, 16] = 255  # This row is in no whole patch.
    parameters = {
        'd/stem/patches/w': kernel, 'd/stem/patches/b': bias, 'd/w': kernel}
    self.assertEqual(diagnostics.filters_alive(parameters, images), 2)
    self.assertEqual(diagnostics.filters_alive(parameters, images[:1]), 1)

  def test_a_first_layer_that_depends_on_the_instruction_is_not_counted(self):
    self.assertIsNone(diagnostics.filters_alive(
        {'policy/features/layer_1/w': np.zeros([8, 8, 3, 16])},
        np.zeros([1, 56, 56, 3], np.uint8)))

  def test_gridlu_is_looked_at_tile_by_tile(self):
    images = diagnostics.example_images(worlds.GridLUWorld(), None)
    self.assertEqual(images.shape, (31, 8, 8, 3))
    np.testing.assert_array_equal(images, rendering.TILES)


class ExchangeTestTest(absltest.TestCase):

  def _accepted(self, judge, **how):
    world = worlds.GridLUWorld(**how)
    programs = mock.Mock(reward_threshold=0.5)
    programs.probabilities = lambda phi, states, codes: judge(
        world, world_lib.unpack(states), codes)
    return diagnostics.ExchangeTest(world, 200).accepted(programs, None)

  def test_a_judge_that_sees_everything_accepts_nothing(self):
    task = tasks.find('relations')

    def truth(world, states, codes):
      texts = {tuple(world.grammar.encode([str(each)])[0]): each
               for each in task.instructions()}
      return task.satisfied(
          task.encode([texts[tuple(code)] for code in codes]), states) * 1.0

    rows = self._accepted(truth)
    self.assertLen(rows, 8)
    self.assertEqual({row['accepted'] for row in rows.values()}, {0.0})
    self.assertTrue(all(row['states'] > 50 for row in rows.values()))

  def test_a_judge_that_accepts_all_is_found_out(self):
    rows = self._accepted(
        lambda world, states, codes: np.ones(len(codes)), task='arrangements')
    self.assertEqual(
        {name: row['accepted'] for name, row in rows.items()},
        {'red, green': 1.0, 'red, blue': 1.0, 'green, blue': 1.0})


if __name__ == '__main__':
  absltest.main()


class CrowdTestTest(parameterized.TestCase):

  @parameterized.parameters(('relations', (1, 2)), ('arrangements', (4,)))
  def test_goal_states_have_so_many_other_blocks(self, name, needed):
    task = tasks.find(name)
    world = worlds.GridLUWorld(name)
    texts = {tuple(world.grammar.encode([str(each)])[0]): each
             for each in task.instructions()}
    seen = []

    def judge(phi, states, codes):
      seen.append((world_lib.unpack(states), codes))
      return np.arange(len(codes)) % 4 / 4  # 0, .25, .5 and .75.

    rows = diagnostics.CrowdTest(world, 100, most=5).accepted(
        mock.Mock(probabilities=judge, reward_threshold=0.5), None)
    plain = ['0, no colour'] if name == 'arrangements' else []
    self.assertEqual([*rows], ['0', '1', '2', '3', '4', '5', *plain])
    for row in rows.values():
      self.assertEqual(row, {'states': 100, 'accepted': .25})
    for label, (states, codes) in zip(rows, seen, strict=True):
      drawn = [texts[tuple(code)] for code in codes]
      self.assertTrue(np.all(task.satisfied(task.encode(drawn), states)))
      others = int(label.partition(',')[0])
      count = np.count_nonzero(states.blocks, axis=(1, 2))
      self.assertEqual({*count}, {each + others for each in needed})
      if plain:  # 'SCENE' alone, or a colour.
        self.assertEqual({'Color' in str(each) for each in drawn},
                         {label not in plain})
