"""Runs the programs and commands of docs/own_world.md."""

import contextlib
import importlib
import io
import pathlib
import re
import runpy
import sys
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from agile_tf import export_networks
from agile_tf import picture_goals
from agile_tf.evaluation import loading
from agile_tf.training import train
from gridlu import goal_dataset
from tests.agile_tf import tiny
from tests.gridlu import programs

_GUIDE = pathlib.Path(__file__).parents[2] / 'docs/own_world.md'
_FILES = 'game.py', 'collect.py', 'my_world.py', 'use.py'


class OwnWorldGuideTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._text = _GUIDE.read_text('utf-8')
    folder = pathlib.Path(self.create_tempdir().full_path)
    blocks = re.findall(r'own_world_guide_test.py runs this. -->\n'
                        r'```python\n(.*?)```', self._text, re.DOTALL)
    for name, block in zip(_FILES, blocks, strict=True):
      (folder / name).write_text(block, 'utf-8')
    self.assertEqual(self._text.count('```python'), len(_FILES))
    self.enter_context(contextlib.chdir(folder))
    self.enter_context(mock.patch.object(sys, 'path', [str(folder), *sys.path]))
    self.enter_context(mock.patch.dict(sys.modules))
    importlib.invalidate_caches()

  def _call(self, module, **flags):
    """Calls a command of the guide, whose text it must have."""
    command = ' '.join(
        [f'python -m {module.__name__}', *(
            f'--{name}={value}' for name, value in flags.items())])
    self.assertIn(f'\n{command}\n', self._text)
    result = programs.call(module, *command.split()[3:])
    self.assertEqual((result.returncode, result.stderr), (0, ''))
    return result.stdout

  def test_goal_examples_are_collected_and_all_are_goals(self):
    runpy.run_path('collect.py')
    self.assertIn('600 goal examples of 2 instructions', self._call(
        picture_goals, pictures='pictures', texts='texts.csv',
        output='goals.npz'))
    goals = goal_dataset.load('goals.npz', (24, 48, 3))
    for index, image in zip(goals.instruction, goals.images):
      place, = np.flatnonzero((image[8] == 255).all(axis=-1)[::8])
      self.assertEqual(
          place, {'left': 0, 'right': 5}[
              goals.instructions[index].split()[3]])

  @pytest.mark.slow
  def test_the_world_is_trained_and_the_reward_model_used(self):
    runpy.run_path('collect.py')
    self._call(picture_goals, pictures='pictures', texts='texts.csv',
               output='goals.npz')
    train.train(tiny.plan(
        world='my_world:make_world', instructions='', episode_length=30,
        dataset_size=131072, run_dir='runs/my_world'))
    self._call(export_networks, run_dir='runs/my_world',
               world='my_world:make_world', output='my_agent')
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      names = runpy.run_path('use.py')
    self.assertLen(printed.getvalue().strip('[]\n').split(), 2)
    np.testing.assert_allclose(
        loading.load_reward_model(
            'my_agent/reward_model', backend='numpy')(
                names['images'], names['game'].INSTRUCTIONS),
        names['reward_model'](names['images'], names['game'].INSTRUCTIONS),
        atol=1e-4)

  def test_the_goals_of_the_world_are_its_wins(self):
    world = importlib.import_module('my_world').make_world()
    environment = world.make_environment(0)
    timestep, steps = environment.reset(), 0
    text = timestep.observation['instruction']
    self.assertIn(text, world.grammar.instructions)
    while not timestep.last():
      timestep = environment.step(int('right' in text))
      steps += 1
    self.assertEqual((steps, timestep.reward), (8, 1.0))
