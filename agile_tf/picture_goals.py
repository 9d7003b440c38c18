r"""Makes a file of goal examples from pictures and a CSV file of texts.

  python -m agile_tf.picture_goals --pictures=FOLDER --texts=texts.csv \
      --output=goals.npz

Each row of the CSV file is a goal example: a picture of a state, and an
instruction that is carried out in it. A picture may have several rows.

  picture,instruction
  0001.png,open the door
  0002.png,"close the door, and wait"

Pictures must be images exactly as the environment observes them. If they are,
for example, less sharp, or have a JPEG's traces, the reward model learns to see
that instead of the goal.
"""

from collections.abc import Iterator
import csv
import io
import os
from typing import NamedTuple

from absl import flags
from absl import logging
import numpy as np
import PIL
from PIL import Image

from agile_tf import records
from agile_tf.agent import image_sizes
from gridlu import files
from gridlu import flagfiles
from gridlu import goal_dataset
from gridlu import program

_COLUMNS = ('picture', 'instruction')
_JPEGS = ('JPEG', 'MPO')  # An MPO file has several JPEGs.
# These modes of Pillow have numbers that are not 0 to 255.
_OTHER_NUMBERS = ('I', 'F')


class _Row(NamedTuple):
  """A row of the CSV file."""
  line: int  # The number of its last line, from 1.
  picture: str
  instruction: str


def read(pictures: str, texts: str) -> goal_dataset.GoalDataset:
  """Reads goal examples from a folder of pictures and a CSV file of texts.

  Raises:
    UserError: The folder, the CSV file, a row or a picture is not right. The
      message names the file and the line.
  """
  there = _pictures(pictures)
  rows = list(_rows(texts))
  if not rows:
    raise program.UserError(
        f'{texts} has no row after its header: expected one for each goal '
        f'example, such as "{there[0]},open the door".')
  first = {row.picture: row for row in reversed(rows)}  # The first row of each.
  names = list(dict.fromkeys(row.picture for row in rows))
  images: list[np.ndarray] = []
  jpegs = []
  for name in names:
    path = os.path.join(pictures, name)
    try:
      image, is_jpeg = _image(path)
      if images and image.shape != images[0].shape:
        raise ValueError(
            f'it has {_size(image)} pixels, and {names[0]} of line '
            f'{first[names[0]].line} has {_size(images[0])}: expected one '
            "size, that of the environment's images")
      if not images:
        # All pictures are in memory together with the images of the rows.
        _check_memory(image.nbytes * (len(names) + len(rows)))
    except (OSError, ValueError) as error:
      raise program.UserError(
          f'{texts}, line {first[name].line}: {path}: {error}.') from error
    images.append(image)
    if is_jpeg:
      jpegs.append(name)
  _warn(images[0], sorted({*there} - {*names}), jpegs)
  by_name = dict(zip(names, images, strict=True))
  instructions = tuple(dict.fromkeys(row.instruction for row in rows))
  index = {text: i for i, text in enumerate(instructions)}
  return goal_dataset.GoalDataset(
      instructions, np.array([index[row.instruction] for row in rows]),
      images=np.stack([by_name[row.picture] for row in rows]))


def _pictures(folder: str) -> list[str]:
  """Returns the names of a folder's pictures, sorted, or raises UserError."""
  try:
    found = os.listdir(folder)
  except OSError as error:
    raise program.UserError(
        f'--pictures={folder}: {error.strerror}. Expected a folder of pictures '
        'that can be read.') from error
  known = Image.registered_extensions()
  there = sorted(
      name for name in found if os.path.splitext(name)[1].lower() in known)
  if not there:
    raise program.UserError(
        f'--pictures={folder}: the folder has no picture. Expected files such '
        'as 0001.png.')
  return there


def _rows(path: str) -> Iterator[_Row]:
  """Yields the rows of the CSV file, or raises UserError."""
  def wrong(problem: object, line: int = 0) -> program.UserError:
    place = f', line {line}' if line else ''
    return program.UserError(f'{path}{place}: {problem}')

  try:
    text = files.read(path, records.most_text()).decode('utf-8-sig')
  except UnicodeDecodeError as error:
    raise wrong('it is not in UTF-8. Save it again as "CSV UTF-8".',
                error.object.count(b'\n', 0, error.start) + 1) from error
  except (OSError, MemoryError, ValueError) as error:
    raise wrong(f'it cannot be read ({error}). Expected a CSV file with the '
                'columns picture and instruction.') from error
  reader = csv.reader(io.StringIO(text, newline=''), strict=True)
  try:
    header = [name.strip() for name in next(reader, [])]
    if not set(_COLUMNS) <= set(header) or len(set(header)) < len(header):
      raise wrong(
          f'expected a header with the columns picture and instruction, found '
          f'{", ".join(map(repr, header)) or "nothing"}. Write '
          '"picture,instruction" there.', 1)
    for cells in reader:
      if not any(map(str.strip, cells)):  # The line has no values.
        continue
      if len(cells) != len(header):
        raise wrong(
            f'it has {len(cells)} values for {len(header)} columns. Write a '
            'text that has a comma in quotes: "close the door, and wait".',
            reader.line_num)
      picture, instruction = (
          cells[header.index(name)].strip() for name in _COLUMNS)
      if not picture or '\0' in picture:
        raise wrong(f'its picture is {picture!r}: expected the name of a file '
                    'in the folder of pictures.', reader.line_num)
      try:
        instruction = goal_dataset.checked_instruction(instruction)
      except ValueError as error:
        raise wrong(f'its instruction is {error}. Write it, or remove the row.',
                    reader.line_num) from error
      yield _Row(reader.line_num, picture, instruction)
  except csv.Error as error:
    raise wrong(f'{error}. Expected values that are separated by commas, with '
                'quotes in pairs.', reader.line_num) from error


def _image(path: str) -> tuple[np.ndarray, bool]:
  """Returns a picture, uint8 [H, W, 3], and whether it is a JPEG.

  Raises:
    OSError: The file cannot be read.
    ValueError: There is no such file, or it is no picture of the kind that the
      networks can see.
  """
  try:
    with files.open_regular(path) as file, Image.open(file) as picture:
      if getattr(picture, 'is_animated', False):
        raise ValueError('it has several frames: expected a picture of one')
      if picture.mode.split(';')[0] in _OTHER_NUMBERS:
        raise ValueError(
            f'its pixels are numbers of the kind {picture.mode}: expected '
            'colours or greys from 0 to 255; save it with 8 bits')
      colours = np.asarray(picture.convert('RGBA'))
      is_jpeg = picture.format in _JPEGS
  except FileNotFoundError as error:
    raise ValueError(
        'there is no such file. Expected a name in the folder of pictures, '
        'with its ending and in the same case') from error
  except (PIL.UnidentifiedImageError, Image.DecompressionBombError,
          SyntaxError, RuntimeError) as error:  # The last one is of AVIF files.
    raise ValueError(
        f'it is not a whole picture ({error}): expected a PNG; save it '
        'again') from error
  smallest = image_sizes.SMALLEST
  if min(colours.shape[:2]) < smallest:
    raise ValueError(
        f'it has {_size(colours)} pixels: expected at least {smallest} x '
        f'{smallest}')
  if (colours[..., 3] < 255).any():
    raise ValueError(
        'some of its pixels are transparent: expected none; save it on the '
        "background that the environment's images have")
  return colours[..., :3], is_jpeg


def _size(image: np.ndarray) -> str:
  """Returns the height and width of an image [H, W, ...], as text."""
  return ' x '.join(map(str, image.shape[:2]))


def _check_memory(size: int) -> None:
  """Raises OSError if images of so many bytes do not fit into memory."""
  if size > (free := files.free_memory()):
    raise OSError(
        f'all goal examples together need {size / 1e9:.1f} GB of memory, and '
        f'{free / 1e9:.1f} GB are free: give fewer or smaller pictures')


def _warn(image: np.ndarray, unused: list[str], jpegs: list[str]) -> None:
  """Warns of what is no error, but perhaps a mistake."""
  if unused:
    logging.warning(
        'The folder has pictures that no row names, such as %s: %d were left '
        'out.', unused[0], len(unused))
  if jpegs:
    logging.warning(
        'Pictures such as %s are JPEGs: %d of them. Their compression changes '
        'pixels, and a reward model can learn to see that instead of the goal. '
        'Save what the environment observes as PNG.', jpegs[0], len(jpegs))
  if any(side % image_sizes.PATCH for side in image.shape[:2]):
    logging.warning(
        'The pictures have %s pixels, and these are no multiples of %d. Such '
        'images need --model=agile_tf.overlapping:make in training, or '
        'model=agile_tf.overlapping.make of a RewardLearner.',
        _size(image), image_sizes.PATCH)


def _define_flags() -> None:
  program.define_path(
      'pictures', None, 'The folder of the pictures, such as PNG files.',
      required=True)
  program.define_path(
      'texts', None, 'The CSV file, in UTF-8, with a header and the columns '
      'picture (the name of a file in the folder) and instruction. It may have '
      'more columns.', required=True)
  program.define_path(
      'output', None, 'The file to write, such as goals.npz. It must not '
      'exist yet.', required=True)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Reads the pictures and the texts, and writes the goal examples."""
  values = flags.FLAGS
  output = values.output
  files.check_new_output('output', output)
  dataset = read(values.pictures, values.texts)
  try:
    goal_dataset.save(output, dataset)
  except OSError as error:
    raise program.UserError(f'{output} was not written: {error}.') from error
  counts = np.bincount(dataset.instruction)
  print(program.printable(
      f'{output}: {len(dataset):,} goal examples of {len(counts):,} '
      f'instructions, {_size(dataset.observations[0])} pixels, '
      f'{os.path.getsize(output) / 1e6:.1f} MB\n'
      f'Fewest examples: {counts.min():,}, of '
      f'{dataset.instructions[int(counts.argmin())]!r}'))


if __name__ == '__main__':
  main()
