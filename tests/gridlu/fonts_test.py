"""Tests for fonts."""

from unittest import mock

from absl.testing import absltest
import numpy as np

from gridlu import fonts
from gridlu import rendering


def _sheet(text, title=''):
  return rendering.contact_sheet(
      np.zeros([1, 56, 56, 3], np.uint8), [text], scale=6, title=title)


class FontsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    for function in fonts._choose, fonts._candidates, fonts._warn:
      function.cache_clear()
      self.addCleanup(function.cache_clear)

  def test_english_needs_no_other_font(self):
    with mock.patch.object(fonts, '_candidates') as candidates:
      self.assertEqual(
          fonts.choose(['go to\nred', '~{}']), ('', ['go to\nred', '~{}']))
    candidates.assert_not_called()

  def test_other_letters_are_drawn_and_are_no_boxes(self):
    """Boxes would be the same for all words of a length."""
    with self.assertNoLogs():
      for one, other in (('угол', 'круг'), ('γωνία', 'κόκκι'), ('é', 'è')):
        path, texts = fonts.choose([one, other])
        self.assertEndsWith(path, '.ttf')
        self.assertEqual(texts, [one, other])
        for sheets in ([_sheet(one), _sheet(other)],
                       [_sheet('', one), _sheet('', other)]):
          self.assertFalse(np.array_equal(*sheets), one)

  def test_two_spellings_of_a_letter_look_the_same(self):
    np.testing.assert_array_equal(_sheet('\u0439'), _sheet('\u0438\u0306'))

  def test_letters_that_no_font_has_are_escaped_with_one_warning(self):
    with (mock.patch.object(
        fonts, '_candidates', return_value=('/no/font.ttf',)),
          self.assertLogs('absl', 'WARNING') as logs):
      self.assertEqual(
          fonts.choose(['a угл', 'b']),
          ('', [r'a \u0443\u0433\u043b', 'b']))
      np.testing.assert_array_equal(
          _sheet('\u0443'), _sheet(r'\u0443'))
    self.assertLen(logs.output, 1)

  def test_the_font_that_lacks_fewest_is_chosen(self):
    lacking = {'': 'абв', 'x': 'аб', 'y': 'б', 'z': 'ав'}
    with (mock.patch.object(fonts, '_candidates', return_value=tuple('xyz')),
          mock.patch.object(fonts, '_missing', lambda path, letters: frozenset(
              lacking[path]))):
      self.assertEqual(fonts.choose(['абв']), ('y', [r'а\u0431в']))

  def test_what_cannot_be_drawn_is_escaped(self):
    self.assertEqual(
        fonts.choose(['a\x1b\u202e']), ('', [r'a\x1b\u202e']))
