"""Tests for curriculum: what is played first, what again, and a resume."""

import itertools
import json

from absl.testing import absltest
import numpy as np

from agile_tf.recipe import curriculum
import gridlu
from gridlu import language
from gridlu import program

_GO_TO = [x for x in language.relations_instructions() if x.is_go_to]
_BRING_TO = [x for x in language.relations_instructions() if not x.is_go_to]


def _make(seed, episodes):
  first, last = (
      gridlu.GridLU('relations', seed, episode_length=2, instructions=those)
      for those in (_GO_TO, _BRING_TO))
  if not episodes:
    return curriculum.Curriculum(last)
  return curriculum.Curriculum(last, first, episodes, seed)


def _shown(timestep):
  return (timestep.observation['instruction'], timestep.reward,
          timestep.observation['image'].tobytes())


def _is_go_to(timestep):
  return language.parse(timestep.observation['instruction']).is_go_to


class CurriculumTest(absltest.TestCase):

  def test_the_share_of_the_first_falls_to_nothing(self):
    first = np.array([
        [_is_go_to(environment.reset()) for _ in range(25)]
        for environment in (_make(seed, 20) for seed in range(200))])
    np.testing.assert_allclose(
        first.mean(axis=0), np.maximum(1 - np.arange(25) / 20, 0), atol=0.12)
    self.assertTrue(first[:, 0].all())
    self.assertFalse(first[:, 20:].any())

  def test_repeats_once_if_told_and_counts_it(self):
    for episodes in 0, 3:
      environment = _make(0, episodes)
      first = environment.reset()
      self.assertEqual(_is_go_to(first), bool(episodes))
      self.assertFalse(environment.is_repeated)
      for _ in range(2):
        environment.repeats_next = True
        self.assertEqual(_shown(environment.reset()), _shown(first))
        self.assertTrue(environment.is_repeated)
      for _ in range(5):
        timestep = environment.reset()
        self.assertNotEqual(_shown(timestep), _shown(first))
        self.assertFalse(_is_go_to(timestep))
        self.assertFalse(environment.is_repeated)

  def test_resumes_anywhere(self):
    for episodes, steps, repeated, most in itertools.product(
        range(1, 5), range(3), (False, True), (0, 2)):
      environment, other = _make(0, most), _make(7, most)
      for _ in range(episodes):
        environment.reset()
      environment.repeats_next = repeated
      for action in range(steps):
        environment.step(action)
      timestep = other.set_state(
          json.loads(json.dumps(environment.get_state())))
      self.assertEqual(timestep.last(), steps == 2)
      if steps < 2:
        self.assertEqual(_shown(other.step(4)), _shown(environment.step(4)))
      for _ in range(4):
        self.assertEqual(_shown(other.reset()), _shown(environment.reset()))
        self.assertEqual(other.is_repeated, environment.is_repeated)

  def test_the_state_of_an_earlier_version_is_refused(self):
    with self.assertRaisesRegex(program.UserError, 'commit eb64c8d can'):
      curriculum.Curriculum(None).set_state({'environment': {}})
