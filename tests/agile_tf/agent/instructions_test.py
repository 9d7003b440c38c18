"""Tests for instructions: a row of codes says just what its tree says."""

import functools
import unicodedata

from absl.testing import parameterized
import numpy as np

from agile_tf.agent import instructions
from gridlu import language
from gridlu import tasks

# A tree for each text; between them, all that one or two operands can be.
MIXED = {
    'a': ('a',),
    'b': ('b', ('a',)),
    'c': ('c', ('a',), ()),
    'd': ('d', (), ('a',)),
    'e': ('e', ('c', ('a',), ('a',))),
}


def _decode(grammar, codes, slot=None):
  """Reads an encoded instruction back, from the root down."""
  slot = len(grammar.slots) - 1 if slot is None else slot
  code = codes[slot]
  if code == instructions.NOTHING:
    return None
  if code == instructions.SCENE:
    return ()
  left, right = (
      none if operand < 0 else _decode(grammar, codes, operand)
      for operand, none in zip(grammar.slots[slot], ((), None)))
  token = grammar.tokens[code - 1]
  if right is None:
    return (token, left) if left else (token,)
  return (token, left, right)


class ChainTest(parameterized.TestCase):

  def test_two_spellings_of_a_letter_are_one(self):
    one, other = (unicodedata.normalize(form, 'иди в красный угол é')
                  for form in ('NFC', 'NFD'))
    self.assertNotEqual(one, other)
    for text in one, other:
      for parse in instructions.chain, lambda x: (
          unicodedata.normalize('NFD', x),):
        grammar = instructions.Grammar([text], parse)
        self.assertEqual(
            grammar.tokens,
            instructions.Grammar([one], parse).tokens)
        np.testing.assert_array_equal(*grammar.encode([one, other]))
    self.assertEqual(
        instructions.Grammar([one], tokens=other.split()).tokens,
        tuple(one.split()))

  def test_long_instructions_are_encoded(self):
    grammar = instructions.Grammar([' '.join(['on'] * 1000)])
    self.assertLen(grammar.slots, 1000)
    self.assertEqual(grammar.encode([' '.join(['on'] * 1000)]).sum(), 1000)

  @parameterized.parameters(
      ('red', ('red',)),
      ('go to red', ('go', ('to', ('red',)))),
      ('  Go\tTO \n', ('go', ('to',))))
  def test_word_takes_the_word_after_it(self, text, tree):
    # The innermost word's operand is the scene, written or not.
    grammar = instructions.Grammar([text])
    codes, = grammar.encode([text])
    self.assertEqual(_decode(grammar, codes), tree)


class GrammarTest(parameterized.TestCase):

  @parameterized.parameters(
      ('relations', 990, 12, 5), ('arrangements', 36, 13, 3))
  def test_gridlu_is_decoded_as_it_was(self, task, count, tokens, slots):
    task = tasks.find(task)
    texts = [str(text) for text in task.instructions()]
    grammar = instructions.Grammar(
        texts, lambda text: language.parse(text).tree, task.tokens)
    self.assertLen(texts, count)
    self.assertLen(grammar.tokens, tokens)
    self.assertLen(grammar.slots, slots)
    codes = grammar.encode(texts)
    self.assertEqual(codes.dtype, np.int32)
    self.assertEqual(codes.shape, (count, slots))
    for text, row in zip(texts, codes):
      self.assertEqual(_decode(grammar, row), language.parse(text).tree)
    self.assertLen(np.unique(codes, axis=0), count)
    self.assertEqual(set(codes.ravel()), set(range(tokens + 1)))

  def test_trees_of_mixed_arity_share_slots(self):
    grammar = instructions.Grammar(list(MIXED), MIXED.get)
    none = instructions.NOTHING
    # Slots: left of left, right of left, left, right, root.
    self.assertEqual(
        grammar.slots, ((-1, -1), (-1, -1), (0, 1), (-1, -1), (2, 3)))
    self.assertEqual(grammar.encode(list(MIXED)).tolist(), [
        [0, 0, 0, none, 1],
        [0, none, 1, none, 2],
        [0, none, 1, 0, 3],
        [0, 0, 0, 1, 4],
        [1, 1, 3, none, 5]])
    for text, row in zip(MIXED, grammar.encode(list(MIXED))):
      self.assertEqual(_decode(grammar, row), MIXED[text])

  def test_chains_of_different_lengths_share_slots(self):
    grammar = instructions.Grammar(['go to red', 'stop'])
    self.assertEqual(grammar.tokens, ('go', 'red', 'stop', 'to'))
    self.assertEqual(grammar.encode(['go to red', 'stop', 'to GO']).tolist(), [
        [2, 4, 1], [0, 0, 3], [0, 1, 4]])
    self.assertEqual(grammar.encode([]).shape, (0, 3))

  def test_given_tokens_keep_their_order(self):
    grammar = instructions.Grammar(['b a'], tokens=['c', 'b', 'a'])
    self.assertEqual(grammar.encode(['b a', 'c']).tolist(), [[3, 2], [0, 1]])

  @parameterized.named_parameters(
      ('no_instructions', [], instructions.chain, 'at least one instruction'),
      ('no_words', [' \t'], instructions.chain, 'no words; expected at least'),
      ('token_outside', ['stop'], instructions.chain,
       r"\['stop'\] are not in \('go', 'to', 'red'\)"),
      ('three_operands', ['go'], lambda _: ('a', ('a',), ('a',), ('a',)),
       'is not an instruction tree'),
      ('token_of_a_number', ['go'], lambda _: (1, ('a',)),
       'is not an instruction tree'),
      ('token_of_a_tree', ['go'], lambda _: ('a', (('b',),)),
       'is not an instruction tree'),
      ('tree_of_an_array', ['go'], lambda _: np.zeros([3, 3]),
       'parse returned array'),
      ('operand_of_an_array', ['go'], lambda _: ('a', np.zeros([3, 3])),
       'parse returned array'),
      ('tree_of_deep_lists', ['go'], lambda _: functools.reduce(
          lambda tree, _: [tree], range(10**5), []),
       'parse returned something of type list, which has no text form, which'),
      ('tree_of_many_numbers', ['go'], lambda _: list(range(10**6)),
       r'parse returned \[0, 1.{,200}, which is not an instruction tree'),
      ('tree_of_none', ['go'], lambda _: None, 'parse returned None'),
      ('operands_of_text', ['go to'], lambda text: (*text.split(),),
       "parse returned 'to'"),
      ('too_long', ['go ' * 10**5], instructions.chain, 'than 1,000 words'),
      ('no_tokens', ['go', 'to'], lambda _: (), 'returns empty trees'))
  def test_bad_grammars_are_named(self, texts, parse, message):
    with self.assertRaisesRegex(ValueError, message):
      instructions.Grammar(texts, parse, ['go', 'to', 'red'])

  @parameterized.parameters(
      ('go to mars', r"has the tokens \['mars'\]; the grammar knows go, red, "),
      ('go go to red', "'go go to red' has an operand where no"),
      ('go ' * 10**5, 'more than 1,000 words or levels'),
      ('', 'no words'))
  def test_instructions_that_a_grammar_lacks_are_named(self, text, message):
    grammar = instructions.Grammar(['go to red'])
    with self.assertRaisesRegex(ValueError, message):
      grammar.encode(['go to red', text])
    with self.assertRaisesRegex(ValueError, message):
      grammar.tree(text)
    self.assertEqual(grammar.tree('Go to red'), instructions.chain('go to red'))
