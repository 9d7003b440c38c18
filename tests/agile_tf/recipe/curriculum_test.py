"""Tests for curriculum: what is played first, what then, and a resume."""

import itertools
import json

from absl.testing import absltest
import numpy as np

from agile_tf.recipe import curriculum
import gridlu
from gridlu import language

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


if __name__ == '__main__':
  absltest.main()
