"""Tests for gridlu.language."""

import re

from absl.testing import absltest
from absl.testing import parameterized
import hypothesis
from hypothesis import strategies as st

from gridlu import language

AGENT = language.AGENT
Arrangement = language.Arrangement
Blocks = language.Blocks
Relation = language.Relation

_INSTRUCTIONS = (
    language.relations_instructions() + language.arrangements_instructions())
_settings = hypothesis.settings(
    max_examples=200, deadline=None, derandomize=True)


class SurfaceTest(parameterized.TestCase):

  @parameterized.parameters(
      (Relation('NorthFrom', Blocks('red', 'circle'), Blocks('blue', 'rect')),
       "NorthFrom(Color('red', Shape('circle', SCENE)), "
       "Color('blue', Shape('rect', SCENE)))",
       ('NorthFrom', ('red', ('circle',)), ('blue', ('rect',)))),
      (Arrangement('Connected', AGENT, language.SCENE),
       'Connected(AGENT, SCENE)', ('Connected', ('AGENT',), ())),
      (Arrangement('Snake', AGENT, Blocks('red')),
       "Snake(AGENT, Color('red', SCENE))", ('Snake', ('AGENT',), ('red',))),
  )
  def test_instructions_have_their_text_and_tree(self, instruction, text, tree):
    self.assertEqual(str(instruction), text)
    self.assertEqual(instruction.tree, tree)
    self.assertEqual(language.parse(text), instruction)

  def test_parse_inverts_str(self):
    for instruction in _INSTRUCTIONS:
      parsed = language.parse(str(instruction))
      self.assertEqual(parsed, instruction)

  @parameterized.parameters(
      'NorthFrom(Color("red", Shape("rect", SCENE)), AGENT)',
      'NorthFrom(Color(red,Shape(rect,SCENE)),AGENT)',
      "NorthFrom(Color('red', Shape('rect', 'SCENE')), 'AGENT')",
      "  NorthFrom ( Color(\u2018red\u2019 , Shape(`rect',SCENE) )\n,AGENT )\t",
      'NorthFrom(Color(\u201cred\u201d, Shape(square, SCENE)), AGENT)')
  def test_quotes_spaces_and_square_may_be_written_freely(self, text):
    self.assertEqual(
        language.parse(text),
        Relation('NorthFrom', Blocks('red', 'rect'), AGENT))


class ErrorTest(parameterized.TestCase):

  # The caret stands below the text's character marked in the second line.
  @parameterized.parameters(
      ("NorthFrm(AGENT, Color('red', SCENE))",
       '^', 'a relation'),
      ("NorthFrom(Color('yellow', SCENE), AGENT)",
       '                ^', r'a colour \(red, green or blue\)'),
      ('NorthFrom(Color(SCENE), AGENT)',
       '          ^', r'two operands in Color'),
      ("NorthFrom(Shape('red', SCENE), AGENT)",
       '                ^', 'a shape'),
      ("NorthFrom(Shape('rect', AGENT), AGENT)",
       '                        ^', 'SCENE'),
      ("  NorthFrom(Color('red', Color('red', SCENE)), AGENT)",
       '                         ^', r'Shape\(...\) or SCENE'),
      ('NorthFrom(SCENE, AGENT)',
       '          ^', 'AGENT or an object'),
      ('NorthFrom(AGENT, "AGENT")',
       '                 ^', 'an object .* beside AGENT'),
      ("NorthFrom(Shape('rect', SCENE), Shape('square', SCENE))",
       '                                ^', 'an object other than'),
      ("SameLocation(Shape('rect', SCENE), Color('red', SCENE))",
       '                                   ^', 'AGENT .SameLocation'),
      ("Snake(Color('red', SCENE), AGENT)",
       '      ^', 'AGENT'),
      ('Snake(AGENT, SCENE, SCENE)', '^', 'two operands in Snake'),
      ('Snake(AGENT, foo)',
       '             ^', r'SCENE or Color'),
      ('Snake(AGENT;\nSCENE)',
       '           ^', 'letters, quotes, brackets and commas'),
      ("Snake(AGENT, Color(u'red', SCENE))",
       '                   ^', 'letters, quotes, brackets and commas'),
      # Python finds these errors, and their places.
      ("NorthFrom(Shape('rect, SCENE), AGENT)",
       '                ^', 'unterminated string'),
      ("NorthFrom(Shape('rect', SCENE) AGENT)",
       '          ^', 'forgot a comma'),
      ('Snake(AGENT, SCENE',
       '     ^', r"'\(' was never closed"),
      ('', '^', 'an instruction such as'),
  )
  def test_errors_show_the_place(self, text, caret, expected):
    with self.assertRaisesRegex(language.InstructionError, expected) as caught:
      language.parse(text)
    lines = str(caught.exception).split('\n')
    self.assertEqual(lines[1], '  ' + text.replace('\n', ' '))
    self.assertEqual(lines[2], '  ' + caret)

  def test_an_error_does_not_control_the_terminal(self):
    with self.assertRaises(language.InstructionError) as caught:
      language.parse('Snake(AGENT, \x1b[31m\u202eSCENE)')
    lines = str(caught.exception).split('\n')
    self.assertEqual(lines[1:], ['  Snake(AGENT, \ufffd[31m\ufffdSCENE)',
                                 '               ^'])

  def test_only_strings_are_parsed(self):
    with self.assertRaisesRegex(language.InstructionError, 'not NoneType'):
      language.parse(None)

  @parameterized.parameters('(', 'Color(', 'Color(SCENE,')
  def test_an_enormous_text_is_refused(self, text):
    with self.assertRaisesRegex(language.InstructionError, 'at most 1000'):
      language.parse(text * 100_000)
    with self.assertRaises(language.InstructionError):  # Too many brackets.
      language.parse(text * (1000 // len(text)))


class EnumerationTest(absltest.TestCase):

  def test_relations_has_the_papers_instructions(self):
    instructions = language.relations_instructions()
    self.assertLen(set(instructions), 990)
    self.assertLen([i for i in instructions if i.is_go_to], 150)
    self.assertTrue(all(i.is_go_to for i in instructions[:150]))
    self.assertEqual(str(instructions[0]),
                     "NorthFrom(AGENT, Shape('circle', SCENE))")
    self.assertEqual(
        str(instructions[-1]),
        "WestFrom(Color('blue', Shape('triangle', SCENE)), "
        "Color('blue', Shape('rect', SCENE)))")

  def test_arrangements_has_the_papers_instructions(self):
    instructions = language.arrangements_instructions()
    self.assertLen(set(instructions), 36)
    self.assertFalse(any(i.is_go_to for i in instructions))
    self.assertEqual([str(i) for i in instructions[:2]],
                     ['Square(AGENT, SCENE)',
                      "Square(AGENT, Color('red', SCENE))"])

  def test_tokens_keep_their_order(self):
    """They are the numbers of tokens in trained networks."""
    self.assertEqual(' '.join(language.RELATIONS_TOKENS), (
        'red green blue circle rect triangle NorthFrom SouthFrom EastFrom '
        'WestFrom SameLocation AGENT'))
    self.assertEqual(' '.join(language.ARRANGEMENTS_TOKENS), (
        'Square Line Dline Triangle Circle Eel Snake Connected Disconnected '
        'red green blue AGENT'))


def _parse(text):
  """Parses; returns None for a text that is no instruction."""
  try:
    return language.parse(text)
  except language.InstructionError:
    return None


class PropertiesTest(absltest.TestCase):

  @_settings
  @hypothesis.given(st.text())
  def test_any_text_is_parsed_or_refused(self, text):
    instruction = _parse(text)
    if instruction is not None:
      self.assertIn(instruction, _INSTRUCTIONS)

  @_settings
  @hypothesis.given(
      st.sampled_from(_INSTRUCTIONS).map(str), st.integers(0, 90),
      st.integers(0, 3), st.text(max_size=3))
  def test_instructions_with_a_slip_are_parsed_or_refused(
      self, text, place, cut, inserted):
    changed = text[:place] + inserted + text[place + cut:]
    instruction = _parse(changed)
    if instruction is not None:  # Nothing that was written is left out.
      self.assertEqual(
          *(re.sub(r'\W', '', each).replace('square', 'rect')
            for each in (changed, str(instruction))))
