"""Tests for splits: the paper's counts, and no twin on both sides."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import language
from gridlu import relations
from gridlu import splits
from tests.gridlu import boards

_ALL = language.relations_instructions()


class TwinTest(absltest.TestCase):

  def test_twins_of_relations_mean_the_same(self):
    twins = {str(i): str(i.twin) for i in _ALL}
    self.assertEqual(
        twins["EastFrom(AGENT, Color('red', SCENE))"],
        "WestFrom(Color('red', SCENE), AGENT)")
    self.assertEqual(
        twins["SameLocation(Shape('rect', SCENE), AGENT)"],
        "SameLocation(AGENT, Shape('rect', SCENE))")
    self.assertLen({frozenset(pair) for pair in twins.items()}, 495)

  def test_twins_are_satisfied_by_the_same_states(self):
    states = boards.random_states(np.random.default_rng(0), 40)
    codes, twins = (
        relations.encode(instructions)[:, None]
        for instructions in (_ALL, [i.twin for i in _ALL]))
    verdicts = relations.satisfied(codes, states)
    self.assertTrue(verdicts.any())
    np.testing.assert_array_equal(relations.satisfied(twins, states), verdicts)


class SplitTest(parameterized.TestCase):

  @parameterized.parameters(
      ('strings', 99, (
          "NorthFrom(AGENT, Shape('triangle', SCENE))",
          "NorthFrom(AGENT, Color('red', Shape('triangle', SCENE)))",
          "NorthFrom(AGENT, Color('blue', Shape('circle', SCENE)))")),
      ('meanings', 100, (
          "NorthFrom(AGENT, Shape('triangle', SCENE))",
          "NorthFrom(AGENT, Color('blue', SCENE))",
          "NorthFrom(Shape('circle', SCENE), AGENT)")))
  def test_a_seed_holds_out_what_it_always_did(self, way, count, expected):
    """Runs made earlier are evaluated on what they were not trained on."""
    seen, held_out = splits.split(_ALL, way, 0.1, seed=0)
    self.assertLen(held_out, count)
    self.assertEqual(tuple(map(str, held_out[:3])), expected)
    self.assertEqual(seen, tuple(i for i in _ALL if i not in held_out))
    # Strings leak, and meanings do not.
    self.assertEqual(any(i.twin in seen for i in held_out), way == 'strings')

  @parameterized.parameters(
      ('words', 0.1, "way is 'words': expected one of"),
      ('strings', 0, 'share is 0: expected more than 0'),
      ('strings', 1.0, 'share is 1.0: expected more than 0'),
      ('strings', 0.0001, '0.0001 of 990 strings are 0: a side would be empty'))
  def test_bad_input_is_named(self, way, share, problem):
    with self.assertRaisesRegex(ValueError, problem):
      splits.split(_ALL, way, share, seed=0)
