"""Tests for program."""

import errno
import functools
import logging
import os
import pathlib
import re
import resource
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
import numpy as np

from gridlu import program

_PROGRAM = """
  'Says a number.'
  import sys
  from absl import flags
  from gridlu import program

  def define_flags():
    program.define_path('file', '', 'A file.')
    flags.DEFINE_bool('details', False, 'Whether to say more.')
    flags.DEFINE_integer('number', None, 'The number.', required=True,
                         module_name='another')

  @program.main(define_flags, expand=lambda arguments: [
      argument.replace('--seven', '--number=7') for argument in arguments])
  def main():
    assert not sys.stderr.isatty()
    if flags.FLAGS.number < 0:
      raise KeyboardInterrupt
    print(flags.FLAGS.number, flags.FLAGS.file)

  main()
"""


class ProgramTest(absltest.TestCase):

  def test_bugs_keep_their_traceback(self):
    with self.assertRaisesRegex(ValueError, 'a bug'), program._reported():
      raise ValueError('a bug')

  def _run(self, *arguments, **options):
    result = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(_PROGRAM), *arguments],
        **{'capture_output': True, 'text': True, 'check': False} | options)
    return result.returncode, result.stdout, result.stderr

  def test_missing_and_wrong_flags_are_one_line(self):
    for flag, problem in (
        ((), '--number must be given.'),
        (('--number=x',), "flag --number=x: invalid literal for int() with "
         "base 10: 'x'."),
        (('--numbr=3',), "Unknown command line flag 'numbr'. Did you mean: "
         'number ?'),
        (('--number=3', '--nodetails=true'),
         '--nodetails=true does not take an argument.')):
      self.assertEqual(
          self._run(*flag),
          (1, '', f'Error: {problem} --help lists all flags.\n'))

  def test_a_flag_may_stand_for_others(self):
    self.assertEqual(self._run('--seven', '--file=a'), (0, '7 a\n', ''))

  def test_every_program_reads_flagfiles_with_care(self):
    folder = self.create_tempdir()
    os.mkfifo(os.path.join(folder, 'pipe'))
    folder.create_file('loop', f'--flagfile={folder.full_path}/loop')
    folder.create_file('size', '--size=0')
    for name, problem in (('pipe', 'a named pipe'), ('loop', 'reads it'),
                          ('size', 'flag --size=0')):
      result = subprocess.run(
          [sys.executable, '-m', 'gridlu.goal_dataset',
           f'--flagfile={folder.full_path}/{name}', '--output=unused.npz'],
          capture_output=True, text=True, check=False)
      self.assertEqual(result.returncode, 1)
      self.assertRegex(result.stderr, f'^Error: .*{problem}.*\n$')

  def test_paths_are_expanded(self):
    os.environ['GRIDLU_TEST_FOLDER'] = '/data'
    for text, path in (
        ('', ''), ('a/', 'a'), ('./a//b', 'a/b'),
        ('~', os.path.expanduser('~')),
        ('$GRIDLU_TEST_FOLDER/x', '/data/x'), ('$NO_SUCH/x', '$NO_SUCH/x')):
      self.assertEqual(program.clean_path(text), path)

  def test_functions_take_paths_of_several_kinds(self):
    for path in 'a/b', b'a/b', pathlib.Path('a/b'):
      self.assertEqual(program.path_text('path', path), 'a/b')
    for wrong in 5, None, 'a\0b', b'a\0b', ['a']:
      with self.assertRaisesRegex(
          program.UserError, f'^goals is {re.escape(repr(wrong))}: expected a'):
        program.path_text('goals', wrong)

  def test_output_that_cannot_be_written_ends_the_program_without_a_traceback(
      self):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, 'w') as pipe:
      self.assertEqual(
          self._run('--number=1', capture_output=False, stdout=pipe,
                    stderr=subprocess.PIPE), (1, None, ''))
    with open('/dev/full', 'w', encoding='utf-8') as full:
      for flag in '--number=1', '--help':
        self.assertEqual(
            self._run(flag, capture_output=False, stdout=full,
                      stderr=subprocess.PIPE),
            (1, None, 'Error: the output cannot be written: No space left on '
             'device.\n'))
    self.assertEqual(
        self._run('--number=1', capture_output=False,
                  preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE),
        (0, None, ''))
    self.assertEqual(self._run('--number=1', stderr=None,
                               preexec_fn=lambda: os.close(2),
                               capture_output=False, stdout=subprocess.PIPE),
                     (0, '1 \n', None))

  def test_a_disk_that_cannot_be_written_is_one_line(self):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
    path = self.create_tempfile('big.txt').full_path
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    with self.assertRaises(SystemExit) as raised, mock.patch.object(
        program, '_close_output'), program._reported():
      with open(path, 'w', encoding='utf-8') as file:
        file.write('many words')
    self.assertEqual(raised.exception.code,
                     'Error: the output cannot be written: File too large.')
    for number in errno.EROFS, errno.EIO:
      with self.assertRaisesRegex(SystemExit, 'Error: x cannot be written: '):
        with mock.patch.object(
            program, '_close_output'), program._reported():
          raise OSError(number, os.strerror(number), 'x')

  def test_an_interrupt_is_one_line(self):
    self.assertEqual(
        self._run('--number=-1'), (130, '', 'Interrupted.\n'))

  def test_nothing_that_a_file_says_controls_the_terminal(self):
    self.assertEqual(
        program.printable('é \x1b[2J\n\u202e'), 'é \\x1b[2J\n\\u202e')
    self.assertEqual(
        program.printable('a\0b\u200bc\u202ed\ufeff\ud800\r\t'),
        r'a\x00b\u200bc\u202ed\ufeff\ud800\r\t')
    long = program.printable('a' * 60_000 + '\x1b' + 'b' * 60_000)
    self.assertLess(len(long), 101_000)
    self.assertIn('a... [20,001 characters are left out] ...b', long)
    record = logging.LogRecord('', logging.WARNING, '', 0, '%s', ('\x1b[2J',),
                               None)
    self.assertEqual(program._Formatter('%(message)s').format(record),
                     r'Warning: \x1b[2J')
    for arguments in ('--number=1', '\x1b[2J'), ('--number=\x1b[2J',):
      self.assertNotIn('\x1b', self._run(*arguments)[2])

  def test_any_value_can_be_shown_on_a_short_line(self):
    deep = functools.reduce(lambda inside, _: [inside], range(10**5), [])
    for value, shown in (
        ('a', "'a'"), (np.zeros([2, 2]), 'array([[0., 0.], [0., 0.]])'),
        (deep, 'something of type list, which has no text form'),
        (10**5000, 'something of type int, which has no text form')):
      self.assertEqual(program.shown(value), shown)
    self.assertEqual(program.shown('x' * 10**6), f"'{199 * 'x'}...")

  def test_letters_that_the_terminal_lacks_are_escaped(self):
    self.assertEqual(
        self._run('--number=1', '--file=красный',
                  env=os.environ | {'PYTHONIOENCODING': 'ascii'})[:2],
        (0, '1 ' + 'красный'.encode('unicode_escape').decode() + '\n'))

  def test_help_has_the_programs_text_and_flags(self):
    for flag in '--help', '-help', '--helpshort', '--helpfull':
      code, text, _ = self._run(flag)
      self.assertEqual(code, 0)
      self.assertStartsWith(text.strip(), 'Says a number.')
      self.assertIn('--number: The number.', text)

  def test_help_needs_no_wide_terminal(self):
    code, text, _ = self._run('--help', env=os.environ | {'COLUMNS': '1'})
    self.assertEqual(code, 0)
    self.assertIn('--number:', text)
