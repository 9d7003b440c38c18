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
`task`, `noun` and `words` and implements `problem`.
"""

import abc
import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import itertools
import re
from typing import Any, ClassVar

from gridlu import world

# Nested tuples of tokens, without Color, Shape and SCENE: ('NorthFrom', ('red',
# ('circle',)), ('AGENT',)). The tree of SCENE is ().
Tree = tuple

_LONGEST = 1000  # The most characters that `parse` reads.


class InstructionError(ValueError):
  """An instruction that is not in the language.

  Attributes:
    expected: What was expected.
    operand: The operand in which it was expected: 0, the left one, or 1.
  """

  def __init__(self, expected: str, operand: int = 0, place: str = ''):
    """Makes an error whose message ends with `place`, or else with a dot."""
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
class Agent:
  """The agent. Use the instance `AGENT`."""
  tree: ClassVar[Tree] = ('AGENT',)

  def __str__(self) -> str:
    return 'AGENT'


@dataclasses.dataclass(frozen=True)
class Blocks:
  """The blocks of a colour and a shape, where None stands for any.

  An object of the grammar has at least one of them; `SCENE` has none.
  """
  color: str | None = None
  shape: str | None = None

  def __post_init__(self):
    if self.color not in (None, *world.COLORS):
      raise InstructionError(f'{_EXPECTED_COLOR}, not {self.color!r}')
    if self.shape not in (None, *world.SHAPES):
      raise InstructionError(f'{_EXPECTED_SHAPE}, not {self.shape!r}')

  def __str__(self) -> str:
    text = f"Shape('{self.shape}', SCENE)" if self.shape else 'SCENE'
    return f"Color('{self.color}', {text})" if self.color else text

  def fits(self, code: int) -> bool:
    """Returns whether a cell holds such a block, by its code in `State`."""
    shape, color = world.shape_and_color(code)
    return (code > 0 and self.shape in (None, shape) and
            self.color in (None, color))

  @property
  def tree(self) -> Tree:
    shape = (self.shape,) if self.shape else ()
    if not self.color:
      return shape
    return (self.color, shape) if shape else (self.color,)


AGENT = Agent()
SCENE = Blocks()
Operand = Agent | Blocks


# The class of the instructions that begin with a word.
_CLASS_OF_WORD: dict[str, type['Instruction']] = {}


@dataclasses.dataclass(frozen=True)
class Instruction(abc.ABC):
  """The base class of all instructions; use its subclasses."""
  word: str
  left: Operand
  right: Operand

  task: ClassVar[str]  # The task's name in `tasks.TASKS`.
  noun: ClassVar[str]  # What messages call a word, such as 'a relation'.
  words: ClassVar[tuple[str, ...]]

  def __init_subclass__(cls, **kwargs):
    super().__init_subclass__(**kwargs)
    for word in cls.words:
      other = _CLASS_OF_WORD.get(word, cls)
      if other.task != cls.task:
        raise TypeError(f'The tasks {other.task!r} and {cls.task!r} both have '
                        f'the word {word}: rename one of them.')
      # A module that is reloaded defines the class of its task anew.
      _CLASS_OF_WORD[word] = cls

  def __post_init__(self):
    if self.word not in self.words:
      raise InstructionError(
          f'{self.noun} ({_words(self.words)}), not {self.word!r}')
    if problem := self.problem():
      operand, expected = problem
      raise InstructionError(f'{expected} in {self}', operand)

  def __str__(self) -> str:
    return f'{self.word}({self.left}, {self.right})'

  @property
  def tree(self) -> Tree:
    """The tokens, each of which is a module of section 3.1 (see `Tree`)."""
    return (self.word, self.left.tree, self.right.tree)

  @property
  def is_go_to(self) -> bool:
    """Whether the agent's own position decides if the instruction holds."""
    return False

  @property
  def canonical(self) -> 'Instruction':
    """One instruction for all that mean the same as this one."""
    return self

  @abc.abstractmethod
  def problem(self) -> tuple[int, str] | None:
    """Returns which operand (0 or 1) is wrong and what is expected there."""


class Relation(Instruction):
  """A GridLU-Relations instruction.

  The left operand is in the cell directly above (NorthFrom), below, right or
  left of the right operand's, or the agent is in the object's cell.
  """
  task = 'relations'
  noun = 'a relation'
  words = ('NorthFrom', 'SouthFrom', 'EastFrom', 'WestFrom', 'SameLocation')

  @property
  def is_go_to(self) -> bool:
    return AGENT in (self.left, self.right)

  @property
  def twin(self) -> 'Relation':
    """The other instruction that means the same.

    It is WestFrom(b, a) for EastFrom(a, b).
    """
    return Relation(_OPPOSITES[self.word], self.right, self.left)

  @property
  def canonical(self) -> 'Relation':
    # Of two twins it is the one that begins with NorthFrom, with WestFrom, or
    # with `SameLocation(AGENT`.
    turned = self.word in ('SouthFrom', 'EastFrom') or (
        self.word == 'SameLocation' and self.right == AGENT)
    return self.twin if turned else self

  def problem(self) -> tuple[int, str] | None:
    left_is_object, right_is_object = (
        isinstance(operand, Blocks) and operand != SCENE
        for operand in (self.left, self.right))
    if self.left != AGENT and not left_is_object:
      return 0, f'AGENT or {_EXPECTED_OBJECT}'
    if self.left == AGENT and not right_is_object:
      return 1, f'{_EXPECTED_OBJECT} beside AGENT'
    if (self.word == 'SameLocation' and left_is_object and
        self.right != AGENT):
      return 1, 'AGENT (SameLocation relates an object to AGENT alone)'
    if self.right != AGENT and not right_is_object:
      return 1, f'AGENT or {_EXPECTED_OBJECT}'
    if self.right == self.left:
      return 1, f'an object other than {self.left}'
    return None


class Arrangement(Instruction):
  """A GridLU-Arrangements instruction: four blocks in a form (figure 3)."""
  task = 'arrangements'
  noun = 'an arrangement'
  words = ('Square', 'Line', 'Dline', 'Triangle', 'Circle', 'Eel', 'Snake',
           'Connected', 'Disconnected')

  def problem(self) -> tuple[int, str] | None:
    if self.left != AGENT:
      return 0, 'AGENT'
    if not isinstance(self.right, Blocks) or self.right.shape:
      return 1, 'SCENE or Color(..., SCENE)'
    return None


_OPPOSITES = {'NorthFrom': 'SouthFrom', 'SouthFrom': 'NorthFrom',
              'EastFrom': 'WestFrom', 'WestFrom': 'EastFrom',
              'SameLocation': 'SameLocation'}

# The tokens that occur in each task's trees.
RELATIONS_TOKENS = world.COLORS + world.SHAPES + Relation.words + ('AGENT',)
ARRANGEMENTS_TOKENS = Arrangement.words + world.COLORS + ('AGENT',)


@functools.cache
def relations_instructions() -> tuple[Instruction, ...]:
  """Returns all 990: 150 go-to instructions, then 840 bring-to ones.

  Both are relation by relation. The go-to instructions of a relation begin with
  the 15 that have AGENT on the left; those with AGENT on the right follow. The
  15 objects are the shapes, the colours, and all pairs of a colour and a shape,
  colour by colour.
  """
  agent: list[Operand] = [AGENT]
  objects: list[Operand] = [
      *(Blocks(shape=shape) for shape in world.SHAPES),
      *(Blocks(color) for color in world.COLORS),
      *itertools.starmap(Blocks, itertools.product(world.COLORS, world.SHAPES))]
  go_to = [*itertools.product(agent, objects),
           *itertools.product(objects, agent)]
  bring_to = [*itertools.permutations(objects, 2)]
  # The last word, SameLocation, does not relate two objects.
  return tuple(
      Relation(word, *operands)
      for words, pairs in (
          (Relation.words, go_to), (Relation.words[:-1], bring_to))
      for word in words for operands in pairs)


@functools.cache
def arrangements_instructions() -> tuple[Instruction, ...]:
  """Returns all 36 instructions: each word with SCENE, then each colour."""
  return tuple(Arrangement(word, AGENT, Blocks(color))
               for word in Arrangement.words for color in (None, *world.COLORS))


# The paper's text has several kinds of quotes. All mean the same.
_QUOTES = dict.fromkeys(map(ord, '"`\u2018\u2019\u201c\u201d\u201e\u00b4'), "'")


def _of_shape(shape: Any, blocks: Any) -> Blocks:
  """Returns what Shape(shape, blocks) means."""
  found = Blocks(shape=shape)
  if blocks != SCENE:
    raise InstructionError(f'SCENE inside Shape, not {blocks}', 1)
  return found


def _of_color(color: Any, blocks: Any) -> Blocks:
  """Returns what Color(color, blocks) means."""
  found = Blocks(color)
  if not isinstance(blocks, Blocks) or blocks.color:
    raise InstructionError(
        f'Shape(...) or SCENE inside Color, not {blocks}', 1)
  return dataclasses.replace(found, shape=blocks.shape)


_TERMS = {'Shape': _of_shape, 'Color': _of_color}


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
  # Line breaks and tabs would move the caret away from its place. So would the
  # escapes of characters that could control a terminal.
  line = re.sub(r'\s', ' ', text)
  shown = ''.join(x if x.isprintable() else '\N{REPLACEMENT CHARACTER}'
                  for x in line)
  source = line.translate(_QUOTES).lstrip()
  start = len(line) - len(source)

  def error(expected: str, position: int) -> InstructionError:
    caret = ' ' * (start + position) + '^'
    return InstructionError(
        expected, place=f' at the caret:\n  {shown}\n  {caret}')

  def build(node: ast.expr, makers: Mapping[str, Callable[..., Any]]) -> Any:
    """Returns what a part of the text means, or its text if it has no meaning.

    `makers` has the functions that may stand before a bracket, by their names.
    """
    match node:
      case ast.Name(str(word)) | ast.Constant(str(word)):
        word = word.strip()
        return {'AGENT': AGENT, 'SCENE': SCENE, 'square': 'rect'}.get(
            word, word)
      case ast.Call(ast.Name(str(name)), arguments) if name in makers:
        if len(arguments) != 2:
          raise error(f'two operands in {name}(...)', node.col_offset)
        operands = [build(each, _TERMS) for each in arguments]
        try:
          return makers[name](*operands)
        except InstructionError as problem:
          raise error(problem.expected,
                      arguments[problem.operand].col_offset) from None
    return source[node.col_offset:node.end_col_offset]

  # Python would read u'red' and r'red' as strings too.
  if unknown := re.search(r"[^A-Za-z0-9_ (),']|\b[uUrR](?=')", source):
    raise error('letters, quotes, brackets and commas', unknown.start())
  try:
    # The language is a part of Python's expressions.
    node = ast.parse(source, mode='eval').body
  except SyntaxError as problem:
    raise error(
        "an instruction such as NorthFrom(AGENT, Color('red', SCENE)) "
        f'({problem.msg})',
        min(max(0, (problem.offset or 1) - 1), len(source))) from None
  except (MemoryError, RecursionError):
    raise error('fewer brackets', 0) from None
  instruction = build(node, {
      word: functools.partial(task_class, word)
      for word, task_class in _CLASS_OF_WORD.items()})
  if not isinstance(instruction, Instruction):
    expected = ' or '.join(dict.fromkeys(
        f'{each.noun} ({_words(each.words)})'
        for each in _CLASS_OF_WORD.values()))
    raise error(expected, node.col_offset)
  return instruction


def tree(text: str) -> tuple:
  """Returns the tree of tokens of an instruction's text."""
  return parse(text).tree


def _read(instruction: Any) -> Any:
  """Returns the instruction that a text or a mapping from JSON stands for.

  Anything else is returned as it is.
  """
  if isinstance(instruction, str):
    return parse(instruction)
  if isinstance(instruction, Mapping) and (
      instruction.keys() == {'word', 'left', 'right'} and
      instruction['word'] in _CLASS_OF_WORD):
    # Gymnasium saves instructions as JSON. AGENT has no attributes and becomes
    # {}; `Blocks`, also SCENE, become a mapping with a colour and a shape.
    left, right = (
        Blocks(**instruction[side]) if instruction[side] else AGENT
        for side in ('left', 'right'))
    word = instruction['word']
    return _CLASS_OF_WORD[word](word, left, right)
  return instruction


def checked(instructions: Iterable[Instruction | str]
           ) -> tuple[Instruction, ...]:
  """Returns instructions as a tuple, and parses those that are texts."""
  if isinstance(instructions, str) or not isinstance(instructions, Iterable):
    raise ValueError(f'instructions is {instructions!r}: expected a list of '
                     'instructions. Put a single one into a list.')
  found = tuple(map(_read, instructions))
  for i, each in enumerate(found):
    if not isinstance(each, Instruction):
      raise ValueError(f'instructions[{i}] is {each!r}: expected a '
                       'language.Instruction or its text.')
  return found


def chosen(instructions: Iterable[Instruction | str] | None,
           every: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
  """Returns the instructions to draw from: `every` if none are given."""
  if instructions is None:
    return every
  found = checked(instructions)
  if not found:
    raise ValueError('instructions is empty: expected at least one, or None '
                     f'for all {len(every)}.')
  for i, each in enumerate(found):
    if each.task != every[0].task:
      raise ValueError(
          f'instructions[{i}] is {str(each)!r}: expected an instruction of '
          f'{every[0].task}, such as {str(every[0])!r}.')
  return found
