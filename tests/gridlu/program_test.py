"""Tests for program."""

import os
import signal
import subprocess
import sys
import textwrap

from absl.testing import absltest

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

  @program.main(define_flags, preset=lambda name: f'{name}.flags')
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

  def test_flagfiles(self):
    inner = self.create_tempfile(
        'in.flags', '--file=a\r\n--number=5').full_path
    outer = self.create_tempfile(
        'out.flags', f'# Comments\n\n// too\n--flagfile={inner}\n\t--file=~/b/'
        ).full_path
    for line in ([f'--flagfile={outer}'], ['-flagfile', outer]):
      self.assertEqual(
          self._run(*line), (0, f'5 {os.path.expanduser("~/b")}\n', ''))
    self.assertEqual(
        self._run(f'--flagfile={outer}', '--file=./c/../d')[1], '5 d\n')
    self.assertIn('--flagfile= is empty', self._run('--flagfile=')[2])
    code, _, text = self._run('--flagfile=none')
    self.assertEqual((code, text.count('\n')), (1, 1))
    self.assertRegex(text, 'Error: .*flagfile: .*No such file.*none')

  def test_paths_are_expanded(self):
    os.environ['GRIDLU_TEST_FOLDER'] = '/data'
    for text, path in (
        ('', ''), ('a/', 'a'), ('./a//b', 'a/b'),
        ('~', os.path.expanduser('~')),
        ('$GRIDLU_TEST_FOLDER/x', '/data/x'), ('$NO_SUCH/x', '$NO_SUCH/x')):
      self.assertEqual(program.clean_path(text), path)

  def test_output_that_nobody_reads_or_that_does_not_fit(self):
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

  def test_an_interrupt_is_one_line(self):
    self.assertEqual(
        self._run('--number=-1'), (1, '', 'Interrupted.\n'))

  def test_nothing_that_a_file_says_controls_the_terminal(self):
    self.assertEqual(
        program.printable('é \x1b[2J\n\u202e'), 'é \\x1b[2J\n\\u202e')
    for arguments in ('--number=1', '\x1b[2J'), ('--number=\x1b[2J',):
      self.assertNotIn('\x1b', self._run(*arguments)[2])

  def test_sighup_and_sigusr1_may_be_ignored(self):
    for number in (signal.SIGHUP, signal.SIGUSR1):
      self.addCleanup(signal.signal, number, signal.getsignal(number))
      for answer, stops in (signal.SIG_IGN, False), (signal.SIG_DFL, True):
        signal.signal(number, answer)
        self.assertEqual(number in program.stop_signals(), stops)

  def test_help_has_the_programs_text_and_flags(self):
    code, text, _ = self._run('--help')
    self.assertEqual(code, 1)  # As absl does.
    self.assertStartsWith(text.strip(), 'Says a number.')
    self.assertIn('--number: The number.', text)

  def test_a_preset_is_the_flagfile_of_its_name(self):
    path = self.create_tempfile('own.flags', '--number=7').full_path
    self.assertEqual(self._run(f'--preset={path.removesuffix(".flags")}'),
                     (0, '7 \n', ''))
