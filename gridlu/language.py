"""GridLU's instruction language: typed trees, their text and their parser.

GridLU-Relations has the grammar of appendix F.1,

    <obj> ::= Color(<color>, <obj_part2>) | Shape(<shape>, SCENE)
    <obj_part2> ::= Shape(<shape>, SCENE) | SCENE
    <go_to_instruction> ::= <relation2>(AGENT, <obj>)
                          | <relation2>(<obj>, AGENT)
    <bring_to_instruction> ::= <relation1>(<obj>, <obj>)

where the operands of a bring-to instruction differ and SameLocation relates an
object to AGENT only: 15 objects, 150 go-to and 840 bring-to instructions.
GridLU-Arrangements has `<word>(AGENT, SCENE)` and `<word>(AGENT,
Color(<color>, SCENE))`: 36 instructions.

An instruction is built from the classes below, and `str` writes it as the paper
does:

    >>> str(NorthFrom(Color('red', Shape('circle', SCENE)), AGENT))
    "NorthFrom(Color('red', Shape('circle', SCENE)), AGENT)"

`parse` is the inverse of `str`. Both constructors and `parse` raise
`InstructionError` for an instruction that is not in the grammar.

To define the words of another task, derive a class from `Instruction` that sets
`task` and `noun` and implements `left_problem` and `right_problem`. From that,
derive a class for each word. `parse` then knows these words.
"""

import abc
from collections.abc import Callable, Collection, Iterable, Sequence
import dataclasses
import functools
import itertools
import re
from typing import Any, ClassVar

from gridlu import world

# Nested tuples of tokens: ('NorthFrom', ('red', ('circle',)), ('AGENT',)).
# SCENE is ().
Tree = tuple

_LONGEST = 1000  # Characters of a text that `parse` reads.


class InstructionError(ValueError):
  """An instruction that is not in the language.

  Attributes:
    expected: What was expected, as a phrase.
    text: The text that was parsed, or None if no text was.
    position: Where in `text` it was expected.
  """

  def __init__(self, expected: str, text: str | None = None,
               position: int = 0):
    self.expected = expected
    self.text = text
    self.position = position
    message = f'Not an instruction: expected {expected}'
    if text is None:
      message += '.'
    else:
      # Line breaks and tabs would move the caret away from its place.
      line = re.sub(r'\s', ' ', text)
      message += f' at the caret:\n  {line}\n  {" " * position}^'
    super().__init__(message)


def _words(words: Sequence[str]) -> str:
  """Lists words for a message: 'red, green or blue'."""
  *others, last = words
  return f'{", ".join(others)} or {last}' if others else last


_EXPECTED_COLOR = f'a colour ({_words(world.COLORS)})'
_EXPECTED_SHAPE = f'a shape ({_words(world.SHAPES)})'
_EXPECTED_OBJECT = 'an object (Color(...) or Shape(...))'
_EXPECTED_OPERAND = f'AGENT, SCENE or {_EXPECTED_OBJECT}'


@dataclasses.dataclass(frozen=True)
class Scene:
  """The whole board. Use the instance `SCENE`."""

  def __str__(self) -> str:
    return 'SCENE'

  @property
  def tree(self) -> Tree:
    return ()


@dataclasses.dataclass(frozen=True)
class Agent:
  """The agent. Use the instance `AGENT`."""

  def __str__(self) -> str:
    return 'AGENT'

  @property
  def tree(self) -> Tree:
    return ('AGENT',)


SCENE = Scene()
AGENT = Agent()


@dataclasses.dataclass(frozen=True)
class Shape:
  """The blocks of one shape: `Shape('rect', SCENE)`."""
  shape: str
  scene: Scene

  def __post_init__(self):
    if self.shape not in world.SHAPES:
      raise InstructionError(f'{_EXPECTED_SHAPE}, not {self.shape!r}')
    if self.scene != SCENE:
      raise InstructionError(f'SCENE inside Shape, not {self.scene}')

  def __str__(self) -> str:
    return f"Shape('{self.shape}', {self.scene})"

  @property
  def tree(self) -> Tree:
    return (self.shape,)


@dataclasses.dataclass(frozen=True)
class Color:
  """The blocks of one colour, of any shape or of one."""
  color: str
  blocks: Shape | Scene

  def __post_init__(self):
    if self.color not in world.COLORS:
      raise InstructionError(f'{_EXPECTED_COLOR}, not {self.color!r}')
    if not isinstance(self.blocks, Shape | Scene):
      raise InstructionError(
          f'Shape(...) or SCENE inside Color, not {self.blocks}')

  def __str__(self) -> str:
    return f"Color('{self.color}', {self.blocks})"

  @property
  def tree(self) -> Tree:
    if isinstance(self.blocks, Scene):
      return (self.color,)
    return (self.color, self.blocks.tree)


Object = Shape | Color
Operand = Agent | Object | Scene


_INSTRUCTIONS: dict[str, type['Instruction']] = {}  # By their words.


@dataclasses.dataclass(frozen=True)
class Instruction(abc.ABC):
  """The base class of all instructions; use its subclasses.

  Attributes:
    left: The first operand.
    right: The second operand.

  Raises:
    InstructionError: The instruction is not in the grammar.
  """
  left: Operand
  right: Operand

  # A class that sets these is the base of a task's words.
  task: ClassVar[str]  # The task's name in `tasks.TASKS`.
  # What messages call one of its words, such as 'a relation'.
  noun: ClassVar[str] = 'an instruction'

  def __init_subclass__(cls, **kwargs):
    super().__init_subclass__(**kwargs)
    if 'task' in vars(cls) or not hasattr(cls, 'task'):
      return  # Not a word.
    other = _INSTRUCTIONS.setdefault(cls.__name__, cls)
    if other.task != cls.task:
      raise TypeError(f'The tasks {other.task!r} and {cls.task!r} both have '
                      f'the word {cls.__name__}: rename one of them.')
    _INSTRUCTIONS[cls.__name__] = cls

  def __post_init__(self):
    if not hasattr(self, 'task'):
      raise TypeError(f'{type(self).__name__} has no task, and cannot be '
                      'built: use a word such as NorthFrom or Square.')
    for expected in (self.left_problem(self.left),
                     self.right_problem(self.left, self.right)):
      if expected is not None:
        raise InstructionError(
            f'{expected} in {type(self).__name__}({self.left}, {self.right})')

  def __str__(self) -> str:
    return f'{type(self).__name__}({self.left}, {self.right})'

  @property
  def tree(self) -> Tree:
    """The tokens as a nested tuple, without Color, Shape and SCENE.

    Each token that remains is a module of section 3.1. Example: ('NorthFrom',
    ('red', ('circle',)), ('AGENT',)).
    """
    return (type(self).__name__, self.left.tree, self.right.tree)

  @property
  def is_go_to(self) -> bool:
    """Whether the agent's own position decides if the instruction holds."""
    return False

  @property
  def twin(self) -> 'Instruction | None':
    """WestFrom(b, a) for EastFrom(a, b); None if no other means the same."""
    return None

  @property
  def canonical(self) -> 'Instruction':
    """This instruction or its twin: the same one for both."""
    return self

  @classmethod
  @abc.abstractmethod
  def left_problem(cls, left: Operand) -> str | None:
    """Returns what is expected as first operand, or None if `left` is it."""

  @classmethod
  @abc.abstractmethod
  def right_problem(cls, left: Operand, right: Operand) -> str | None:
    """Returns what is expected after `left`, or None if `right` is it."""


class Relation(Instruction):
  """A GridLU-Relations instruction: two things are immediately adjacent."""
  task = 'relations'
  noun = 'a relation'

  @property
  def is_go_to(self) -> bool:
    return AGENT in (self.left, self.right)

  @property
  def twin(self) -> 'Relation':
    return _OPPOSITES[type(self)](self.right, self.left)

  @property
  def canonical(self) -> 'Relation':
    # NorthFrom, WestFrom, and SameLocation with AGENT on the left.
    if isinstance(self, SouthFrom | EastFrom) or (
        isinstance(self, SameLocation) and self.right == AGENT):
      return self.twin
    return self

  @classmethod
  def left_problem(cls, left):
    if isinstance(left, Agent | Shape | Color):
      return None
    return f'AGENT or {_EXPECTED_OBJECT}'

  @classmethod
  def right_problem(cls, left, right):
    if isinstance(left, Agent):
      if isinstance(right, Shape | Color):
        return None
      return f'{_EXPECTED_OBJECT} beside AGENT'
    if isinstance(right, Agent):
      return None
    if not isinstance(right, Shape | Color):
      return f'AGENT or {_EXPECTED_OBJECT}'
    return f'an object other than {left}' if right == left else None


class NorthFrom(Relation):
  """The left operand is in the cell directly above the right one's."""


class SouthFrom(Relation):
  """The left operand is in the cell directly below the right one's."""


class EastFrom(Relation):
  """The left operand is in the cell directly right of the right one's."""


class WestFrom(Relation):
  """The left operand is in the cell directly left of the right one's."""


class SameLocation(Relation):
  """The agent is in the object's cell."""

  @classmethod
  def right_problem(cls, left, right):
    if isinstance(left, Shape | Color) and not isinstance(right, Agent):
      return 'AGENT (SameLocation relates an object to AGENT alone)'
    return super().right_problem(left, right)


class Arrangement(Instruction):
  """A GridLU-Arrangements instruction: four blocks in a form (figure 3)."""
  task = 'arrangements'
  noun = 'an arrangement'

  @classmethod
  def left_problem(cls, left):
    return None if isinstance(left, Agent) else 'AGENT'

  @classmethod
  def right_problem(cls, left, right):
    if isinstance(right, Scene):
      return None
    if isinstance(right, Color) and isinstance(right.blocks, Scene):
      return None
    return 'SCENE or Color(..., SCENE)'


class Square(Arrangement):
  """A 2x2 block."""


class Line(Arrangement):
  """Four in a row or a column."""


class Dline(Arrangement):
  """Four on a diagonal."""


class Triangle(Arrangement):
  """Three in a row and one beside the middle one."""


class Circle(Arrangement):
  """The four neighbours of a cell."""


class Eel(Arrangement):
  """An L."""


class Snake(Arrangement):
  """An S or a Z."""


class Connected(Arrangement):
  """A Square, Line, Triangle, Eel or Snake."""


class Disconnected(Arrangement):
  """A Dline or a Circle."""


_RELATIONS = (NorthFrom, SouthFrom, EastFrom, WestFrom, SameLocation)
_ARRANGEMENTS = (Square, Line, Dline, Triangle, Circle, Eel, Snake, Connected,
             Disconnected)

_OPPOSITES: dict[type, type[Relation]] = {
    NorthFrom: SouthFrom, SouthFrom: NorthFrom, EastFrom: WestFrom,
    WestFrom: EastFrom, SameLocation: SameLocation}

RELATIONS = tuple(cls.__name__ for cls in _RELATIONS)
ARRANGEMENTS = tuple(cls.__name__ for cls in _ARRANGEMENTS)

# The tokens that occur in each task's trees.
RELATIONS_TOKENS = world.COLORS + world.SHAPES + RELATIONS + ('AGENT',)
ARRANGEMENTS_TOKENS = ARRANGEMENTS + world.COLORS + ('AGENT',)


@functools.cache
def objects() -> tuple[Object, ...]:
  """Returns the 3 shapes, the 3 colours and the 9 kinds, colour by colour."""
  shapes = tuple(Shape(shape, SCENE) for shape in world.SHAPES)
  colors = tuple(Color(color, SCENE) for color in world.COLORS)
  kinds = tuple(Color(color, shape) for color in world.COLORS
                for shape in shapes)
  return shapes + colors + kinds


@functools.cache
def relations_instructions() -> tuple[Instruction, ...]:
  """Returns all 990 GridLU-Relations instructions.

  First the 150 go-to instructions, relation by relation: AGENT on the left of
  each of `objects()`, then on the right. Then the 840 bring-to instructions,
  relation by relation: all ordered pairs of different objects.
  """
  go_to: list[Instruction] = []
  for relation in _RELATIONS:
    go_to += [relation(AGENT, thing) for thing in objects()]
    go_to += [relation(thing, AGENT) for thing in objects()]
  bring_to: list[Instruction] = []
  for relation in _RELATIONS[:-1]:
    bring_to += [relation(left, right) for left, right in
                 itertools.permutations(objects(), 2)]
  return tuple(go_to + bring_to)


@functools.cache
def arrangements_instructions() -> tuple[Instruction, ...]:
  """Returns all 36 instructions: each word with SCENE, then each colour."""
  targets = (SCENE,) + tuple(Color(color, SCENE) for color in world.COLORS)
  return tuple(word(AGENT, target) for word in _ARRANGEMENTS
               for target in targets)


def chosen(instructions: Sequence[Instruction] | None,
           every: Sequence[Instruction]) -> Sequence[Instruction]:
  """Returns the instructions to draw from: `every` if none are given."""
  if instructions is None:
    return every
  if len(instructions) == 0:
    raise ValueError('instructions is empty: expected at least one, or None '
                     f'for all {len(every)}.')
  return instructions


_QUOTES = tuple('\'"`\u2018\u2019\u201c\u201d\u201e\u00b4')
_TOKEN = re.compile(r'\s*([A-Za-z]+|\S|\Z)')


class _Parser:
  """Recursive descent over one text, no deeper than the grammar.

  Attributes:
    token: The next token, '' at the end of the text.
    position: Its position.
  """

  def __init__(self, text: str):
    self._text = text
    self._end = 0
    self._advance()

  def _advance(self) -> None:
    match = _TOKEN.match(self._text, self._end)
    assert match is not None
    self.token, self.position, self._end = match[1], match.start(1), match.end()

  def read(self, tokens: Collection[str], expected: str) -> str:
    """Reads one of some tokens; fails with `expected` at anything else."""
    token = self.token
    if token not in tokens:
      raise InstructionError(expected, self._text, self.position)
    self._advance()
    return token

  def symbol(self, symbol: str) -> None:
    """Reads a bracket or a comma."""
    self.read([symbol], repr(symbol))

  def _attribute(self, words: Sequence[str], expected: str) -> str:
    """Reads a colour or a shape, with or without quotes."""
    quoted = self.token in _QUOTES
    if quoted:
      self._advance()
    # The paper's text says `square` where its grammar says `rect`.
    if self.token == 'square':
      self.token = 'rect'
    word = self.read(words, expected)
    if quoted:
      self.read(_QUOTES, 'a closing quote')
    return word

  def _term(self, names: Sequence[str], expected: str) -> Any:
    name = self.read(names, expected)
    if name == 'SCENE':
      return SCENE
    if name == 'AGENT':
      return AGENT
    self.symbol('(')
    term: Object
    if name == 'Shape':
      shape = self._attribute(world.SHAPES, _EXPECTED_SHAPE)
      self.symbol(',')
      term = Shape(shape, self._term(['SCENE'], 'SCENE'))
    else:
      color = self._attribute(world.COLORS, _EXPECTED_COLOR)
      self.symbol(',')
      term = Color(
          color, self._term(['Shape', 'SCENE'], 'Shape(...) or SCENE'))
    self.symbol(')')
    return term

  def operand(self, problem: Callable[[Operand], str | None],
              expected: str) -> Operand:
    """Reads an operand.

    Args:
      problem: Of an operand, what the grammar expects if it is not allowed.
      expected: What is expected if there is no operand.
    """
    position = self.position
    operand = self._term(['SCENE', 'AGENT', 'Shape', 'Color'], expected)
    other = problem(operand)
    if other is not None:
      raise InstructionError(other, self._text, position)
    return operand


def _expected_word() -> str:
  """Lists all words by task, for a message."""
  words: dict[str, list[str]] = {}
  for word, cls in _INSTRUCTIONS.items():
    words.setdefault(cls.noun, []).append(word)
  return ' or '.join(f'{noun} ({_words(row)})' for noun, row in words.items())


def parse(text: str) -> Instruction:
  """Reads an instruction; the inverse of `str`.

  Spaces and line breaks may stand between any two tokens. Shapes and colours
  may be in any quotes or in none, and `square` means `rect`.

  Raises:
    InstructionError: The text is not an instruction. The message shows where
      and what was expected there.
  """
  if not isinstance(text, str):
    raise InstructionError(f'a string, not {type(text).__name__}: {text!r}')
  if len(text) > _LONGEST:
    raise InstructionError(
        f'at most {_LONGEST} characters, not {len(text)}: {text[:40]!r}...')
  parser = _Parser(text)
  cls = _INSTRUCTIONS[parser.read(_INSTRUCTIONS, _expected_word())]
  parser.symbol('(')
  # A rule says what it expects when it is asked for an operand that it does not
  # allow: SCENE, or the same one twice.
  left = parser.operand(
      cls.left_problem, cls.left_problem(SCENE) or _EXPECTED_OPERAND)
  parser.symbol(',')
  right = parser.operand(
      functools.partial(cls.right_problem, left),
      cls.right_problem(left, SCENE) or cls.right_problem(left, left) or
      _EXPECTED_OPERAND)
  parser.symbol(')')
  parser.read([''], 'the end of the instruction')
  return cls(left, right)


def checked(instruction: Instruction | str,
            name: str = 'instruction') -> Instruction:
  """Returns an instruction, parsed if it is a text; errors call it `name`."""
  if isinstance(instruction, str):
    return parse(instruction)
  if not isinstance(instruction, Instruction):
    raise ValueError(f'{name} is {instruction!r}: expected a '
                     'language.Instruction or its text.')
  return instruction


def checked_list(instructions: Iterable[Instruction | str]
                ) -> tuple[Instruction, ...]:
  """Returns a list of instructions, those that are texts parsed."""
  if isinstance(instructions, str) or not isinstance(instructions, Iterable):
    raise ValueError(f'instructions is {instructions!r}: expected a list of '
                     'instructions; for a single one, put it into one.')
  return tuple(
      checked(each, f'instructions[{i}]')
      for i, each in enumerate(instructions))
