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

`str` writes an instruction as the paper does, and `parse` is its inverse:
`NorthFrom(Color('red', Shape('circle', SCENE)), AGENT)`. Both `parse` and the
constructors raise `InstructionError` for what is not in the grammar.

To define the words of another task, derive a class from `Instruction` that sets
`task` and `noun` and implements `problem`, and from that one for each word.
"""

import abc
import ast
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import itertools
import re
from typing import Any, ClassVar

from gridlu import world

# Nested tuples of tokens, without Color, Shape and SCENE: ('NorthFrom', ('red',
# ('circle',)), ('AGENT',)). The tree of SCENE is ().
Tree = tuple

_LONGEST = 1000  # Characters of a text that `parse` reads.


class InstructionError(ValueError):
  """An instruction that is not in the language.

  `expected` says what was expected, and `operand` as which one, 0 or 1.
  """

  def __init__(self, expected: str, operand: int = 0, place: str = ''):
    self.expected = expected
    self.operand = operand
    super().__init__(f'Not an instruction: expected {expected}{place or "."}')


def _words(words: Sequence[str]) -> str:
  """Lists words for a message: 'red, green or blue'."""
  *others, last = words
  return f'{", ".join(others)} or {last}' if others else last


_EXPECTED_COLOR = f'a colour ({_words(world.COLORS)})'
_EXPECTED_SHAPE = f'a shape ({_words(world.SHAPES)})'
_EXPECTED_OBJECT = 'an object (Color(...) or Shape(...))'


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
      raise InstructionError(f'SCENE inside Shape, not {self.scene}', 1)

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
          f'Shape(...) or SCENE inside Color, not {self.blocks}', 1)

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
  """The base class of all instructions; use its subclasses."""
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
    if problem := self.problem():
      operand, expected = problem
      raise InstructionError(f'{expected} in {self}', operand)

  def __str__(self) -> str:
    return f'{type(self).__name__}({self.left}, {self.right})'

  @property
  def tree(self) -> Tree:
    """The tokens, each of which is a module of section 3.1 (see `Tree`)."""
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

  @abc.abstractmethod
  def problem(self) -> tuple[int, str] | None:
    """Returns which operand (0 or 1) is wrong and what is expected there."""


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

  def problem(self) -> tuple[int, str] | None:
    if not isinstance(self.left, Agent | Object):
      return 0, f'AGENT or {_EXPECTED_OBJECT}'
    if isinstance(self.left, Agent) and not isinstance(self.right, Object):
      return 1, f'{_EXPECTED_OBJECT} beside AGENT'
    if not isinstance(self.right, Agent | Object):
      return 1, f'AGENT or {_EXPECTED_OBJECT}'
    if self.right == self.left:
      return 1, f'an object other than {self.left}'
    return None


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

  def problem(self) -> tuple[int, str] | None:
    if isinstance(self.left, Object) and not isinstance(self.right, Agent):
      return 1, 'AGENT (SameLocation relates an object to AGENT alone)'
    return super().problem()


class Arrangement(Instruction):
  """A GridLU-Arrangements instruction: four blocks in a form (figure 3)."""
  task = 'arrangements'
  noun = 'an arrangement'

  def problem(self) -> tuple[int, str] | None:
    if not isinstance(self.left, Agent):
      return 0, 'AGENT'
    blocks = self.right.blocks if isinstance(self.right, Color) else self.right
    return None if blocks == SCENE else (1, 'SCENE or Color(..., SCENE)')


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
  """Returns all 990: 150 go-to instructions, then 840 bring-to ones.

  Both are relation by relation, the former with AGENT on the left of each of
  `objects()` and then on the right.
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


# The paper's text has several quotes, and one means any other.
_QUOTES = dict.fromkeys(map(ord, '"`\u2018\u2019\u201c\u201d\u201e\u00b4'), "'")
_TERMS = {'Shape': Shape, 'Color': Color}


def _expected_word() -> str:
  """Lists all words by task, for a message."""
  words: dict[str, list[str]] = {}
  for word, cls in _INSTRUCTIONS.items():
    words.setdefault(cls.noun, []).append(word)
  return ' or '.join(f'{noun} ({_words(row)})' for noun, row in words.items())


def parse(text: str) -> Instruction:
  """Reads an instruction; the inverse of `str`.

  Any quotes will do, or none, and `square` means `rect`, as in the paper's
  text. An `InstructionError` shows the place.
  """
  if not isinstance(text, str):
    raise InstructionError(f'a string, not {type(text).__name__}: {text!r}')
  if len(text) > _LONGEST:
    raise InstructionError(
        f'at most {_LONGEST} characters, not {len(text)}: {text[:40]!r}...')
  # Line breaks and tabs would move the caret away from its place.
  line = re.sub(r'\s', ' ', text)
  source = line.translate(_QUOTES).lstrip()
  start = len(line) - len(source)

  def error(expected: str, position: int) -> InstructionError:
    caret = ' ' * (start + position) + '^'
    return InstructionError(
        expected, place=f' at the caret:\n  {line}\n  {caret}')

  def build(node: ast.expr, classes: Mapping[str, type]) -> Any:
    """Returns what a part of the text means, or itself if it means nothing."""
    match node:
      case ast.Name('AGENT'):
        return AGENT
      case ast.Name('SCENE'):
        return SCENE
      case ast.Name(str(word)) | ast.Constant(str(word)):
        return 'rect' if word.strip() == 'square' else word.strip()
      case ast.Call(ast.Name(str(name)), arguments) if name in classes:
        if len(arguments) != 2:
          raise error(f'two operands in {name}(...)', node.col_offset)
        operands = [build(each, _TERMS) for each in arguments]
        try:
          return classes[name](*operands)
        except InstructionError as problem:
          raise error(problem.expected,
                      arguments[problem.operand].col_offset) from None
    return source[node.col_offset:node.end_col_offset]

  if unknown := re.search(r"[^A-Za-z0-9_ (),']", source):
    raise error('letters, quotes, brackets and commas', unknown.start())
  try:
    # The language is a part of Python's expressions.
    node = ast.parse(source, mode='eval').body
  except SyntaxError as problem:
    raise error(
        f"an instruction such as NorthFrom(AGENT, Color('red', SCENE)) "
        f'({problem.msg})',
        min(max(0, (problem.offset or 1) - 1), len(source))) from None
  except (MemoryError, RecursionError):
    raise error('fewer brackets', 0) from None
  instruction = build(node, _INSTRUCTIONS)
  if not isinstance(instruction, Instruction):
    raise error(_expected_word(), node.col_offset)
  return instruction


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


def chosen(instructions: Iterable[Instruction | str] | None,
           every: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
  """Returns the instructions to draw from: `every` if none are given."""
  if instructions is None:
    return every
  found = checked_list(instructions)
  if not found:
    raise ValueError('instructions is empty: expected at least one, or None '
                     f'for all {len(every)}.')
  return found
