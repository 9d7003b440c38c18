"""Properties of the parser of instructions: a result, or its own error.

hypothesis draws the input, and finds the smallest that breaks a property.
"""

from absl.testing import absltest
import hypothesis
from hypothesis import strategies as st

from gridlu import language

_INSTRUCTIONS = (
    language.relations_instructions() + language.arrangements_instructions())
_settings = hypothesis.settings(
    max_examples=200, deadline=None, derandomize=True)


def _parse(text):
  """Parses; returns None for a text that is no instruction."""
  try:
    return language.parse(text)
  except language.InstructionError:
    return None


class ParserTest(absltest.TestCase):

  @_settings
  @hypothesis.given(st.text())
  def test_any_text(self, text):
    instruction = _parse(text)
    if instruction is not None:
      self.assertIn(instruction, _INSTRUCTIONS)

  @_settings
  @hypothesis.given(
      st.sampled_from(_INSTRUCTIONS).map(str), st.integers(0, 90),
      st.integers(0, 3), st.text(max_size=3))
  def test_instructions_with_a_slip(self, text, place, cut, inserted):
    instruction = _parse(text[:place] + inserted + text[place + cut:])
    if instruction is not None:
      self.assertEqual(language.parse(str(instruction)), instruction)
