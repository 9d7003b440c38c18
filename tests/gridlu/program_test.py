"""Tests for program."""

import subprocess
import sys
import textwrap

from absl.testing import absltest

from gridlu import program

_PROGRAM = """
  'Says a number.'
  from absl import flags
  from gridlu import program

  @program.main()
  def main(argv):
    print(flags.FLAGS.number)

  def define_flags():
    flags.DEFINE_integer('number', None, 'The number.', required=True,
                         module_name='another')

  program.run(main, define_flags, lambda line: [
      word.replace('--seven', '--number=7') for word in line])
"""


@program.main()
def _plain(argv):
  if argv[0] == 'mistaken':
    raise program.UserError('--x=1: expected 2.')
  if argv[0] == 'broken':
    raise ValueError('a bug')


@program.main(arguments=True)
def _with_arguments(argv):
  raise program.UserError(' '.join(argv))


class ProgramTest(absltest.TestCase):

  def test_users_errors_are_one_line(self):
    with self.assertRaises(SystemExit) as caught:
      _plain(['mistaken'])
    self.assertEqual(caught.exception.code, 'Error: --x=1: expected 2.')

  def test_bugs_keep_their_traceback(self):
    with self.assertRaisesRegex(ValueError, 'a bug'):
      _plain(['broken'])

  def _run(self, *arguments):
    result = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(_PROGRAM), *arguments],
        capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr

  def test_missing_and_wrong_flags_are_one_line(self):
    for flag, problem in (
        ((), '--number must be given.'),
        (('--number=x',), "flag --number=x: invalid literal for int() with "
         "base 10: 'x'."),
        (('--numbr=3',), "Unknown command line flag 'numbr'. Did you mean: "
         'number ?'),
        (('--flagfile=none',), "Unable to open flagfile: [Errno 2] No such "
         "file or directory: 'none'.")):
      self.assertEqual(
          self._run(*flag),
          (1, '', f'Error: {problem} --help lists all flags.\n'))

  def test_a_flagfile_that_is_no_text_is_named(self):
    path = self.create_tempfile('bin.flags', b'--number=\xff', 'wb').full_path
    code, _, error = self._run(f'--flagfile={path}')
    self.assertEqual(code, 1)
    self.assertStartsWith(error, 'Error: a flagfile is not text')

  def test_help_has_the_programs_text_and_flags(self):
    code, text, _ = self._run('--help')
    self.assertEqual(code, 1)  # As absl does.
    self.assertStartsWith(text.strip(), 'Says a number.')
    self.assertIn('--number: The number.', text)

  def test_the_command_line_can_be_expanded(self):
    self.assertEqual(self._run('--seven'), (0, '7\n', ''))

  def test_arguments_are_refused_where_there_are_none(self):
    _plain(['name'])
    with self.assertRaises(SystemExit) as caught:
      _plain(['name', 'a', 'b'])
    self.assertStartsWith(
        caught.exception.code, 'Error: Unknown arguments: a b.')
    with self.assertRaises(SystemExit) as caught:
      _with_arguments(['name', 'a'])
    self.assertEqual(caught.exception.code, 'Error: name a')


if __name__ == '__main__':
  absltest.main()
