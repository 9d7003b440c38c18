"""An example of a world of your own: go to one of four coloured corners.

Write the goal examples, then train:

  python -m agile_tf.own_world
  python -m agile_tf.launch --preset=own_world
"""

import os

import dm_env
from dm_env import specs
import numpy as np

import agile_tf
from gridlu import program

COLORS = {'red': (255, 0, 0), 'green': (0, 255, 0), 'blue': (0, 0, 255),
          'yellow': (255, 255, 0)}
INSTRUCTIONS = [f'go to the {color} corner' for color in COLORS]
CORNERS = [(0, 0), (0, 4), (4, 0), (4, 4)]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
GOALS = os.path.join('runs', 'own_world_goals.npz')


def draw(order, cell):
  """Returns the image of a 5x5 board, uint8 [40, 40, 3].

  `order` has the colours of the corners. The agent, a white square, is in
  `cell`, a row and a column.
  """
  image = np.zeros([40, 40, 3], np.uint8)
  for (row, column), color in zip(CORNERS, order):
    image[8 * row:8 * row + 8, 8 * column:8 * column + 8] = COLORS[color]
  image[8 * cell[0] + 2:8 * cell[0] + 6, 8 * cell[1] + 2:8 * cell[1] + 6] = 255
  return image


class Corners(dm_env.Environment):
  """The agent starts anywhere and has ten steps. There is no reward."""

  def __init__(self, seed):
    self._rng = np.random.default_rng(seed)

  def _observation(self):
    return {'image': draw(self._order, self._cell), 'instruction': self._text}

  def reset(self):
    self._order = self._rng.permutation(list(COLORS))
    self._cell = self._rng.integers(5, size=2)
    self._text = INSTRUCTIONS[self._rng.integers(len(INSTRUCTIONS))]
    self._steps = 0
    return dm_env.restart(self._observation())

  def step(self, action):
    self._cell = np.clip(self._cell + MOVES[action], 0, 4)
    self._steps += 1
    end = dm_env.termination if self._steps == 10 else dm_env.transition
    return end(0.0, self._observation())

  def observation_spec(self):
    return {'image': specs.BoundedArray((40, 40, 3), np.uint8, 0, 255),
            'instruction': specs.StringArray(())}

  def action_spec(self):
    return specs.DiscreteArray(len(MOVES))


def write_goal_examples(path, count=2000):
  """Writes instructions with images of states in which they are carried out."""
  rng = np.random.default_rng(0)
  instruction = rng.integers(len(INSTRUCTIONS), size=count)
  images = []
  for i in instruction:
    order = rng.permutation(list(COLORS))
    images.append(draw(order, CORNERS[list(order).index(list(COLORS)[i])]))
  np.savez(path, format='gridlu.goal_dataset', version=1,
           instructions=np.array(INSTRUCTIONS), instruction=instruction,
           images=np.stack(images))


def make_world():
  """Returns the world of --world=agile_tf.own_world:make_world."""
  return agile_tf.worlds.from_environment(Corners, GOALS, INSTRUCTIONS)


@program.main()
def main(argv):
  """Writes the goal examples of the example."""
  del argv
  try:
    os.makedirs(os.path.dirname(GOALS), exist_ok=True)
    write_goal_examples(GOALS)
  except OSError as error:
    raise program.UserError(f'{GOALS} cannot be written: {error}.') from error
  print(f'Wrote {GOALS}.')


def start():
  """Starts the program."""
  program.run(main, lambda: None)


if __name__ == '__main__':
  start()
