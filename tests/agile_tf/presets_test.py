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
    return list(presets.expand(arguments))

  def test_stand_for_a_flagfile_where_they_are_given(self):
    flags_of = self._read(f'--flagfile={presets.flagfile("relations")}')
    self.assertIn('--world=relations', flags_of)
    for preset in (['--preset=relations'], ['-preset', 'relations'],
                   ['--preset', 'relations']):
      self.assertEqual(
          self._read('--seed=1', *preset, '--steps=5', 'x'),
          ['--seed=1', *flags_of, '--steps=5', 'x'])
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

  def test_flags_of_flagfiles_stand_where_these_are_named(self):
    inner = self.create_tempfile('in.flags', '--b=1\r\n--c=2').full_path
    outer = self.create_tempfile(
        'out.flags', f'# Comments\n\n// too\n--flagfile={inner}\n\t--d=~/e/'
        ).full_path
    for line in [f'--flagfile={outer}'], ['-flagfile', outer]:
      self.assertEqual(self._read('--a', *line, '--f'),
                       ['--a', '--b=1', '--c=2', '--d=~/e/', '--f'])
    for empty in ['--flagfile='], ['--flagfile']:
      with self.assertRaisesRegex(program.UserError, 'the name is empty'):
        self._read(*empty)

  def _flags(self, text, name='a.flags'):
    """Returns what a flagfile with this text stands for."""
    path = self.create_tempfile(name, text).full_path
    return list(presets.expand(['--x', f'--flagfile={path}', 'y']))

  def test_each_line_of_a_flagfile_is_one_flag(self):
    inner = self.create_tempfile('inner.flags', '--b=2').full_path
    pattern = r"--instructions=^Same\(AGENT, Color\('\w+', SCENE\)"
    self.assertEqual(
        self._flags('\ufeff--a=1 \r\n  # One\r\n\t// Two\n\n'
                    f'  --flagfile={inner}\n-c\n{pattern}\n--d=#4\n'
                    '--e=\'it\'s\n--f="\n--g='),
        ['--x', '--a=1', '--b=2', '-c', pattern, '--d=#4', "--e='it's", '--f="',
         '--g=', 'y'])

  def test_what_is_no_flag_is_named_with_its_line(self):
    for line, problem in (
        ('--seed=4 # four', 'line 2: .* a comment behind the value'),
        ('--seed=4\t# four', 'a comment behind the value'),
        ('--instructions="red"', 'quotes .*: write --instructions=red[.]'),
        ("  --run_dir='a b'", 'quotes .*: write --run_dir=a b[.]'),
        ('--seed 4', 'is no flag: expected --name=value'),
        ('--details # more', 'is no flag'), ('--seed = 4', 'is no flag'),
        ('seed=4', 'is no flag'), ('--', 'is no flag'), ('y', 'is no flag'),
        ('--a=\0', r'control character .\\x00'), ('--\x1b[2J', r'\\x1b'),
        ('--a=b\tc', r'control character .\\t'),
        ('--a=1\r--seed=2', 'a carriage return alone'),
        ('# Why\r--seed=2', 'a carriage return alone'),
        ('--verbosity', 'has no value: write --verbosity=value'),
        ('--flagfile=', 'the name is empty')):
      with self.assertRaisesRegex(program.UserError, f'--flagfile=.*{problem}'):
        self._flags(f'# First\n{line}\n--last')

  def test_flagfiles_that_cannot_be_read_are_named(self):
    path = self.create_tempfile('loop.flags').full_path
    other = self.create_tempfile('other.flags', f'--flagfile={path}').full_path
    for content, problem in (
        (f'--flagfile={path}'.encode(), 'reads it'),
        (f'--flagfile={other}'.encode(), 'reads it'),
        (b'--flagfile=/no/file', 'No such file'), (b'\xff', "can't decode"),
        (b'#' * 10**6 + b'##', 'at most 1,000,000')):
      with open(path, 'wb') as file:
        file.write(content)
      with self.assertRaisesRegex(program.UserError, problem):
        list(presets.expand([f'--flagfile={path}']))
    with self.assertRaisesRegex(program.UserError, 'Is a directory'):
      list(presets.expand([f'--flagfile={os.path.dirname(path)}']))

  def test_a_named_pipe_is_no_flagfile(self):
    path = os.path.join(self.create_tempdir(), 'pipe')
    os.mkfifo(path)
    with self.assertRaisesRegex(program.UserError, 'a named pipe'):
      list(presets.expand([f'--flagfile={path}']))

  def test_flagfiles_that_name_each_other_too_often_are_refused(self):
    folder = self.create_tempdir()
    for i in range(8):  # Ten times each, so ten million flagfiles in all.
      folder.create_file(f'{i}', content=10 * (
          f'--flagfile={folder.full_path}/{i + 1}\n'))
    folder.create_file('8', content='--seed=1')
    with self.assertRaisesRegex(program.UserError, 'than the 100 flagfiles'):
      list(presets.expand([f'--flagfile={folder.full_path}/0']))

  def test_a_long_chain_of_flagfiles_is_refused(self):
    folder = self.create_tempdir()
    for i in range(2000):
      folder.create_file(
          f'{i}', content=f'--flagfile={folder.full_path}/{i + 1}')
    with self.assertRaisesRegex(program.UserError, 'than the 100 flagfiles'):
      list(presets.expand([f'--flagfile={folder.full_path}/0']))
