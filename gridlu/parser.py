"""Reads terms such as Name(first, 'word'), from left to right.

The parser handles brackets, commas, quotes and positions in the text. Its
caller (`language`, for GridLU's instructions) says which names and words are
allowed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import re
from typing import Any, NamedTuple, NoReturn


class InstructionError(ValueError):
  """An instruction that is not in the language.

  Attributes:
    expected: What was expected, as a phrase.
    text: The text that was parsed, or None if no text was.
    position: Where in `text` it was expected.
  """

  def __init__(self, expected: str, text: str | None = None,
               position: int | None = None):
    self.expected = expected
    self.text = text
    self.position = position
    if text is None:
      message = f'Not an instruction: expected {expected}.'
    else:
      # Line breaks and tabs would move the caret away from its place.
      line = re.sub(r'\s', ' ', text)
      message = (f'Not an instruction: expected {expected} at the caret:\n'
                 f'  {line}\n  {" " * (position or 0)}^')
    super().__init__(message)


class Word(NamedTuple):
  """An argument that is a word, with or without quotes."""
  words: Collection[str]
  expected: str  # What messages call them.
  synonyms: Mapping[str, str] = {}


class Nested(NamedTuple):
  """An argument that is a term."""
  names: Collection[str]
  expected: str  # What messages call them.


class Form(NamedTuple):
  """How a term is written, and how to build its value."""
  build: Callable[..., Any]  # Called with the values of the arguments.
  arguments: Sequence[Word | Nested] = ()  # Empty: the term has no brackets.


_QUOTES = '\'"`\u2018\u2019\u201c\u201d\u201e\u00b4'
_TOKEN = re.compile(rf'\s*([A-Za-z]+|[(),]|[{_QUOTES}]|\S|\Z)')


def _tokens(text: str) -> Iterator[tuple[str, int]]:
  """Yields each token and its position, then ('', position) without end."""
  position = 0
  while True:
    match = _TOKEN.match(text, position)
    assert match is not None
    position = match.end()
    yield match.group(1), match.start(1)


class Parser:
  """Recursive descent over one text.

  Attributes:
    token: The next token, '' at the end of the text.
    position: Its position.
  """

  def __init__(self, text: str, forms: Mapping[str, Form]):
    """Begins at the start of a text.

    Args:
      text: What to read.
      forms: The terms that `term` can read, by their names.
    """
    self._text = text
    self._forms = forms
    self._rest = _tokens(text)
    self.advance()

  def advance(self) -> None:
    """Goes to the next token."""
    self.token, self.position = next(self._rest)

  def fail(self, expected: str, position: int | None = None) -> NoReturn:
    """Raises an error that says what was expected.

    Args:
      expected: What was expected, as a phrase.
      position: Where it was expected; None for the next token.

    Raises:
      InstructionError: Always.
    """
    raise InstructionError(
        expected, self._text, self.position if position is None else position)

  def name(self, names: Collection[str], expected: str) -> str:
    """Reads one of some names; fails with `expected` at anything else."""
    name = self.token
    if name not in names:
      self.fail(expected)
    self.advance()
    return name

  def symbol(self, symbol: str) -> None:
    """Reads a bracket or a comma."""
    if self.token != symbol:
      self.fail(f'{symbol!r}')
    self.advance()

  def end(self) -> None:
    """Checks that nothing follows."""
    if self.token:
      self.fail('the end of the instruction')

  def _word(self, argument: Word) -> str:
    quoted = self.token != '' and self.token in _QUOTES
    if quoted:
      self.advance()
    word = argument.synonyms.get(self.token, self.token)
    if word not in argument.words:
      self.fail(argument.expected)
    self.advance()
    if quoted:
      if self.token == '' or self.token not in _QUOTES:
        self.fail('a closing quote')
      self.advance()
    return word

  def term(self, names: Collection[str], expected: str) -> Any:
    """Reads a term.

    Args:
      names: The names in `forms` that are allowed here.
      expected: What messages call them.

    Returns:
      The value that the term's form builds.

    Raises:
      InstructionError: The text does not continue with such a term.
    """
    form = self._forms[self.name(names, expected)]
    values = []
    for i, argument in enumerate(form.arguments):
      self.symbol(',' if i else '(')
      if isinstance(argument, Word):
        values.append(self._word(argument))
      else:
        values.append(self.term(argument.names, argument.expected))
    if form.arguments:
      self.symbol(')')
    return form.build(*values)
