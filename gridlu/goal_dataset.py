r"""Goal examples: pairs of an instruction and a goal state.

This writes a file of them for GridLU:

    python -m gridlu.goal_dataset --task=relations --size=131072 --seed=0 \
        --output=goals.npz

For another world, a file has instructions as strings, and images of states
that satisfy them:

    goal_dataset.save('goals.npz', goal_dataset.GoalDataset(
        instructions=('open the door', 'close the door'),
        instruction=np.array([0, 0, 1]),  # Indices into `instructions`.
        images=np.stack([open_1, open_2, closed])))

The file is a NumPy archive with exactly these arrays:

    format        str []: 'gridlu.goal_dataset'
    version       int []: 1
    instructions  str [M]: the instructions, without duplicates; each has at
                  most 1,000 characters, and no control characters. M is at most
                  N, or 10,000 if N is less, because a part of a larger data set
                  may have all its instructions
    instruction   int [N]: each example's index in `instructions`, 0 to M - 1
    images        uint8 [N, H, W, 3]: the goal states, 0 to 255

Files of GridLU hold `states` instead of `images`: uint8 [N, 27], as
`world.pack` makes them. A state takes 27 bytes, an image 9,408.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
import dataclasses
import numbers
import os
import time
from typing import Any
import unicodedata

from absl import flags
import numpy as np

from gridlu import archives
from gridlu import files
from gridlu import flagfiles
from gridlu import language
from gridlu import program
from gridlu import schema
from gridlu import tasks
from gridlu import world

FORMAT = 'gridlu.goal_dataset'
VERSION = 1
LONGEST = 1000  # The most characters of an instruction.
# A file may have so many instructions, even if it has fewer examples.
_SPARE_INSTRUCTIONS = 10_000
# Unicode's categories of what no text has: control characters, surrogates.
_CONTROLS = frozenset({'Cc', 'Cs'})

# The shape of an example in each form; None stands for any length.
_MOST = 10**8  # `generate` draws at most so many examples.
_EXAMPLE_SHAPES: dict[str, list[int | None]] = {
    'states': [world.PACKED_SIZE], 'images': [None, None, 3]}


def _check_index(index: np.ndarray | archives.Header) -> None:
  """Raises a ValueError unless an array has an index for each example."""
  if len(index.shape) != 1 or index.dtype.kind not in 'iu' or (
      not index.shape[0]):
    raise ValueError(
        f'instruction is {index.dtype} {list(index.shape)}: expected whole '
        'numbers [N], for one example or more')


def _array(values: Any, name: str) -> np.ndarray:
  """Returns values as an array, or raises a ValueError that names them."""
  try:
    return np.asarray(values)
  except ValueError as error:  # They are lists of different lengths.
    raise ValueError(f'{name} is no array ({error})') from error


def checked_instruction(text: Any) -> str:
  """Returns an instruction in Unicode's normal form NFC.

  Raises:
    ValueError: The text is no instruction. The message begins with the text.
  """
  if not isinstance(text, str) or not text.strip() or (
      len(text) > LONGEST) or not _CONTROLS.isdisjoint(
          map(unicodedata.category, text)):
    raise ValueError(
        f'{text!r:.100}: expected a string of 1 to {LONGEST:,} characters that '
        'has no control characters')
  return unicodedata.normalize('NFC', text)


@dataclasses.dataclass(frozen=True, eq=False)
class GoalDataset:
  """N pairs of instruction and goal state.

  Values that are not as the comments say raise a ValueError. Instructions get
  Unicode's normal form NFC, so that texts with the same letters are equal.
  """
  instructions: tuple[str, ...]  # [M], different ones.
  instruction: np.ndarray  # int32 [N], each example's index in `instructions`.
  # Exactly one of the two: packed GridLU states (see `world.pack`), uint8
  # [N, 27], or images, uint8 [N, H, W, 3].
  states: np.ndarray | None = None
  images: np.ndarray | None = None

  def __post_init__(self):
    if isinstance(self.instructions, str | bytes | Set | Mapping) or (
        not isinstance(self.instructions, Iterable)):
      raise ValueError(f'instructions is {self.instructions!r:.100}: expected '
                       'a tuple of strings')
    object.__setattr__(self, 'instructions', tuple(self.instructions))
    seen: dict[str, None] = {}  # It keeps the order; None means nothing.
    for i, text in enumerate(self.instructions):
      try:
        text = checked_instruction(text)
      except ValueError as error:
        raise ValueError(f'instructions[{i}] is {error}') from None
      if text in seen:
        raise ValueError(
            f'instructions has {text!r} more than once: expected different '
            'ones. np.unique(strings, return_inverse=True) makes instructions '
            'and instruction out of one string for each example')
      seen[text] = None
    object.__setattr__(self, 'instructions', tuple(seen))
    index = _array(self.instruction, 'instruction')
    _check_index(index)
    if (self.states is None) == (self.images is None):
      raise ValueError(
          f'{"neither" if self.states is None else "both"} of states and '
          'images given: expected one of them')
    name = 'images' if self.states is None else 'states'
    goals = archives.expect({name: _array(getattr(self, name), name)}, name,
                            np.uint8, [len(index), *_EXAMPLE_SHAPES[name]])
    object.__setattr__(self, name, goals)
    if self.states is not None:
      wrong = np.argwhere(self.states >= np.array(world.PACKED_LIMITS))
      if wrong.size:
        i, j = wrong[0]
        raise ValueError(f'states[{i}, {j}] is {self.states[i, j]}: expected '
                         f'less than {world.PACKED_LIMITS[j]}, as '
                         'world.pack makes them')
    bad = np.flatnonzero((index < 0) | (index >= len(self.instructions)))
    if bad.size:
      raise ValueError(
          f'instruction[{bad[0]}] is {index[bad[0]]}: expected an index into '
          f'the {len(self.instructions)} instructions, counted from 0')
    object.__setattr__(self, 'instruction', index.astype(np.int32))

  def __len__(self) -> int:
    return len(self.instruction)

  @property
  def observations(self) -> np.ndarray:
    """The goal states: `states` or `images`, whichever there are."""
    observations = self.images if self.states is None else self.states
    assert observations is not None
    return observations


def save(path: str | os.PathLike, dataset: GoalDataset) -> None:
  """Writes a data set to a file.

  An existing file stays as it is until the new one is complete.

  Raises:
    ValueError: It has more instructions than a file may have.
    OSError: The file cannot be written.
  """
  _check_count(len(dataset.instructions), len(dataset))
  arrays = {name: value for name, value in vars(dataset).items()
            if value is not None}
  arrays['instructions'] = np.array(dataset.instructions, np.str_)
  with files.replacing(program.path_text('path', path), 'wb') as file:
    np.savez_compressed(file, allow_pickle=False, format=np.array(FORMAT),
                        version=np.array(VERSION), **arrays)


def _check_count(texts: int, count: int) -> None:
  """Raises a ValueError for too many instructions of `count` examples."""
  if texts > max(count, _SPARE_INSTRUCTIONS):
    raise ValueError(
        f'instructions has {texts:,} texts for {count:,} examples: expected at '
        f'most {max(count, _SPARE_INSTRUCTIONS):,}. Leave out those without an '
        'example')


def _check_headers(headers: archives.Headers) -> None:
  """Raises ValueError unless a file has the arrays of a data set."""
  required = {'format', 'version', 'instructions', 'instruction'}
  if not required <= set(headers) <= required | {'states', 'images'}:
    found = program.printable(', '.join(sorted(headers)))
    raise ValueError(
        f'it has {found[:200] or "nothing"}: expected '
        f'{", ".join(sorted(required))} and either states or images')
  for name, kinds, dimensions in (
      ('format', 'U', 0), ('version', 'iu', 0), ('instructions', 'U', 1)):
    header = headers[name]
    if header.dtype.kind not in kinds or len(header.shape) != dimensions:
      raise ValueError(
          f'{name} is {header.dtype} {list(header.shape)}: expected '
          f'{"numbers" if kinds == "iu" else "strings"} '
          f'{["M"] if dimensions else []}')
    if header.dtype.itemsize > 4 * LONGEST:  # A character has four bytes.
      raise ValueError(f'{name} has {header.dtype.itemsize // 4:,} characters: '
                       f'expected at most {LONGEST:,}')
  _check_index(headers['instruction'])
  texts, = headers['instructions'].shape
  count, = headers['instruction'].shape
  _check_count(texts, count)
  for name in _EXAMPLE_SHAPES.keys() & headers.keys():
    archives.expect(headers, name, np.uint8,
                    [count, *_EXAMPLE_SHAPES[name]])


def _from_arrays(arrays: dict[str, np.ndarray]) -> GoalDataset:
  """Makes a data set of a file's arrays."""
  found = str(arrays['format']), str(arrays['version'])
  if found != (FORMAT, str(VERSION)):
    raise ValueError(
        f'format is {found[0]!r} and version is {found[1]}: this program reads '
        f'{FORMAT!r} of version {VERSION}')
  return GoalDataset(
      arrays['instructions'].tolist(), arrays['instruction'],
      arrays.get('states'), arrays.get('images'))


def load(path: str | os.PathLike,
         shape: Sequence[int] | None = None) -> GoalDataset:
  """Reads a data set, whose goal states must have a shape if it is given.

  Raises:
    UserError: The file cannot be read, or it is not in the format.
  """
  path = program.path_text('path', path)

  def check(headers: archives.Headers) -> None:
    _check_headers(headers)
    for name in _EXAMPLE_SHAPES.keys() & headers.keys():
      found = headers[name].shape[1:]
      if shape is None or found == tuple(shape):
        continue
      raise program.UserError(
          f'{path}: a goal example has the shape {list(found)}; '
          f'this world needs uint8 {list(shape)}. Write the file again with '
          'what this world observes.')

  try:
    with files.open_regular(path) as file:
      return _from_arrays(archives.load(file, check))
  except FileNotFoundError as error:
    raise program.UserError(
        f'{path}: there is no such file. "python -m gridlu.goal_dataset '
        f'--output={path}" makes one of GridLU; gridlu.goal_dataset.save and '
        'agile_tf.picture_goals write those of another world.') from error
  except (OSError, MemoryError) as error:
    raise program.UserError(
        f'{path}: the system cannot read it '
        f'({str(error) or type(error).__name__}); the file itself may be whole.'
    ) from error
  except program.UserError:
    raise
  except ValueError as error:
    raise program.UserError(
        f'{path}: not a whole file of goal examples ({error}). '
        'gridlu/goal_dataset.py says what it has to contain.') from error


def generate(
    task: str, count: int, seed: int,
    instructions: Sequence[str | language.Instruction] | None = None,
    carrying: float = 0.0, distractors: tuple[int, int] | None = None
) -> GoalDataset:
  """Draws a data set of packed GridLU goal states.

  Its `instructions` are those that were drawn at least once. Relations needs
  about 131,072 examples (figure 7); the paper uses 100,000 for Arrangements
  (section 3.4).

  In some goal states the agent is on a block. `carrying` is the share of these
  in which it carries that block. In the paper's Arrangements it never does; for
  Relations the paper does not say. The share must be 0 in the task 'put_down',
  where a block does not count before the agent has put it down.

  `distractors` are the fewest and the most distractors of a state, and each
  number is equally likely. With None there are as many as the task has. A task
  of Relations takes up to 8 of them, and Arrangements up to 21.
  """
  found = tasks.find(task)
  schema.count(count, 'count')
  if count > _MOST:
    raise ValueError(f'count is {count:.3g}: expected at most {_MOST:,}.')
  if not isinstance(carrying, numbers.Real) or not 0 <= carrying <= 1:
    raise ValueError(
        f'carrying is {carrying!r:.100}: expected a share, 0 to 1.')
  if carrying and not found.carried_counts:
    raise ValueError(
        f'carrying is {carrying}: expected 0 in the task {task}, where a block '
        'that the agent carries does not count. Leave carrying out, or name '
        'another task.')
  parsed = tuple(dict.fromkeys(
      language.chosen(instructions, found.instructions())))
  try:
    rng = np.random.default_rng(seed)
  except (TypeError, ValueError):
    raise ValueError(f'seed is {seed!r:.100}: expected a whole number of at '
                     'least 0.') from None
  drawn = found.goal_states(rng, count, parsed, **(
      {} if distractors is None else {'distractors': distractors}))
  state = drawn.state
  if carrying:  # The ground truth of these tasks looks at positions only.
    row, column = state.agent[:, 0], state.agent[:, 1]
    lifted = rng.random(count) < carrying
    lifted &= state.blocks[np.arange(count), row, column] > 0
    state = state._replace(carrying=lifted)
  used, index = np.unique(drawn.instruction, return_inverse=True)
  return GoalDataset(tuple(str(parsed[i]) for i in used), index,
                     states=world.pack(state))


def violations(dataset: GoalDataset, task: str | None = None) -> int:
  """Counts the packed states that do not satisfy their instruction.

  `task` is a name in `tasks.TASKS`; its ground truth or checker decides. With
  None the words of the instructions determine the task: 'relations' or
  'arrangements'.

  Raises:
    ValueError: The goal states are images, which no ground truth can read.
  """
  if dataset.states is None:
    raise ValueError('dataset has images, and the ground truth reads packed '
                     'states: expected a data set with states.')
  found = tasks.find(task or language.parse(dataset.instructions[0]).task)
  parsed = language.chosen(dataset.instructions, found.instructions())
  return int(np.sum(~found.satisfied(
      found.encode(parsed)[dataset.instruction],
      world.unpack(dataset.states))))


def _define_flags() -> None:
  flags.DEFINE_enum(
      'task', 'relations', tuple(tasks.TASKS),
      'The task whose goal states to draw.')
  flags.DEFINE_integer(
      'size', 131072, 'How many pairs of instruction and goal state to draw. '
      'The default suffices for the best performance (figure 7).',
      lower_bound=1, upper_bound=_MOST)
  flags.DEFINE_integer(
      'seed', 0, 'Determines the pairs: the same seed gives the same file.',
      lower_bound=0, upper_bound=2**63 - 1)
  flags.DEFINE_float(
      'carrying', 0.0, 'In this share of the goal states where the agent is on '
      'a block, it carries that block. Not for --task=put_down.',
      lower_bound=0, upper_bound=1)
  program.define_path(
      'output', None, 'The file to write, such as goals.npz. It must not '
      'exist yet.', required=True)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Draws goal states and saves them."""
  values = flags.FLAGS
  output = values.output
  files.check_new_output('output', output)
  start = time.monotonic()
  try:
    dataset = generate(
        values.task, values.size, values.seed, carrying=values.carrying)
    save(output, dataset)
  except (ValueError, OSError, MemoryError) as error:
    raise program.UserError(f'{output} was not written: {error}') from error
  print(program.printable(
      f'{output}: {len(dataset):,} goal states for '
      f'{len(dataset.instructions)} instructions, '
      f'{os.path.getsize(output) / 1e6:.1f} MB, '
      f'{time.monotonic() - start:.1f} s'))


if __name__ == '__main__':
  main()
