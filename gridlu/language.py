"""GridLU's instruction language: a small typed tree and its surface form.

GridLU-Relations has the grammar of appendix F.1,

    <obj> ::= Color(<color>, <obj_part2>) | Shape(<shape>, SCENE)
    <obj_part2> ::= Shape(<shape>, SCENE) | SCENE
    <go_to_instruction> ::= <relation2>(AGENT, <obj>)
                          | <relation2>(<obj>, AGENT)
    <bring_to_instruction> ::= <relation1>(<obj>, <obj>)

where the operands of a bring-to instruction differ and SameLocation goes with
AGENT alone: 15 objects, 150 go-to and 840 bring-to instructions.
GridLU-Arrangements has `<word>(AGENT, SCENE)` and `<word>(AGENT,
Color(<color>, SCENE))`: 36 instructions.

An instruction is made of the classes below and `str` writes it as the paper
does:

    >>> str(NorthFrom(Color('red', Shape('circle', SCENE)), AGENT))
    "NorthFrom(Color('red', Shape('circle', SCENE)), AGENT)"

`parse` inverts that. An instruction that the grammar does not have cannot be
built: both ways raise `InstructionError`.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import itertools
import re
from typing import ClassVar

from gridlu import world

# The tokens of a tree, from the outermost in: ('NorthFrom', ('red',
# ('circle',)), ('AGENT',)). SCENE is ().
Tree = tuple


class InstructionError(ValueError):
  """An instruction that is not in the language.

  Attributes:
    expected: What was expected, as a phrase.
    text: The text that was parsed, or None if no text was.
    position: Where in `text` that was expected.
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


def _words(words: tuple[str, ...]) -> str:
  """Lists words for a message: 'red, green or blue'."""
  return f'{", ".join(words[:-1])} or {words[-1]}'


_EXPECTED_COLOR = f'a colour ({_words(world.COLORS)})'
_EXPECTED_SHAPE = f'a shape ({_words(world.SHAPES)})'
_EXPECTED_OBJECT = 'an object (Color(...) or Shape(...))'


@dataclasses.dataclass(frozen=True)
class Scene:
  """The whole board; `SCENE` is the one to use."""

  def __str__(self) -> str:
    return 'SCENE'

  @property
  def tree(self) -> Tree:
    """The operand's part of `Instruction.tree`."""
    return ()


@dataclasses.dataclass(frozen=True)
class Agent:
  """The agent; `AGENT` is the one to use."""

  def __str__(self) -> str:
    return 'AGENT'

  @property
  def tree(self) -> Tree:
    """The operand's part of `Instruction.tree`."""
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
    """The operand's part of `Instruction.tree`."""
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
    """The operand's part of `Instruction.tree`."""
    if isinstance(self.blocks, Scene):
      return (self.color,)
    return (self.color, self.blocks.tree)


Object = Shape | Color
Operand = Agent | Object | Scene


@dataclasses.dataclass(frozen=True)
class Instruction:
  """What every instruction has; use its subclasses.

  Attributes:
    left: The first operand.
    right: The second operand.

  Raises:
    InstructionError: The grammar has no such instruction.
  """
  left: Operand
  right: Operand

  task: ClassVar[str]  # 'relations' or 'arrangements'.

  def __post_init__(self):
    if not hasattr(self, 'task'):
      raise TypeError('Instruction itself cannot be built: use a subclass such '
                      'as NorthFrom or Square.')
    for expected in (self._left_problem(self.left),
                     self._right_problem(self.left, self.right)):
      if expected is not None:
        raise InstructionError(
            f'{expected} in {type(self).__name__}({self.left}, {self.right})')

  def __str__(self) -> str:
    return f'{type(self).__name__}({self.left}, {self.right})'

  @property
  def tree(self) -> Tree:
    """The tokens as a nested tuple, without Color, Shape and SCENE.

    These three mean nothing by themselves: what is left are the modules of
    section 3.1. Example: ('NorthFrom', ('red', ('circle',)), ('AGENT',)).
    """
    return (type(self).__name__, self.left.tree, self.right.tree)

  @property
  def is_go_to(self) -> bool:
    """Whether this is a go-to instruction (a relation that names AGENT)."""
    return self.task == 'relations' and AGENT in (self.left, self.right)

  @property
  def twin(self) -> 'Instruction | None':
    """The other instruction of the same meaning, if the language has one.

    That of EastFrom(a, b) is WestFrom(b, a).
    """
    return None

  @classmethod
  def _left_problem(cls, left: Operand) -> str | None:
    """Returns what is expected as first operand, or None if `left` is fine."""
    raise NotImplementedError

  @classmethod
  def _right_problem(cls, left: Operand, right: Operand) -> str | None:
    """Returns what is expected after `left`, or None if `right` is fine."""
    raise NotImplementedError


class Relation(Instruction):
  """A GridLU-Relations instruction: immediate adjacency of two things."""
  task = 'relations'

  @property
  def twin(self) -> 'Relation':
    return _OPPOSITES[type(self)](self.right, self.left)

  @classmethod
  def _left_problem(cls, left):
    if isinstance(left, Agent | Shape | Color):
      return None
    return f'AGENT or {_EXPECTED_OBJECT}'

  @classmethod
  def _right_problem(cls, left, right):
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
  def _right_problem(cls, left, right):
    if isinstance(left, Shape | Color) and not isinstance(right, Agent):
      return 'AGENT (SameLocation relates an object to AGENT alone)'
    return super()._right_problem(left, right)


class Arrangement(Instruction):
  """A GridLU-Arrangements instruction: four blocks in a form (figure 3)."""
  task = 'arrangements'

  @classmethod
  def _left_problem(cls, left):
    return None if isinstance(left, Agent) else 'AGENT'

  @classmethod
  def _right_problem(cls, left, right):
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
_CLASSES = {cls.__name__: cls for cls in _RELATIONS + _ARRANGEMENTS}

_OPPOSITES: dict[type, type[Relation]] = {
    NorthFrom: SouthFrom, SouthFrom: NorthFrom, EastFrom: WestFrom,
    WestFrom: EastFrom, SameLocation: SameLocation}

RELATIONS = tuple(cls.__name__ for cls in _RELATIONS)
ARRANGEMENTS = tuple(cls.__name__ for cls in _ARRANGEMENTS)

# Every token that occurs in a task's trees.
RELATIONS_TOKENS = world.COLORS + world.SHAPES + RELATIONS + ('AGENT',)
ARRANGEMENTS_TOKENS = ARRANGEMENTS + world.COLORS + ('AGENT',)


@functools.cache
def objects() -> tuple[Object, ...]:
  """Returns the 15 ways to describe a block.

  Returns:
    The 3 shapes, then the 3 colours, then the 9 kinds (colour by colour).
  """
  shapes = tuple(Shape(shape, SCENE) for shape in world.SHAPES)
  colors = tuple(Color(color, SCENE) for color in world.COLORS)
  kinds = tuple(Color(color, shape) for color in world.COLORS
                for shape in shapes)
  return shapes + colors + kinds


@functools.cache
def relations_instructions() -> tuple[Instruction, ...]:
  """Returns all 990 GridLU-Relations instructions.

  Returns:
    The 150 go-to instructions: relation by relation (in the order of
    `RELATIONS`), first the 15 with AGENT on the left, then the 15 with AGENT
    on the right, each in the order of `objects()`. Then the 840 bring-to
    instructions: relation by relation (without SameLocation), all pairs of
    different objects, the left one varying slowest.
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
  """Returns all 36 GridLU-Arrangements instructions.

  Returns:
    Word by word (in the order of `ARRANGEMENTS`): SCENE, then each colour.
  """
  targets = (SCENE,) + tuple(Color(color, SCENE) for color in world.COLORS)
  return tuple(word(AGENT, target) for word in _ARRANGEMENTS
               for target in targets)


def chosen(instructions: Sequence[Instruction] | None,
           every: Sequence[Instruction]) -> Sequence[Instruction]:
  """Returns the instructions to choose among.

  Args:
    instructions: Some of a task's instructions, or None for all.
    every: The task's instructions.

  Raises:
    ValueError: `instructions` is empty.
  """
  if instructions is None:
    return every
  if len(instructions) == 0:
    raise ValueError('instructions is empty: expected at least one, or None '
                     f'for all {len(every)}.')
  return instructions


_QUOTES = '\'"`\u2018\u2019\u201c\u201d\u201e\u00b4'
_TOKEN = re.compile(rf'\s*([A-Za-z]+|[(),]|[{_QUOTES}]|\S|\Z)')


def _tokens(text: str) -> Iterator[tuple[str, int]]:
  """Yields each token and its place; at the end ('', place) for ever."""
  position = 0
  while True:
    match = _TOKEN.match(text, position)
    assert match is not None
    position = match.end()
    yield match.group(1), match.start(1)


class _Parser:
  """Recursive descent over one text."""

  def __init__(self, text: str):
    self._text = text
    self._rest = _tokens(text)
    self._advance()

  def _advance(self) -> None:
    self._token, self._position = next(self._rest)

  def _fail(self, expected: str, position: int | None = None):
    raise InstructionError(
        expected, self._text,
        self._position if position is None else position)

  def _symbol(self, symbol: str) -> None:
    if self._token != symbol:
      self._fail(f'{symbol!r}')
    self._advance()

  def _word(self, words: tuple[str, ...], expected: str,
            synonyms: dict[str, str] | None = None) -> str:
    """Reads one of `words`, in quotes or bare."""
    quoted = self._token != '' and self._token in _QUOTES
    if quoted:
      self._advance()
    word = (synonyms or {}).get(self._token, self._token)
    if word not in words:
      self._fail(expected)
    self._advance()
    if quoted:
      if self._token == '' or self._token not in _QUOTES:
        self._fail('a closing quote')
      self._advance()
    return word

  def _operand(self, expected: str) -> Operand:
    name = self._token
    if name == 'SCENE':
      self._advance()
      return SCENE
    if name == 'AGENT':
      self._advance()
      return AGENT
    if name == 'Shape':
      self._advance()
      self._symbol('(')
      shape = self._word(world.SHAPES, _EXPECTED_SHAPE, {'square': 'rect'})
      self._symbol(',')
      self._symbol_scene('SCENE')
      self._symbol(')')
      return Shape(shape, SCENE)
    if name == 'Color':
      self._advance()
      self._symbol('(')
      color = self._word(world.COLORS, _EXPECTED_COLOR)
      self._symbol(',')
      blocks: Shape | Scene = SCENE
      if self._token == 'Shape':
        inner = self._operand('')
        assert isinstance(inner, Shape)
        blocks = inner
      else:
        self._symbol_scene('Shape(...) or SCENE')
      self._symbol(')')
      return Color(color, blocks)
    self._fail(expected)
    raise AssertionError('unreachable')

  def _symbol_scene(self, expected: str) -> None:
    if self._token != 'SCENE':
      self._fail(expected)
    self._advance()

  def instruction(self) -> Instruction:
    """Reads the whole text."""
    # pylint: disable=protected-access
    cls = _CLASSES.get(self._token)
    if cls is None:
      self._fail(f'a relation ({_words(RELATIONS)}) or an arrangement '
                 f'({_words(ARRANGEMENTS)})')
      raise AssertionError('unreachable')
    self._advance()
    self._symbol('(')
    position = self._position
    # SCENE is never a first operand: its rule says what is expected there.
    left = self._operand(cls._left_problem(SCENE) or '')
    problem = cls._left_problem(left)
    if problem is not None:
      self._fail(problem, position)
    self._symbol(',')
    position = self._position
    # Likewise a copy of `left` is never a second operand.
    right = self._operand(
        cls._right_problem(left, SCENE) or cls._right_problem(left, left) or '')
    problem = cls._right_problem(left, right)
    if problem is not None:
      self._fail(problem, position)
    self._symbol(')')
    if self._token:
      self._fail('the end of the instruction')
    return cls(left, right)


def parse(text: str) -> Instruction:
  """Reads an instruction; inverts `str`.

  Args:
    text: The instruction. Spaces and line breaks may stand anywhere between
      words, shapes and colours may be in any quotes or in none, and `square`
      (which the paper's text uses) is taken for `rect`.

  Returns:
    The instruction.

  Raises:
    InstructionError: The text is not an instruction. Its message shows the
      place and what was expected there.
  """
  if not isinstance(text, str):
    raise InstructionError(f'a string, not {type(text).__name__}: {text!r}')
  return _Parser(text).instruction()
