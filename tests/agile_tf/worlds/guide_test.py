"""Runs the world of docs/gymnasium_world.md."""

import contextlib
import importlib
import os
import pathlib
import re
import sys
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from agile_tf import worlds
from agile_tf.training import train
from gridlu import goal_dataset
from tests.agile_tf import tiny

_GUIDE = pathlib.Path(__file__).parents[3] / 'docs' / 'gymnasium_world.md'


class GuideTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    program, = re.findall(
        r'guide_test.py runs this. -->\n```python\n(.*?)```',
        _GUIDE.read_text(encoding='utf-8'), re.DOTALL)
    self._folder = self.create_tempdir()
    self._folder.create_file('my_room.py', program)
    self.enter_context(mock.patch.object(sys, 'path', [*sys.path]))
    self.enter_context(contextlib.chdir(self._folder.full_path))
    sys.path.insert(0, self._folder.full_path)
    self.addCleanup(sys.modules.pop, 'my_room', None)
    self._room = importlib.import_module('my_room')
    self._room.write_goals(60)

  def test_the_world_and_its_goal_examples_fit(self):
    world = worlds.load('my_room:make_world')
    dataset = goal_dataset.load(self._room.GOALS, world.observation_shape)
    world.grammar.encode(dataset.instructions)
    for index, image in zip(dataset.instruction, dataset.images):
      (row, column), = np.argwhere(
          (image[4::8, 4::8] == 255).all(axis=2))  # White: the agent.
      color = dataset.instructions[index].split()[-2]
      self.assertEqual(
          tuple(image[8 * row, 8 * column]), self._room.COLORS[color])
    environment = world.make_environment(0)
    rng = np.random.default_rng(0)
    reached = 0
    for _ in range(50):
      timesteps = [environment.reset()]
      while not timesteps[-1].last():
        timesteps.append(environment.step(rng.integers(4)))
      self.assertLen(timesteps, 16)
      rewards = [timestep.reward for timestep in timesteps[1:]]
      self.assertEqual(rewards, sorted(rewards))  # Goals are never left.
      reached += rewards[-1]
    self.assertBetween(reached, 1, 49)

  @pytest.mark.slow
  def test_the_world_can_be_trained(self):
    run_dir = os.path.join(self._folder.full_path, 'run')
    train.train(tiny.read_plan([
        '--preset=small_world', '--world=my_room:make_world',
        f'--run_dir={run_dir}', '--steps=2000',
        '--discriminator_head_start=10', '--log_steps=1000']))
    row = tiny.rows(run_dir)[-1]
    self.assertNotIn('', (row['success_rate'], row['modelled_reward']))


if __name__ == '__main__':
  absltest.main()
