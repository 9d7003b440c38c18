"""Properties of what reads bad input: a result, or the module's own error.

hypothesis draws the input, and finds the smallest that breaks a property.
"""

import os
import pathlib
import tempfile

from absl.testing import absltest
import hypothesis
from hypothesis import strategies as st
import numpy as np

from gridlu import goal_dataset
from gridlu import language
from gridlu import program

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


class GoalDatasetTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._folder = cls.enterClassContext(tempfile.TemporaryDirectory())
    cls._path = os.path.join(cls._folder, 'goals.npz')
    goal_dataset.save(
        cls._path, goal_dataset.generate('relations', 20, seed=0))
    cls._whole = pathlib.Path(cls._path).read_bytes()
    cls._dataset = goal_dataset.load(cls._path)

  def _load(self, content):
    """Loads a file; returns None if it is refused."""
    path = os.path.join(self._folder, 'changed.npz')
    pathlib.Path(path).write_bytes(content)
    message = ''
    try:
      return goal_dataset.load(path)
    except program.UserError as error:
      message = str(error)
    self.assertStartsWith(message, path)
    return None

  @_settings
  @hypothesis.given(st.floats(0, 1, exclude_max=True))
  def test_truncated(self, share):
    self.assertIsNone(self._load(self._whole[:int(share * len(self._whole))]))

  @_settings
  @hypothesis.given(st.floats(0, 1, exclude_max=True), st.integers(0, 255))
  def test_a_changed_byte(self, share, byte):
    place = int(share * len(self._whole))
    changed = bytearray(self._whole)
    changed[place] = byte
    dataset = self._load(bytes(changed))
    if dataset is not None:  # The byte is one that says nothing, or the same.
      self.assertEqual(dataset.instructions, self._dataset.instructions)
      for name in ('instruction', 'states'):
        np.testing.assert_array_equal(
            getattr(dataset, name), getattr(self._dataset, name))

  @_settings
  @hypothesis.given(st.binary(max_size=200))
  def test_any_bytes(self, content):
    self.assertIsNone(self._load(content))
