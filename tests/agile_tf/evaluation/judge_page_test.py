"""Tests for the page on which people judge final states."""

import base64
import io
import json
import re
from unittest import mock

from absl.testing import absltest
import numpy as np
from PIL import Image

from agile_tf import worlds
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import played
from gridlu import rendering
from gridlu import world
from tests.gridlu import boards

_FOUR = boards.draw('. rr . . . / . rr . . . / . . rr! . . / . . rr . .')
_EIGHT = boards.draw('rr rr . . br@ / . rr rr . br / . . . . . / . . . br br')


def _episode(instruction, state, decisions=None, truth=None):
  return played.Episode(instruction, world.pack(state)[None], decisions, truth)


def _shown(page):
  """Returns the JSON that a page has inlined."""
  return json.loads(re.search(r'const {page, cases} = (.*);\n', page)[1])


def _pixels(address):
  data = base64.b64decode(address.removeprefix('data:image/png;base64,'))
  return np.asarray(Image.open(io.BytesIO(data)))


class PageTest(absltest.TestCase):

  def test_shows_states_and_instructions_and_no_verdict(self):
    yes, no = np.array([False, True]), np.array([True, False])
    world_ = worlds.GridLUWorld('arrangements')
    rows = (('Snake(AGENT, SCENE)', _FOUR),
            ("Eel(AGENT, Color('red', SCENE))", _EIGHT))
    page, cases = judge_page.make([
        _episode(*row, *verdicts)
        for row, verdicts in zip(rows, ((no, yes), (no, no)))], world_)
    shown = _shown(page)
    self.assertEqual(shown['page'], cases['page'])
    for case, (instruction, state) in zip(shown['cases'], rows, strict=True):
      self.assertCountEqual(case, ['instruction', 'image'])
      self.assertEqual(case['instruction'], instruction)
      np.testing.assert_array_equal(
          _pixels(case['image']), rendering.render(state))
    # A carried block is on the board.
    self.assertEqual(cases['cases'], [
        {'groups': ['all', '4 blocks'],
         'verdicts': {'checker': True, 'reward model': False}},
        {'groups': ['all', '8 blocks'],
         'verdicts': {'checker': False, 'reward model': False}}])
    # The same whatever the verdicts, and whether there are any.
    self.assertEqual(
        judge_page.make([_episode(*row) for row in rows], world_)[0], page)
    self.assertNotEqual(
        judge_page.make([_episode(*row) for row in rows[::-1]], world_)[0],
        page)

  def test_explains_the_words_of_arrangements(self):
    page, _ = judge_page.make(
        [_episode('Snake(AGENT, SCENE)', _FOUR)],
        worlds.GridLUWorld('arrangements'))
    sheet = _pixels(re.search('img src="([^"]*)" alt="Ex.*no other', page)[1])
    # Ten red forms of four rects, each of 4x4 pixels and enlarged twice.
    self.assertEqual(
        np.sum(np.all(sheet == (255, 0, 0), axis=-1)), 10 * 4 * 16 * 4)
    page, _ = judge_page.make(
        [_episode("SameLocation(AGENT, Color('red', SCENE))", _FOUR)],
        worlds.GridLUWorld('relations'))
    self.assertNotIn('Examples of each form', page)
    self.assertIn('grey square is the agent', page)

  def test_another_world_has_images_alone(self):
    own = worlds.EnvironmentWorld(
        mock.Mock(), mock.Mock(), (24, 30, 3), num_actions=2, goal_examples='',
        has_ground_truth=False)
    image = np.arange(24 * 30 * 3).reshape(24, 30, 3).astype(np.uint8)
    text = 'go </script> home'
    page, cases = judge_page.make(
        [played.Episode(text, image[None], None, None)], own)
    self.assertEqual(page.count('</script>'), 1)
    self.assertNotIn('agent', page)
    case, = _shown(page)['cases']
    self.assertEqual(case['instruction'], text)
    np.testing.assert_array_equal(_pixels(case['image']), image)
    self.assertEqual(cases['cases'], [{'groups': ['all'], 'verdicts': {}}])
