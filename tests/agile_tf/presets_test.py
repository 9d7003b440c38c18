"""Tests for agile_tf.presets."""

import os

from absl.testing import absltest

from agile_tf import presets
from gridlu import program


class PresetsTest(absltest.TestCase):

  def test_are_the_flagfiles_of_launch(self):
    self.assertContainsSubset({'quickstart', 'relations'}, presets.names())
    for name in presets.names():
      self.assertTrue(os.path.samefile(
          presets.flagfile(name), f'launch/{name}.flags'))

  def _expanded(self, *arguments):
    return list(program.expanded(arguments, presets.flagfile))

  def test_stand_for_a_flagfile_where_they_are_given(self):
    flags = self._expanded('--flagfile=launch/relations.flags')
    self.assertIn('--world=relations', flags)
    for preset in (['--preset=relations'], ['-preset', 'relations'],
                   ['--preset', 'relations']):
      self.assertEqual(
          self._expanded('--seed=1', *preset, '--steps=5', 'x'),
          ['--seed=1', *flags, '--steps=5', 'x'])
    line = ['--set=preset=x', '--', '--preset=relations']
    self.assertEqual(self._expanded(*line), line)

  def test_unknown_names_are_refused(self):
    for arguments in (['--preset=relation'], ['--preset'], ['--preset=']):
      with self.assertRaisesRegex(
          program.UserError, '--preset=.*: expected one of .*, quickstart, '):
        self._expanded(*arguments)

  def test_a_flagfile_that_is_elsewhere_is_found_by_name(self):
    for name, words in (('relations', ' --preset=relations has'), ('own', '')):
      with self.assertRaisesRegex(
          program.UserError,
          rf'elsewhere/{name}.flags cannot be read .*each line\.{words}'):
        self._expanded(f'--flagfile=elsewhere/{name}.flags')
