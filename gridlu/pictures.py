"""Pictures for people: episodes as GIF, and the paper's figures of GridLU.

  python -m gridlu.pictures --figure=6 --output=dynamics.png

Figure 1 shows different states that carry out one instruction, figure 3 the
two tasks and the vocabulary of GridLU-Arrangements, figure 6 the dynamics of
the world. They are drawn by `gridlu.rendering`, so that they show just what an
agent sees.
"""

import collections
from collections.abc import Callable, Sequence
import os
import sys
import tempfile
from typing import BinaryIO

from absl import app
from absl import flags
import numpy as np
from PIL import Image

from gridlu import language
from gridlu import rendering
from gridlu import world

RECORDED_EPISODES = 20  # How many a `Recording` keeps.
_STEP_SECONDS = .5
_END_SECONDS = 2.
_LONGEST_SECONDS = 600.  # A GIF counts hundredths of seconds in 16 bits.


class OutputError(ValueError):
  """A file that cannot be written."""


def check_output(flag: str, path: str, suffix: str) -> None:
  """Checks that a picture can be written, before there is one.

  Args:
    flag: The flag that names the file, without its dashes.
    path: The file; its folder must exist.
    suffix: How its name must end, such as '.gif'.

  Raises:
    OutputError: It cannot; the message says why not.
  """
  folder = os.path.dirname(path) or '.'
  if not path.lower().endswith(suffix) or os.path.isdir(path):
    problem = f'expected the name of a {suffix} file'
  elif not os.path.isdir(folder):
    problem = f'there is no folder {folder}; make it first'
  elif os.path.exists(path) and not os.access(path, os.W_OK):
    problem = 'it may not be written; name another file'
  else:
    try:
      with tempfile.TemporaryFile(dir=folder):
        return
    except OSError as error:
      problem = f'it cannot be written ({error}); name another folder'
  raise OutputError(f'--{flag}={path}: {problem}.')


def _pad(image: np.ndarray, height: int, width: int) -> np.ndarray:
  """Fills an image up with white, to the right and below."""
  rows, columns = height - image.shape[0], width - image.shape[1]
  return np.pad(image, ((0, rows), (0, columns), (0, 0)), constant_values=255)


def save_gif(path: str | os.PathLike | BinaryIO, images: np.ndarray,
             captions: Sequence[str] | None = None,
             seconds: float | Sequence[float] = _STEP_SECONDS,
             scale: int = 4) -> None:
  """Writes an animation, which plays for ever.

  Args:
    path: The file, .gif; what was there is lost. Or an open one.
    images: uint8 [N, H, W, 3], one a frame. A frame that equals the one before
      makes that one stand longer.
    captions: A text to stand below each image, wrapped to its width; None for
      no text.
    seconds: How long a frame stands, one number or one for each; GIF counts
      hundredths, and many programs show none for less than .02.
    scale: How many pixels on a side a pixel of the images gets: they stay
      sharp.

  Raises:
    ValueError: The images are not such an array, there is not one caption or
      time for each, or a number is out of range.
    OSError: The file cannot be written.
  """
  images = rendering.checked(images, captions)
  count = len(images)
  times = np.asarray(seconds, np.float64)
  if times.ndim == 0:
    times = np.full(count, times)
  if times.shape != (count,):
    raise ValueError(f'seconds has the shape {times.shape} for {count} images: '
                     'expected one number, or one for each.')
  wrong = ~((times >= .01) & (times <= _LONGEST_SECONDS))
  if wrong.any():
    raise ValueError(f'seconds has {times[wrong][0]}: expected .01 to '
                     f'{_LONGEST_SECONDS:g}.')
  frames = [
      rendering.contact_sheet(
          images[i:i + 1], None if captions is None else captions[i:i + 1],
          scale=scale)
      for i in range(count)]
  # Captions have different numbers of lines; the frames of a GIF are alike.
  height = max(len(frame) for frame in frames)
  pictures = [
      Image.fromarray(_pad(frame, height, frame.shape[1])) for frame in frames]
  pictures[0].save(
      path, format='GIF', save_all=True, append_images=pictures[1:], loop=0,
      duration=[int(x) for x in np.round(1000 * times)])


class Recording:
  """Keeps episodes, with a text for each state, to be saved as a GIF."""

  def __init__(self, episodes: int = RECORDED_EPISODES):
    """Makes an empty recording.

    Args:
      episodes: How many to keep, the last ones. Episodes without a step do not
        count.
    """
    self._episodes: collections.deque[list[tuple[np.ndarray, str]]] = (
        collections.deque(maxlen=episodes))

  def begin(self) -> None:
    """Begins an episode."""
    if self._episodes and len(self._episodes[-1]) < 2:
      self._episodes.pop()
    self._episodes.append([])

  def add(self, state: world.State, caption: str) -> None:
    """Adds a state, without batch dimensions, to the episode."""
    self._episodes[-1].append((world.pack(state), caption))

  def save(self, path: str | os.PathLike) -> str:
    """Writes the GIF, unless nothing was played.

    Args:
      path: The file; what was there is lost.

    Returns:
      A sentence that says what was written.

    Raises:
      OutputError: The file cannot be written.
    """
    episodes = [episode for episode in self._episodes if len(episode) > 1]
    if not episodes:
      return f'{os.fspath(path)} was not written: no step was made.'
    frames = [frame for episode in episodes for frame in episode]
    seconds = [
        _END_SECONDS if frame is episode[-1] else _STEP_SECONDS
        for episode in episodes for frame in episode]
    images = rendering.render(
        world.unpack(np.stack([packed for packed, _ in frames])))
    try:
      save_gif(path, images, [caption for _, caption in frames], seconds)
    except OSError as error:
      raise OutputError(
          f'{os.fspath(path)} cannot be written ({error}).') from error
    return (f'{os.fspath(path)}: {len(frames)} states of {len(episodes)} '
            f'episode{"s" if len(episodes) > 1 else ""}')


def finish(recording: Recording, path: str) -> None:
  """Saves a program's recording and prints so, or exits with the reason."""
  try:
    print(recording.save(path))
  except OutputError as error:
    sys.exit(f'Error: {error}')


def _draw(text: str) -> world.State:
  """Returns the state that a text shows.

  Args:
    text: Rows from the top, divided by '/', each of 5 cells: '..' or a block
      by the first letters of its colour and shape ('rc': a red circle), and
      '@' after the cell where the free agent is.
  """
  codes = {color[0] + shape[0]: world.block(shape, color)
           for color in world.COLORS for shape in world.SHAPES}
  rows = [row.split() for row in text.split('/')]
  (agent,) = [(y, x) for y, row in enumerate(rows)
              for x, cell in enumerate(row) if cell.endswith('@')]
  blocks = [[codes.get(cell.rstrip('@'), 0) for cell in row] for row in rows]
  return world.State(np.array(blocks, np.int32), np.array(agent, np.int32),
                     np.array(False))


def _render(states: Sequence[world.State]) -> np.ndarray:
  """Renders states without batch dimensions, uint8 [N, 56, 56, 3]."""
  return rendering.render(world.State(*map(np.stack, zip(*states))))


FIGURE_1_INSTRUCTION = "Eel(AGENT, Color('red', SCENE))"

_FIGURE_1 = (
    """.. .. .. .. .. / .. rr .. br .. / .. rr .. .. br /
       .. rr rr .. .. / br .. ..@ .. br""",
    """br .. .. .. .. / .. .. br .. br / rr rr rr .. .. /
       rr .. .. .. ..@ / .. .. br .. ..""",
    """..@ br .. rr rr / br .. .. .. rr / .. .. .. .. rr /
       .. br .. .. .. / .. .. br .. ..""",
    """.. .. br .. .. / br .. .. .. .. / .. .. ..@ br .. /
       .. .. .. .. rr / br .. rr rr rr""",
)


def figure_1_states() -> list[world.State]:
  """Returns figure 1's states.

  Returns:
    Four goal states of `FIGURE_1_INSTRUCTION` that differ in place and
    orientation of the L and in the places of the blue blocks.
  """
  return [_draw(text) for text in _FIGURE_1]


# Instruction, initial state and goal state: the Relations episode; two of
# Arrangements, with 4 and with 8 blocks.
_EPISODES = (
    ("WestFrom(Color('green', Shape('triangle', SCENE)), "
     "Color('red', Shape('circle', SCENE)))",
     """rc .. .. .. .. / .. rt .. .. .. / .. .. .. .. .. /
        .. .. .. .. .. / .. gt .. ..@ ..""",
     """.. .. .. .. .. / .. rt .. .. .. / .. .. .. .. .. /
        .. .. .. .. .. / .. gt rc@ .. .."""),
    ('Square(AGENT, SCENE)',
     """.. .. .. rr .. / rr .. .. .. .. / .. .. ..@ .. rr /
        .. .. .. .. .. / .. rr .. .. ..""",
     """.. .. .. .. .. / .. .. .. .. ..@ / .. rr rr .. .. /
        .. rr rr .. .. / .. .. .. .. .."""),
    ("Dline(AGENT, Color('green', SCENE))",
     """gr .. .. rr .. / .. .. gr .. .. / rr ..@ .. .. gr /
        .. .. rr .. .. / .. gr .. rr ..""",
     """.. rr .. .. gr / .. .. .. gr .. / rr .. gr .. .. /
        .. gr .. .. rr / ..@ .. rr .. .."""),
)


def figure_3_episodes(
    ) -> list[tuple[language.Instruction, world.State, world.State]]:
  """Returns figure 3's episodes.

  Returns:
    Instruction, initial state and goal state: one of GridLU-Relations, then
    two of GridLU-Arrangements, with 4 and with 8 blocks.
  """
  return [(language.parse(text), _draw(initial), _draw(goal))
          for text, initial, goal in _EPISODES]


# Forms of four blocks, with mirror images where they differ.
_FORMS = {
    'Square': ('.. .. .. / .. xx xx / .. xx xx',),
    'Line': ('.. .. .. .. / .. .. .. .. / xx xx xx xx',),
    'Dline': ('xx .. .. .. / .. xx .. .. / .. .. xx .. / .. .. .. xx',
              '.. .. .. .. xx / .. .. .. xx .. / .. .. xx .. .. / .. xx'),
    'Triangle': ('.. .. .. .. / .. xx xx xx / .. .. xx',),
    'Circle': ('.. .. .. / .. .. xx / .. xx .. xx / .. .. xx',),
    'Eel': ('.. .. .. / .. xx .. / .. xx .. / .. xx xx',
            '.. .. .. / .. .. xx / .. .. xx / .. xx xx'),
    'Snake': ('.. .. .. / .. xx xx / .. .. xx xx',
              '.. .. .. / .. .. xx xx / .. xx xx'),
}
# The paper's figure has a name of its own for some words.
_LABELS = {'Dline': 'Diagonal Line', 'Connected': 'Adjacent Connect',
           'Disconnected': 'Diagonal Connect'}
_EXAMPLES = {
    **_FORMS,
    'Connected': tuple(
        _FORMS[form][-1] for form in (
            'Line', 'Square', 'Eel', 'Snake', 'Triangle')),
    'Disconnected': _FORMS['Dline'] + _FORMS['Circle'],
}
# The colour of a word's examples: any would do.
_EXAMPLE_COLORS = {'Connected': 'green', 'Disconnected': 'blue'}


def _example(form: str, color: str) -> world.State:
  """Puts a form on a board, with the agent in the last cell."""
  blocks = np.zeros((world.SIZE, world.SIZE), np.int32)
  for y, row in enumerate(form.split('/')):
    for x, cell in enumerate(row.split()):
      if cell == 'xx':
        blocks[y, x] = world.block('rect', color)
  last = world.SIZE - 1
  return world.State(blocks, np.array([last, last], np.int32), np.array(False))


def figure_3_vocabulary() -> list[tuple[str, world.State]]:
  """Returns figure 3's vocabulary.

  Returns:
    Words of GridLU-Arrangements (see `language.ARRANGEMENTS`), each once or
    more, with a goal state.
  """
  return [(word, _example(form, _EXAMPLE_COLORS.get(word, 'red')))
          for word, forms in _EXAMPLES.items() for form in forms]


FIGURE_6_ACTIONS = (
    world.Action.LEFT, world.Action.INTERACT, world.Action.UP,
    world.Action.INTERACT, world.Action.RIGHT)


def figure_6_states() -> list[world.State]:
  """Returns figure 6's states: the first, and after each of its actions."""
  states = [_draw(""".. .. .. .. .. / .. .. .. .. .. / .. .. .. .. .. /
                     .. .. .. .. .. / .. .. gt ..@ ..""")]
  for action in FIGURE_6_ACTIONS:
    states.append(world.step(states[-1], action))
  return states


def _figure_1() -> np.ndarray:
  return rendering.contact_sheet(
      _render(figure_1_states()), [FIGURE_1_INSTRUCTION] * 4,
      columns=2, scale=4)


def _figure_3() -> np.ndarray:
  images, captions = [], []
  for instruction, initial, goal in figure_3_episodes():
    images += [initial, goal]
    captions += [f'{instruction}: initial state', 'goal state']
  left = rendering.contact_sheet(_render(images), captions, columns=2, scale=4)
  vocabulary = figure_3_vocabulary()
  labels = [
      f'{word}: {_LABELS[word]}' if word in _LABELS else word
      for word, _ in vocabulary]
  right = rendering.contact_sheet(
      _render([state for _, state in vocabulary]), labels, columns=5, scale=3)
  height = max(len(left), len(right))
  return np.concatenate(
      [_pad(sheet, height, sheet.shape[1]) for sheet in (left, right)], axis=1)


def _figure_6() -> np.ndarray:
  captions = ['start'] + [f'after {a.name}' for a in FIGURE_6_ACTIONS]
  return rendering.contact_sheet(
      _render(figure_6_states()), captions, columns=3, scale=4)


_FIGURES = {'1': _figure_1, '3': _figure_3, '6': _figure_6}


def figure(number: str) -> np.ndarray:
  """Draws one of the paper's figures.

  Args:
    number: '1', '3' or '6'.

  Returns:
    uint8 [height, width, 3].

  Raises:
    ValueError: It is another.
  """
  if number not in _FIGURES:
    raise ValueError(f'number is {number!r}: expected one of '
                     f'{tuple(_FIGURES)}, the figures that show GridLU.')
  return _FIGURES[number]()


def _main_with(values: flags.FlagValues) -> Callable[[list[str]], None]:
  """Returns the program, with its flags defined in `values`."""
  number = flags.DEFINE_enum(
      'figure', None, tuple(_FIGURES), "Which of the paper's figures to draw.",
      required=True, flag_values=values)
  output = flags.DEFINE_string(
      'output', None, 'The PNG file to write, over what was there.',
      required=True, flag_values=values)

  def main(argv: list[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f'unexpected arguments {argv[1:]}: all options are '
                           'flags such as --figure=6.')
    try:
      check_output('output', output.value, '.png')
    except OutputError as error:
      sys.exit(f'Error: {error}')
    picture = figure(number.value)
    try:
      Image.fromarray(picture).save(output.value)
    except OSError as error:
      sys.exit(f'Error: --output={output.value} cannot be written: {error}.')
    print(f'{output.value}: figure {number.value}, {picture.shape[1]}x'
          f'{picture.shape[0]} pixels')

  return main


if __name__ == '__main__':
  # Defined here and not on import: other programs have flags of these names.
  app.run(_main_with(flags.FLAGS))
