"""Program: draws the figures of the paper that show GridLU.

  python -m gridlu.pictures --figure=6 --output=dynamics.png

Figure 1 shows goal states of one instruction. Figure 3 shows the tasks and the
vocabulary of GridLU-Arrangements. Figure 6 shows the dynamics of the world.
"""

from collections.abc import Sequence

from absl import flags
import numpy as np
from PIL import Image

from gridlu import files
from gridlu import flagfiles
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import world


def _state(text: str) -> world.State:
  """Returns the state that a text shows, row by row from the top left.

  'rc' is a red circle, and '..' an empty cell. '@' follows the cell of the free
  agent; without it the agent is in the last cell.
  """
  codes = {color[0] + shape[0]: world.block(shape, color)
           for color in world.COLORS for shape in world.SHAPES}
  blocks = np.zeros((world.SIZE, world.SIZE), np.int32)
  agent = world.SIZE - 1, world.SIZE - 1
  for y, row in enumerate(text.split('/')):
    for x, cell in enumerate(row.split()):
      blocks[y, x] = codes.get(cell.rstrip('@'), 0)
      if cell.endswith('@'):
        agent = y, x
  return world.State(blocks, np.array(agent, np.int32), np.array(False))


def render(states: Sequence[world.State]) -> np.ndarray:
  """Renders states without batch dimensions, uint8 [N, 56, 56, 3]."""
  return rendering.render(world.State(*map(np.stack, zip(*states))))


FIGURE_1_INSTRUCTION = "Eel(AGENT, Color('red', SCENE))"

FIGURE_1_STATES = [_state(text) for text in (
    """.. .. .. .. .. / .. rr .. br .. / .. rr .. .. br /
       .. rr rr .. .. / br .. ..@ .. br""",
    """br .. .. .. .. / .. .. br .. br / rr rr rr .. .. /
       rr .. .. .. ..@ / .. .. br .. ..""",
    """..@ br .. rr rr / br .. .. .. rr / .. .. .. .. rr /
       .. br .. .. .. / .. .. br .. ..""",
    """.. .. br .. .. / br .. .. .. .. / .. .. ..@ br .. /
       .. .. .. .. rr / br .. rr rr rr""",
)]

# Instruction, initial state and goal state: one episode of Relations, and two
# of Arrangements with 4 and 8 blocks.
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
  """Returns figure 3's episodes: each instruction, first and goal state."""
  return [(language.parse(text), _state(initial), _state(goal))
          for text, initial, goal in _EPISODES]


# Forms of four blocks, with their mirror images where these differ.
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
# Names that the paper's figure uses for some words.
_LABELS = {'Dline': 'Diagonal Line', 'Connected': 'Adjacent Connect',
           'Disconnected': 'Diagonal Connect'}
_EXAMPLES = {
    **_FORMS,
    'Connected': tuple(
        _FORMS[form][-1] for form in (
            'Line', 'Square', 'Eel', 'Snake', 'Triangle')),
    'Disconnected': _FORMS['Dline'] + _FORMS['Circle'],
}
# The blocks of the examples that are not red rects. Their colours mean nothing.
_EXAMPLE_RECTS = {'Connected': 'gr', 'Disconnected': 'br'}


def figure_3_vocabulary() -> list[tuple[str, world.State]]:
  """Returns pairs of a word of figure 3's vocabulary and a goal state of it.

  Some words are in several pairs.
  """
  return [(word, _state(form.replace('xx', _EXAMPLE_RECTS.get(word, 'rr'))))
          for word, forms in _EXAMPLES.items() for form in forms]


FIGURE_6_ACTIONS = (
    world.Action.LEFT, world.Action.INTERACT, world.Action.UP,
    world.Action.INTERACT, world.Action.RIGHT)


def figure_6_states() -> list[world.State]:
  """Returns figure 6's states: the first, and one after each action."""
  states = [_state('//// .. .. gt ..@')]
  for action in FIGURE_6_ACTIONS:
    states.append(world.step(states[-1], action))
  return states


def _figure_1() -> np.ndarray:
  return rendering.contact_sheet(
      render(FIGURE_1_STATES), [FIGURE_1_INSTRUCTION] * 4,
      columns=2, scale=4)


def _figure_3() -> np.ndarray:
  states, captions = [], []
  for instruction, initial, goal in figure_3_episodes():
    states += [initial, goal]
    captions += [f'{instruction}: initial state', 'goal state']
  left = rendering.contact_sheet(render(states), captions, columns=2, scale=4)
  vocabulary = figure_3_vocabulary()
  labels = [
      f'{word}: {_LABELS[word]}' if word in _LABELS else word
      for word, _ in vocabulary]
  right = rendering.contact_sheet(
      render([state for _, state in vocabulary]), labels, columns=5, scale=3)
  height = max(len(left), len(right))
  return np.concatenate(
      [rendering.pad(sheet, height, sheet.shape[1])
       for sheet in (left, right)], axis=1)


def _figure_6() -> np.ndarray:
  captions = ['start'] + [f'after {a.name}' for a in FIGURE_6_ACTIONS]
  return rendering.contact_sheet(
      render(figure_6_states()), captions, columns=3, scale=4)


# The functions that draw the paper's figures, by the numbers of the figures.
FIGURES = {'1': _figure_1, '3': _figure_3, '6': _figure_6}


def _define_flags() -> None:
  flags.DEFINE_enum(
      'figure', None, tuple(FIGURES), "Which of the paper's figures to draw.",
      required=True)
  program.define_path(
      'output', None, 'The PNG file to write. An existing one is replaced.',
      required=True)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Draws a figure."""
  number, output = flags.FLAGS.figure, flags.FLAGS.output
  files.check_output('output', output, '.png')
  picture = FIGURES[number]()
  with files.replacing(output, 'wb') as file:
    Image.fromarray(picture).save(file, 'png')
  print(program.printable(
      f'{output}: figure {number}, {picture.shape[1]}x{picture.shape[0]} '
      'pixels'))


if __name__ == '__main__':
  main()
