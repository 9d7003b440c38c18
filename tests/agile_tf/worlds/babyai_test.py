"""Tests for BabyAI's GoToLocal as a world, where minigrid is installed."""

import itertools
import os

from absl.testing import absltest
import numpy as np
import pytest

from gridlu import goal_dataset
from tests.gridlu import programs

pytest.importorskip('minigrid')

# isort: split
from agile_tf.worlds import babyai


def _cell(image, row, column):
  return image[8 * row:8 * row + 8, 8 * column:8 * column + 8]


def _read(image):
  """Returns what each cell of a picture has: a kind and a colour, or None.

  Of the agent it is its direction instead of a colour.
  """
  names = {tile.tobytes(): name for name, tile in babyai._TILES.items()}
  names |= {tile.tobytes(): ('agent', i)
            for i, tile in enumerate(babyai._AGENTS)}
  return {(row, column): names.get(_cell(image, row, column).tobytes())
          for row, column in itertools.product(range(8), repeat=2)}


def _faced(image):
  """Returns what the agent of a picture faces: a kind and a colour."""
  cells = _read(image)
  (row, column), (_, direction) = next(
      (place, name) for place, name in cells.items()
      if name and name[0] == 'agent')
  down, right = ((0, 1), (1, 0), (0, -1), (-1, 0))[direction]
  return cells[row + down, column + right]


def _named(text):
  """Returns the kind and the colour that a mission names."""
  *_, color, kind = text.split()
  return kind, color


class BabyAITest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.world = babyai.make_goto()

  def test_every_object_and_direction_looks_different(self):
    tiles = [tile for name, tile in babyai._TILES.items() if name[0] in (
        'ball', 'box', 'key')] + [*babyai._AGENTS, babyai._EMPTY]
    self.assertLen({tile.tobytes() for tile in tiles}, 3 * 6 + 4 + 1)

  def test_the_picture_shows_all_of_the_room(self):
    environment = babyai.make_environment()
    room = environment.unwrapped
    for seed in range(20):
      observation, _ = environment.reset(seed=seed)
      self.assertTrue(
          environment.observation_space['image'].contains(
              observation['image']))
      for (row, column), name in _read(observation['image']).items():
        there = room.grid.get(column, row)
        if (column, row) == tuple(room.agent_pos):
          self.assertEqual(name, ('agent', room.agent_dir))
        else:
          self.assertEqual(
              name, None if there is None else (there.type, there.color))

  def test_babyais_verdict_is_what_the_picture_shows_at_each_step(self):
    environment = self.world.make_environment(0)
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(60):
      timestep, steps = environment.reset(), 0
      named = _named(timestep.observation['instruction'])
      while not timestep.last():
        timestep = environment.step(rng.integers(3))
        steps += 1
        self.assertEqual(
            timestep.reward, _faced(timestep.observation['image']) == named)
        verdicts.append(timestep.reward)
      self.assertEqual(steps, 64)
    # The verdict comes and goes, because ends are ignored.
    self.assertGreater(np.abs(np.diff(verdicts)).sum(), 40)

  def test_goal_examples_are_goals_of_all_kinds(self):
    dataset = babyai.goal_examples(120)
    for index, image in zip(dataset.instruction, dataset.images):
      self.assertEqual(_faced(image), _named(dataset.instructions[index]))
    self.assertGreater(len(set(dataset.instruction)), 20)
    self.world.grammar.encode(dataset.instructions)

  def test_a_command_writes_the_goal_examples(self):
    path = os.path.join(self.create_tempdir().full_path, 'new', 'goals.npz')
    printed = programs.call(
        babyai, f'--output={path}', '--size=5', '--seed=3').stdout
    self.assertIn(path, printed)
    written, made = goal_dataset.load(path), babyai.goal_examples(5, seed=3)
    np.testing.assert_array_equal(written.images, made.images)
    self.assertEqual(written.instructions, made.instructions)

  def test_a_mission_is_a_color_of_a_kind(self):
    self.assertEqual(babyai.parse('go to the red ball'), ('red', ('ball',)))
    self.assertEqual(babyai.parse('go to a grey key'), ('grey', ('key',)))


if __name__ == '__main__':
  absltest.main()
