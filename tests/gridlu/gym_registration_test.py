"""Tests for gridlu.gym_registration."""

from unittest import mock

from absl.testing import absltest
import pytest

from gridlu import tasks
from tests.gridlu import corners

gymnasium = pytest.importorskip('gymnasium')

from gridlu import gym_registration  # noqa: E402


class RegisterTest(absltest.TestCase):

  def test_importing_gridlu_registers_every_task(self):
    for task in tasks.TASKS.values():
      self.assertIn(task.gym_id, gymnasium.registry)

  def test_a_new_task_is_registered_once(self):
    self.enter_context(mock.patch.dict(gymnasium.registry))
    self.enter_context(mock.patch.dict(
        tasks.TASKS, corners=tasks.from_module(corners)))
    gym_registration.register()
    spec = gymnasium.registry['GridLU-Corners-v0']
    gym_registration.register()
    self.assertIs(gymnasium.registry['GridLU-Corners-v0'], spec)
    environment = gymnasium.make('GridLU-Corners-v0')
    observation, _ = environment.reset(seed=0)
    self.assertRegex(observation['instruction'], '^InCorner')
    self.assertIn(observation, environment.observation_space)


if __name__ == '__main__':
  absltest.main()
