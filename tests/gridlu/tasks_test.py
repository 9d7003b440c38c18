"""Tests for gridlu.tasks: what a task says, and what a third one takes."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

import gridlu
from gridlu import goal_dataset
from gridlu import language
from gridlu import solver
from gridlu import tasks
from gridlu import vectorized
from gridlu import world
from tests.gridlu import boards
from tests.gridlu import corners

_RED = "InCorner(AGENT, Color('red', SCENE))"


class TaskTest(parameterized.TestCase):

  def test_tasks_have_what_reports_and_gymnasium_ask_for(self):
    relations, arrangements, crowded = (
        tasks.TASKS[name] for name in ('relations', 'arrangements', 'crowded'))
    self.assertEqual(
        (relations.gym_id, arrangements.gym_id, crowded.gym_id),
        ('GridLU-Relations-v0', 'GridLU-Arrangements-v0', 'GridLU-Crowded-v0'))
    self.assertEqual((relations.episode_length, arrangements.episode_length),
                     (30, 45))
    self.assertSequenceEqual(
        arrangements.groups(
            language.parse('Line(AGENT, SCENE)'), boards.draw('rt gt@')),
        ['2 blocks', 'Line'])


  def test_a_block_counts_once_it_is_put_down(self):
    text = "NorthFrom(Color('red', SCENE), Color('green', SCENE))"
    instruction = language.parse(text)
    task = tasks.TASKS['put_down']
    for carrying in False, True:
      for agent in (0, 0), (1, 0), (4, 4):
        blocks = np.zeros([5, 5], np.int32)
        blocks[:2, 0] = (
            world.block('rect', 'red'), world.block('circle', 'green'))
        state = world.State(blocks, np.array(agent), np.array(carrying))
        nowhere = carrying and agent != (4, 4)
        self.assertEqual(
            task.satisfied(task.encode([instruction])[0], state), not nowhere)
        self.assertTrue(tasks.satisfied(instruction, state))


class ThirdTaskTest(absltest.TestCase):
  """One new file and one entry in `TASKS` are all that a task takes."""

  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.dict(
        tasks.TASKS, corners=tasks.from_module(corners)))

  def test_the_words_of_a_new_task_are_parsed(self):
    self.assertIs(type(language.parse(_RED)), corners.Corner)
    for instruction in corners.all_instructions():
      self.assertEqual(language.parse(str(instruction)), instruction)
    with self.assertRaisesRegex(
        language.InstructionError, r'or a corner \(InCorner\)'):
      language.parse('InMiddle(AGENT, SCENE)')
    with self.assertRaisesRegex(
        language.InstructionError, r'expected Color\(..., SCENE\)'):
      language.parse("InCorner(AGENT, Shape('rect', SCENE))")

  def test_a_word_belongs_to_one_task(self):
    with self.assertRaisesRegex(TypeError, 'both have the word Line'):
      type('Lines', (corners.Corner,), {'words': ('Line',)})
    self.assertEqual(language.parse('Line(AGENT, SCENE)').task, 'arrangements')

  def test_a_new_task_is_played_and_rewarded(self):
    environment = gridlu.GridLU('corners', seed=0, solved_starts=True)
    self.assertEqual(environment.episode_length, 12)
    rewards = set()
    step = environment.reset()
    for i in range(1000):
      step = environment.step(i % 5)
      if not step.first():
        self.assertEqual(step.reward, gridlu.satisfied(
            environment.instruction, environment.state))
        rewards.add(step.reward)
    self.assertEqual(rewards, {0, 1})
    many = vectorized.VectorGridLU(4, task='corners', images=False)
    many.reset(seed=0)
    self.assertEqual(many.step(np.zeros(4, np.int32))[1].shape, (4,))

  def test_a_new_task_has_goal_states(self):
    dataset = goal_dataset.generate('corners', 50, seed=0)
    self.assertLen(dataset, 50)
    self.assertEqual(goal_dataset.violations(dataset), 0)

  def test_a_new_task_is_solved(self):
    drawn = corners.instances(np.random.default_rng(0), 20)
    instructions = [
        corners.all_instructions()[i] for i in drawn.instruction]
    steps = solver.shortest(instructions, drawn.state)
    for i, instruction in enumerate(instructions):
      state = world.State(*(x[i] for x in drawn.state))
      solution = solver.solve(instruction, state)
      self.assertLen(solution.actions, steps[i])
      for action in solution.actions:
        self.assertFalse(gridlu.satisfied(instruction, state))
        state = world.step(state, action)
      self.assertTrue(gridlu.satisfied(instruction, state))
