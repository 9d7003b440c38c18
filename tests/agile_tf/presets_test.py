"""Tests for agile_tf.presets."""

import os

from absl import flags
from absl.testing import absltest

from agile_tf import presets
from gridlu import program


class PresetsTest(absltest.TestCase):

  def test_are_the_flagfiles_of_launch(self):
    self.assertContainsSubset({'quickstart', 'relations'}, presets.names())
    for name in presets.names():
      self.assertTrue(os.path.samefile(
          presets.flagfile(name), f'launch/{name}.flags'))

  def _read(self, *arguments):
    return list(program.with_flagfiles(arguments, presets.flagfile))

  def test_stand_for_a_flagfile_where_they_are_given(self):
    flagfile = f'--flagfile={presets.flagfile("relations")}'
    for preset in (['--preset=relations'], ['-preset', 'relations'],
                   ['--preset', 'relations']):
      self.assertEqual(
          self._read('--seed=1', *preset, '--steps=5', 'x'),
          ['--seed=1', flagfile, '--steps=5', 'x'])
    line = ['--set=preset=x', '--', '--preset=relations']
    self.assertEqual(self._read(*line), line)

  def test_unknown_names_are_refused(self):
    for arguments in (['--preset=relation'], ['--preset'], ['--preset=']):
      with self.assertRaisesRegex(
          program.UserError, '--preset=.*: expected one of .*, quickstart, '):
        self._read(*arguments)

  def test_one_in_a_flagfile_is_refused(self):
    values = flags.FlagValues()
    presets.define_flag(values)
    path = self.create_tempfile(content='--preset=relations').full_path
    with self.assertRaisesRegex(
        flags.IllegalFlagValueError, 'in a flagfile give --flagfile'):
      values(['launch', f'--flagfile={path}'])
