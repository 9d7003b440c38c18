"""Tests for gridlu.parser, with a language of its own."""

from absl.testing import absltest
from absl.testing import parameterized

from gridlu import parser as parser_lib

_LEAF = parser_lib.Word(('oak', 'elm'), 'a leaf', {'quercus': 'oak'})
_FORMS = {
    'Leaf': parser_lib.Form(lambda kind: kind, (_LEAF,)),
    'Bare': parser_lib.Form(lambda: None),
    'Fork': parser_lib.Form(lambda left, right: (left, right), (
        parser_lib.Nested(('Leaf', 'Fork'), 'Leaf or Fork'),
        parser_lib.Nested(('Leaf', 'Fork', 'Bare'), 'any term'))),
}


def _read(text):
  parser = parser_lib.Parser(text, _FORMS)
  term = parser.term(_FORMS, 'a term')
  parser.end()
  return term


class ParserTest(parameterized.TestCase):

  @parameterized.parameters(
      ('Bare', None), ('Leaf(oak)', 'oak'), (' Leaf\n( \'elm" )\t', 'elm'),
      ('Leaf(quercus)', 'oak'),
      ('Fork(Fork(Leaf(oak), Bare), Leaf(elm))', (('oak', None), 'elm')))
  def test_terms(self, text, expected):
    self.assertEqual(_read(text), expected)

  @parameterized.parameters(
      ('', 0, 'a term'), ('Bark', 0, 'a term'), ('Leaf', 4, r"'\('"),
      ('Leaf(ash)', 5, 'a leaf'), ("Leaf('oak)", 9, 'a closing quote'),
      ('Leaf(oak', 8, r"'\)'"), ('Fork(Bare', 5, 'Leaf or Fork'),
      ('Fork(Leaf(oak))', 14, "','"), ('Fork(Leaf(oak), oak)', 16, 'any term'),
      ('Bare()', 4, 'the end'))
  def test_errors_show_the_place(self, text, position, expected):
    with self.assertRaisesRegex(
        parser_lib.InstructionError, f'expected {expected}.* at the caret'
        ) as caught:
      _read(text)
    self.assertEqual(caught.exception.position, position)
    self.assertEqual(
        str(caught.exception).split('\n')[1:],
        [f'  {text}', '  ' + position * ' ' + '^'])

  def test_pieces(self):
    parser = parser_lib.Parser('one, two', {})
    self.assertEqual(parser.name(('one', 'two'), 'a number'), 'one')
    self.assertEqual((parser.token, parser.position), (',', 3))
    parser.symbol(',')
    self.assertEqual((parser.token, parser.position), ('two', 5))
    with self.assertRaisesRegex(parser_lib.InstructionError, 'expected three'):
      parser.fail('three')
    parser.advance()
    parser.end()
    self.assertEqual(parser.token, '')


if __name__ == '__main__':
  absltest.main()
