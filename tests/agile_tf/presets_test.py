"""Tests for agile_tf.presets."""

import filecmp

from absl.testing import absltest

from agile_tf import presets
from gridlu import program


class PresetsTest(absltest.TestCase):

  def test_are_the_flagfiles_of_launch(self):
    self.assertContainsSubset({'quickstart', 'relations'}, presets.names())
    for name in presets.names():
      self.assertTrue(filecmp.cmp(
          presets.flagfile(name), f'launch/{name}.flags', shallow=False))

  def test_stand_for_a_flagfile_where_they_are_given(self):
    path = f'--flagfile={presets.flagfile("relations")}'
    for preset in (['--preset=relations'], ['-preset', 'relations'],
                   ['--preset', 'relations']):
      self.assertEqual(
          presets.expand(['launch', '--seed=1', *preset, '--steps=5', 'x']),
          ['launch', '--seed=1', path, '--steps=5', 'x'])
    line = ['sweep', '--set=preset=x', '--', '--preset=relations']
    self.assertEqual(presets.expand(line), line)

  def test_unknown_names_are_refused(self):
    for arguments in (['--preset=relation'], ['--preset'], ['--preset=']):
      with self.assertRaisesRegex(
          program.UserError, '--preset=.*: expected one of .*, quickstart, '):
        presets.expand(arguments)

  def test_a_flagfile_that_is_elsewhere_is_found_by_name(self):
    line = ['--flagfile=launch/relations.flags', '--flagfile=own.flags']
    self.assertEqual(presets.expand(line), line)
    with self.assertRaisesRegex(
        program.UserError, 'no elsewhere/relations.flags here. --preset=rel'):
      presets.expand(['--flagfile=elsewhere/relations.flags'])
