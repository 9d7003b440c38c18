"""Tests for program."""

from absl.testing import absltest

from gridlu import program


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
