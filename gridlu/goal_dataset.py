r"""Goal examples: pairs of an instruction and a goal state.

Generate one of GridLU with

    python -m gridlu.goal_dataset --task=relations --size=131072 --seed=0 \
        --output=goals.npz

or write a file for another world: instructions as strings, and images of states
that satisfy them. The file is a NumPy archive (`np.savez`) with exactly these
arrays:

    format        str []: 'gridlu.goal_dataset'
    version       int []: 1
    instructions  str [M]: the instructions, without duplicates
    instruction   int [N]: each example's index in `instructions`, 0 to M - 1
    images        uint8 [N, H, W, 3]: the goal states, 0 to 255

Files of GridLU hold `states` instead of `images`: uint8 [N, 27], as
`world.pack` makes them. A state takes 27 bytes, an image 9,408. For example:

    np.savez('goals.npz', format='gridlu.goal_dataset', version=1,
             instructions=np.array(['open the door', 'close the door']),
             instruction=np.array([0, 0, 1]),
             images=np.stack([open_1, open_2, closed]))
"""

from collections.abc import Sequence
import dataclasses
import os
import time

from absl import flags
import numpy as np

from gridlu import archives
from gridlu import files
from gridlu import instances
from gridlu import language
from gridlu import program
from gridlu import tasks
from gridlu import world

FORMAT = 'gridlu.goal_dataset'
VERSION = 1
# What a file's small arrays and its texts may take, in bytes. A compressed file
# can be a thousand times smaller than what it says.
_MAX_SMALL = 1000
_MAX_TEXTS = 2**27


class GoalDatasetError(program.UserError):
  """An invalid data set or file."""


@dataclasses.dataclass(frozen=True, eq=False)
class GoalDataset:
  """N pairs of instruction and goal state.

  Attributes:
    instructions: The M instructions, without duplicates.
    instruction: int32 [N], each example's index in `instructions`.
    states: uint8 [N, 27], packed GridLU states (see `world.pack`), or None.
    images: uint8 [N, H, W, 3], or None. Exactly one of the two is given.

  Raises:
    GoalDatasetError: An attribute is not as described.
  """
  instructions: tuple[str, ...]
  instruction: np.ndarray
  states: np.ndarray | None = None
  images: np.ndarray | None = None

  def __post_init__(self):
    self._check_instructions()
    index = np.asarray(self.instruction)
    _check_shapes(index, self.states, self.images)
    self._check_index(index)
    if self.states is not None:
      self._check_states(self.states)

  def __len__(self) -> int:
    return len(self.instruction)

  def _check_instructions(self):
    """Checks `instructions`."""
    for i, text in enumerate(self.instructions):
      if not isinstance(text, str) or not text.strip():
        raise GoalDatasetError(f'instructions[{i}] is {text!r}: expected a '
                               'string that is not empty.')
    seen: set[str] = set()
    for text in self.instructions:
      if text in seen:
        raise GoalDatasetError(
            f'instructions has {text!r} more than once: expected different '
            'ones. np.unique(strings, return_inverse=True) makes instructions '
            'and instruction out of one string an example.')
      seen.add(text)

  def _check_index(self, index: np.ndarray):
    """Checks and converts `instruction`."""
    if index.min() < 0 or index.max() >= len(self.instructions):
      bad = int(np.argmax((index < 0) | (index >= len(self.instructions))))
      raise GoalDatasetError(
          f'instruction[{bad}] is {index[bad]}: expected an index into the '
          f'{len(self.instructions)} instructions, counted from 0.')
    object.__setattr__(self, 'instruction', index.astype(np.int32))

  def _check_states(self, states: np.ndarray):
    limits = np.array([world.NUM_BLOCK_CODES] * world.NUM_CELLS +
                      [world.NUM_CELLS, 2])
    bad = np.flatnonzero(np.any(states >= limits, axis=1))
    if len(bad):
      column = int(np.argmax(states[bad[0]] >= limits))
      raise GoalDatasetError(
          f'states[{bad[0]}, {column}] is {states[bad[0], column]}: expected '
          f'less than {limits[column]}. world.pack makes such rows.')
    here = states[np.arange(len(states)), states[:, world.NUM_CELLS]]
    bad = np.flatnonzero((here == 0) & (states[:, -1] > 0))
    if len(bad):
      raise GoalDatasetError(
          f'states[{bad[0]}] has an agent that carries a block, and its cell '
          f'{states[bad[0], world.NUM_CELLS]} has none: expected one there.')


# An array, or what a file's header says of one.
_Described = np.ndarray | archives.Header


def _check_shapes(index: _Described, states: _Described | None,
                  images: _Described | None) -> None:
  """Checks the kinds and shapes of a data set's arrays of N rows."""
  if len(index.shape) != 1 or not np.issubdtype(index.dtype, np.integer):
    raise GoalDatasetError(
        f'instruction is {index.dtype} {list(index.shape)}: expected whole '
        'numbers, [N].')
  count = index.shape[0]
  if not count:
    raise GoalDatasetError('the data set is empty: expected one example or '
                           'more.')
  if (states is None) == (images is None):
    raise GoalDatasetError(
        f'{"neither" if states is None else "both"} of states and images '
        'given: expected one of them.')
  if states is not None and (states.dtype != np.uint8 or
                             states.shape != (count, world.PACKED_SIZE)):
    raise GoalDatasetError(
        f'states is {states.dtype} {list(states.shape)}: expected uint8 '
        f'[{count}, {world.PACKED_SIZE}], a row for each of instruction. '
        'world.pack makes such rows.')
  if images is not None:
    if (len(images.shape) != 4 or images.shape[-1] != 3 or
        images.dtype != np.uint8):
      raise GoalDatasetError(
          f'images is {images.dtype} {list(images.shape)}: expected uint8 '
          '[N, H, W, 3], from 0 to 255. Scale images from 0 to 1 with '
          'np.round(255 * images).astype(np.uint8).')
    if images.shape[0] != count:
      raise GoalDatasetError(
          f'images has length {images.shape[0]} and instruction {count}: '
          'expected one instruction for each image.')


def save(path: str | os.PathLike, dataset: GoalDataset) -> None:
  """Writes a data set in this module's format.

  Args:
    path: The file. An existing one is replaced atomically.
    dataset: What to write.
  """
  arrays = {
      'format': np.array(FORMAT),
      'version': np.array(VERSION),
      'instructions': np.array(dataset.instructions, np.str_),
      'instruction': dataset.instruction,
  }
  if dataset.states is not None:
    arrays['states'] = dataset.states
  if dataset.images is not None:
    arrays['images'] = dataset.images
  with files.replacing(os.fspath(path), 'wb') as file:
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _check_headers(headers: dict[str, archives.Header],
                   shape: Sequence[int] | None) -> None:
  """Checks what a file says of its arrays, before they are expanded."""
  required = {'format', 'version', 'instructions', 'instruction'}
  missing = sorted(required - set(headers))
  if missing:
    raise GoalDatasetError(
        f'it has no {", ".join(missing)}, only '
        f'{", ".join(sorted(headers)) or "nothing"}: expected '
        f'{", ".join(sorted(required))} and either states or images.')
  unknown = sorted(set(headers) - required - {'states', 'images'})
  if unknown:
    raise GoalDatasetError(f'it has {", ".join(unknown)}, which the format '
                           'does not know: leave it out.')
  texts = headers['instructions']
  if len(texts.shape) != 1 or texts.dtype.kind != 'U':
    raise GoalDatasetError(
        f'instructions is {texts.dtype} {list(texts.shape)}: expected '
        'strings [M]. np.array(list_of_str) makes such an array.')
  for name, limit in (('format', _MAX_SMALL), ('version', _MAX_SMALL),
                      ('instructions', _MAX_TEXTS)):
    if headers[name].size > limit:
      raise GoalDatasetError(
          f'{name} takes {headers[name].size:,} bytes: expected at most '
          f'{limit:,}.')
  states, images = headers.get('states'), headers.get('images')
  _check_shapes(headers['instruction'], states, images)
  examples = images if states is None else states
  assert examples is not None  # Just one of them is.
  if shape is not None and examples.shape[1:] != tuple(shape):
    raise GoalDatasetError(
        f'a goal example has the shape {list(examples.shape[1:])}; this world '
        f'needs uint8 {list(shape)}. Write the file again with what this world '
        'observes (gridlu/goal_dataset.py says how).')


def _from_arrays(arrays: dict[str, np.ndarray]) -> GoalDataset:
  """Checks the values of a file's arrays and makes a data set of them."""
  if arrays['format'].shape or str(arrays['format']) != FORMAT:
    raise GoalDatasetError(f'format is {arrays["format"]}: expected '
                           f'{FORMAT!r}.')
  version = arrays['version']
  if version.shape or not np.issubdtype(version.dtype, np.integer) or (
      version != VERSION):
    raise GoalDatasetError(
        f'version is {version}: this program reads version {VERSION}. Make '
        'the file again, or use the program that made it.')
  return GoalDataset(
      tuple(map(str, arrays['instructions'])), arrays['instruction'],
      arrays.get('states'), arrays.get('images'))


def load(path: str | os.PathLike,
         shape: Sequence[int] | None = None) -> GoalDataset:
  """Reads a data set from a file in this module's format.

  Args:
    path: The file.
    shape: Of one goal state or image, if it has to be this one.

  Returns:
    The data set.

  Raises:
    GoalDatasetError: There is no such file, it cannot be read or it is not in
      the format. The message says what is wrong, what was expected and how to
      fix it.
  """
  path = os.fspath(path)
  try:
    if not os.path.isfile(path) and os.path.exists(path):
      raise GoalDatasetError('this is no file. Expected what np.savez writes.')
    with open(path, 'rb') as file:
      content = file.read()
    _check_headers(archives.headers(content), shape)
    return _from_arrays(archives.arrays(content))
  except FileNotFoundError as error:
    raise GoalDatasetError(
        f'{path}: there is no such file. "python -m gridlu.goal_dataset '
        f'--output={path}" makes one of GridLU; another world has to write '
        'its own.') from error
  except (OSError, MemoryError) as error:
    raise GoalDatasetError(
        f'{path}: the system cannot read it '
        f'({str(error) or type(error).__name__}); the file itself may be whole.'
        ) from error
  except archives.ArchiveError as error:
    raise GoalDatasetError(
        f'{path}: not a whole .npz file of plain arrays ({error}). Expected '
        'what np.savez writes, without arrays of objects; make or copy the '
        'file again.') from error
  except GoalDatasetError as error:
    raise GoalDatasetError(f'{path}: {error}') from error


def generate(
    task: str, count: int, seed: int,
    instructions: Sequence[str | language.Instruction] | None = None,
    carrying: float = 0.0
) -> GoalDataset:
  """Draws a data set of GridLU goal states.

  Args:
    task: A name in `tasks.TASKS`.
    count: How many examples. Relations needs about 131,072 (figure 7). The
      paper uses 100,000 for Arrangements (section 3.4).
    seed: Determines the examples.
    instructions: The instructions to draw from; None for all of the task's.
    carrying: Of the goal states where the agent is on a block, the share in
      which it carries that block. In the paper it never does in Arrangements;
      for Relations the paper does not say.

  Returns:
    A data set with packed states. Its `instructions` are those that occur.

  Raises:
    ValueError: An argument is not as described, or `instructions` is empty or
      does not fit the task.
  """
  kind = tasks.find(task)
  if count < 1:
    raise ValueError(f'count is {count}: expected at least 1.')
  if not 0 <= carrying <= 1:
    raise ValueError(f'carrying is {carrying}: expected a share, 0 to 1.')
  parsed = (kind.instructions() if instructions is None else
            tuple(dict.fromkeys(language.checked_list(instructions))))
  rng = instances.generator(seed)
  drawn = kind.goal_states(rng, count, parsed)
  state = drawn.state
  if carrying:  # The ground truth looks at positions only.
    row, column = state.agent[:, 0], state.agent[:, 1]
    lifted = rng.random(count) < carrying
    lifted &= state.blocks[np.arange(count), row, column] > 0
    state = state._replace(carrying=lifted)
  used, index = np.unique(drawn.instruction, return_inverse=True)
  return GoalDataset(tuple(str(parsed[i]) for i in used), index,
                     states=world.pack(state))


def violations(dataset: GoalDataset) -> int:
  """Counts the states that do not satisfy their instruction.

  Args:
    dataset: A data set of packed GridLU states.

  Returns:
    How many of its examples do not satisfy GridLU's ground truth.

  Raises:
    ValueError: The data set holds images, or its instructions do not all
      belong to one task of GridLU.
  """
  if dataset.states is None:
    raise ValueError('the data set holds images: only packed GridLU states '
                     'can be checked against the ground truth.')
  parsed = [language.parse(i) for i in dataset.instructions]
  task = tasks.find(parsed[0].task)
  return int(np.sum(~task.satisfied(
      task.encode(parsed)[dataset.instruction], world.unpack(dataset.states))))


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_enum(
      'task', 'relations', tuple(tasks.TASKS),
      'The task whose goal states to draw.')
  flags.DEFINE_integer(
      'size', 131072, 'How many pairs of instruction and goal state to draw. '
      'The default suffices for the best performance (figure 7).',
      lower_bound=1)
  flags.DEFINE_integer(
      'seed', 0, 'Determines the pairs: the same seed gives the same file.',
      lower_bound=0)
  flags.DEFINE_float(
      'carrying', 0.0, 'Of the goal states where the agent is on a block, the '
      'share in which it carries that block.', lower_bound=0, upper_bound=1)
  flags.DEFINE_string(
      'output', None, 'The file to write, such as goals.npz. It must not '
      'exist yet.', required=True)


@program.main()
def main(argv: Sequence[str]) -> None:
  """Draws goal states and saves them."""
  del argv
  values = flags.FLAGS
  output = values.output
  if os.path.exists(output) and not os.path.isdir(output):
    raise program.UserError(f'--output={output} exists already: name another '
                            'file, or remove it first.')
  files.check_output('output', output)
  start = time.monotonic()
  try:
    dataset = generate(
        values.task, values.size, values.seed, carrying=values.carrying)
    save(output, dataset)
  except (ValueError, OSError) as error:
    raise program.UserError(f'{output} was not written: {error}') from error
  print(f'{output}: {len(dataset):,} goal states for '
        f'{len(dataset.instructions)} instructions, '
        f'{os.path.getsize(output) / 1e6:.1f} MB, '
        f'{time.monotonic() - start:.1f} s')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
