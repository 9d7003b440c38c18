"""Instructions as arrays: one fixed program for all trees of a grammar.

A FiLM-NMN (section 3.1) has the shape of its instruction's tree. If a network
were built for each tree, TensorFlow would have to retrace its programs all the
time. Instead, all trees of a grammar are overlaid at their roots. Every
position that any tree uses becomes a *slot*. An instruction is encoded as a row
of integers, one for each slot, that say which module is at that position. A
network computes all slots, in a fixed order, for a batch of different
instructions.

A tree is a nested tuple: the token first, then at most two operands. `()` is
the scene itself. A token without operands is applied to the scene:

  ('NorthFrom', ('red', ('circle',)), ('AGENT',))
  ('Snake', ('AGENT',), ())
"""

from collections.abc import Callable, Iterable, Sequence
import functools
from typing import NamedTuple
import unicodedata

import numpy as np

from gridlu import program

# This is no recursive alias, because one would not help mypy here.
Tree = tuple

SCENE = 0  # A slot's code: no module; the scene's features pass through.
NOTHING = -1  # A slot's code: no operand; its features are zeros.

# The most levels of a tree that is read. A position's name has a letter for
# each level, so the cost is quadratic in the depth; without a limit, a file
# from others could stall the program.
_DEEPEST = 1000


class Slot(NamedTuple):
  """A position in the trees of a grammar, and the slots of its operands."""
  left: int  # -1 for the scene.
  right: int  # -1 where no tree of the grammar has a second operand.


def chain(text: str) -> Tree:
  """Returns the tree of an instruction that is a plain string of words.

  Each word is a module whose input is the output of the next word. The input of
  the last word is the scene: 'go to red' is go(to(red(scene))). Case does not
  matter.
  """
  words = text.lower().split()
  if not words:
    raise ValueError(
        f'Instruction {text!r} has no words; expected at least one.')
  return functools.reduce(lambda tree, word: (word, tree), words[::-1], ())


def _normal(text: str) -> str:
  """Returns the text in Unicode's form NFC: some letters have two spellings."""
  return unicodedata.normalize('NFC', text)


def _positions(tree: Tree) -> Iterable[tuple[str, Tree]]:
  """Yields each position of a tree and its subtree.

  The root's position is ''. That of an operand is its module's with 'l' (first
  operand) or 'r' (second operand) appended.
  """
  todo = [('', tree)]
  while todo:
    path, tree = todo.pop()
    if len(path) >= _DEEPEST:
      raise ValueError(
          f'An instruction has more than {_DEEPEST:,} words or levels of '
          'operands; expected at most this many.')
    if not isinstance(tree, tuple) or len(tree) > 3 or (
        tree and not isinstance(tree[0], str)):
      raise ValueError(
          f'parse returned {program.shown(tree)}, which is not an instruction '
          'tree: expected a tuple of a token (str) and at most two operands.')
    if not tree:
      yield path, tree
      continue
    yield path, (_normal(tree[0]), *tree[1:])
    todo += [
        (path + side, operand) for side, operand in zip('lr', tree[1:])
        # A first operand that is the scene needs no slot.
        if not isinstance(operand, tuple) or operand or side == 'r']


class Grammar:
  """The modules and the slots of a set of instructions."""

  def __init__(self, instructions: Sequence[str],
               parse: Callable[[str], Tree] = chain,
               tokens: Sequence[str] | None = None):
    """Overlays the trees of `instructions`.

    Args:
      instructions: Every instruction that may occur, or enough of them to
        contain every token and every position.
      parse: Returns the tree of an instruction's text. It may raise
        ValueError.
      tokens: The vocabulary; by default the tokens that occur, sorted.
    """
    if not callable(parse):
      raise ValueError(
          f'parse is {parse!r:.100}; expected a function of an instruction.')
    if not len(instructions):
      raise ValueError('A grammar needs at least one instruction.')
    self.parser = parse  # `Grammar.parse` calls it with the text's form NFC.
    seen: dict[str, list[Tree]] = {}
    for text in instructions:
      for path, tree in _positions(self.parse(text)):
        seen.setdefault(path, []).append(tree)
    found = {tree[0] for trees in seen.values() for tree in trees if tree}
    if not found:
      raise ValueError('No instruction has a token: parse returns empty trees.')
    # The order of the tokens gives the modules' ids 1, 2, ...
    self.tokens = tuple(
        sorted(found) if tokens is None else map(_normal, tokens))
    unknown = sorted(found - set(self.tokens))
    if unknown:
      raise ValueError(f'Tokens {program.shown(unknown)} are not in '
                       f'{program.shown(self.tokens)}.')
    self._known = frozenset(self.tokens)
    self._ids = {token: i + 1 for i, token in enumerate(self.tokens)}
    # The deepest come first, so operands precede the modules that take them.
    self._paths = sorted(seen, key=lambda path: (-len(path), path))
    self._known_paths = frozenset(self._paths)
    index = {path: i for i, path in enumerate(self._paths)}
    self.slots = tuple(
        Slot(index.get(path + 'l', -1), index.get(path + 'r', -1))
        for path in self._paths)
    # The indices of the slots in the order of the text: a module, its first
    # operand, its second.
    self.preorder = tuple(index[path] for path in sorted(self._paths))
    self._rows = {str(text): self._row(str(text)) for text in instructions}
    self.instructions = tuple(self._rows)  # The grammar was made from these.

  def parse(self, text: str) -> Tree:
    """Returns the tree of an instruction."""
    return self.parser(_normal(text))

  def tree(self, text: str) -> Tree:
    """Returns the tree of an instruction that `encode` can encode.

    Raises ValueError for another one.
    """
    text = str(text)
    if text not in self._rows:
      self._row(text)
    return self.parse(text)

  def encode(self, texts: Sequence[str]) -> np.ndarray:
    """Encodes N instructions as rows of slot codes, int32 [N, slots].

    A code is a module's id, SCENE or NOTHING. Raises ValueError for a token or
    a position that the grammar lacks.
    """
    rows = [self._rows.get(str(text)) or self._row(str(text)) for text in texts]
    return np.array(rows, np.int32).reshape([len(rows), len(self.slots)])

  def _row(self, text: str) -> tuple[int, ...]:
    """Returns the codes of an instruction's slots; see `encode`."""
    trees = dict(_positions(self.parse(text)))
    unknown = sorted(
        {tree[0] for tree in trees.values() if tree} - self._known)
    if unknown:
      raise ValueError(
          f'Instruction {text!r:.200} has the tokens {program.shown(unknown)}; '
          f'the grammar knows {", ".join(self.tokens):.1000}.')
    if not trees.keys() <= self._known_paths:
      raise ValueError(
          f'Instruction {text!r:.200} has an operand where no instruction that '
          'the grammar was made from has one; add one of this form to them.')
    return tuple(self._code(path, trees) for path in self._paths)

  def _code(self, path: str, trees: dict[str, Tree]) -> int:
    """Returns the code of a slot; `trees` are an instruction's, by position."""
    tree = trees.get(path)
    if tree:
      return self._ids[tree[0]]
    # A module's missing second operand is NOTHING; its missing first operand is
    # the scene. If there is no module at the parent's position, it does not
    # matter what the code is, because nothing uses the slot's output.
    parent = trees.get(path[:-1])
    if tree is None and path.endswith('r') and parent:
      return NOTHING
    return SCENE
