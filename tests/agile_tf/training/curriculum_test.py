"""Tests for curriculum: what is played first, what then, and a resume."""

import itertools
import json

from absl.testing import absltest
import numpy as np

from agile_tf import config as config_lib
from agile_tf.training import building
from agile_tf.training import curriculum
import gridlu
from gridlu import language
from gridlu import world as board
from tests.agile_tf import tiny

_GO_TO = [x for x in language.relations_instructions() if x.is_go_to]
_BRING_TO = [x for x in language.relations_instructions() if not x.is_go_to]


def _make(seed, episodes):
  return curriculum.Curriculum(*(
      gridlu.GridLU('relations', seed, episode_length=2, instructions=those)
      for those in (_GO_TO, _BRING_TO)), episodes, seed)


def _shown(timestep):
  return (timestep.observation['instruction'], timestep.reward,
          timestep.observation['image'].tobytes())


class CurriculumTest(absltest.TestCase):

  def test_the_share_of_the_first_falls_to_nothing(self):
    def go_to(environment):
      text = environment.reset().observation['instruction']
      return language.parse(text).is_go_to

    first = np.array([
        [go_to(environment) for _ in range(25)]
        for environment in (_make(seed, 20) for seed in range(200))])
    np.testing.assert_allclose(
        first.mean(axis=0), np.maximum(1 - np.arange(25) / 20, 0), atol=0.12)
    self.assertTrue(first[:, 0].all())
    self.assertFalse(first[:, 20:].any())

  def test_repeated_episodes_count(self):
    environment = _make(0, 3)
    first = environment.reset()
    for _ in range(2):
      self.assertEqual(_shown(environment.repeat()), _shown(first))
    for _ in range(5):
      text = environment.reset().observation['instruction']
      self.assertFalse(language.parse(text).is_go_to)
      self.assertEqual(
          environment.repeat().observation['instruction'], text)

  def test_resumes_anywhere(self):
    for episodes, steps, repeated in itertools.product(
        range(1, 5), range(3), (False, True)):
      environment, other = _make(0, 2), _make(7, 2)
      for _ in range(episodes):
        environment.reset()
      if repeated:
        environment.repeat()
      for action in range(steps):
        environment.step(action)
      timestep = other.set_state(
          json.loads(json.dumps(environment.get_state())))
      self.assertEqual(timestep.last(), steps == 2)
      if steps < 2:
        self.assertEqual(_shown(other.step(4)), _shown(environment.step(4)))
      for _ in range(4):
        self.assertEqual(_shown(other.reset()), _shown(environment.reset()))

  def test_workers_of_the_policy_follow_it(self):
    config = tiny.config(
        instructions='', first_instructions='SameLocation.*AGENT',
        first_steps=16)
    # 2 workers x 4 steps: two episodes each.
    worker, = building.make_parts(config).policy_workers
    for environment in worker.actor._environments:
      texts = [environment.reset().observation['instruction']
               for _ in range(40)]
      first = ['SameLocation' in text and 'AGENT' in text for text in texts]
      self.assertTrue(first[0])
      self.assertLess(sum(first[2:]), 6)

  def test_the_discriminators_worker_does_not_follow_it(self):
    parts = building.make_parts(tiny.config(
        instructions='', first_instructions='SameLocation.*AGENT',
        first_steps=10**6))
    for worker, share in ((parts.policy_workers[0], 1.0),
                          (parts.discriminator_worker, 0.1)):
      texts = [
          environment.reset().observation['instruction']
          for environment in worker.actor._environments for _ in range(200)]
      first = np.mean([
          'SameLocation' in text and 'AGENT' in text for text in texts])
      self.assertBetween(first, share - 0.1, share)

  def test_first_episodes_near_goal_examples(self):
    config = tiny.config(
        instructions='', first_instructions='SameLocation', first_steps=10**6,
        first_distance=1, dataset_size=500)
    parts = building.make_parts(config)
    worker, = parts.policy_workers
    examples = building.make_goal_examples(config, parts.world).dataset
    texts = np.take(examples.instructions, examples.instruction)
    farthest = 0
    for environment in worker.actor._environments:
      for _ in range(40):
        text = environment.reset().observation['instruction']
        self.assertIn('SameLocation', text)
        start = environment.state
        goals = board.unpack(examples.states[texts == text])
        if 'AGENT' in text:  # Only the agent has moved, by one step at most.
          same = (goals.blocks == start.blocks).all(axis=(1, 2))
          moves = np.abs(goals.agent - start.agent).sum(axis=1)
          self.assertTrue(same.any())
          farthest = max(farthest, np.min(moves[same]))
    self.assertEqual(farthest, 1)

  def test_near_goals_of_no_instruction(self):
    config = tiny.config(
        instructions='', dataset_size=1, first_steps=16, first_distance=1,
        first_instructions="WestFrom.AGENT, Color.'red', SCENE")
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'first_distance=1: none of the 1 goal'):
      building.make_parts(config)


if __name__ == '__main__':
  absltest.main()
