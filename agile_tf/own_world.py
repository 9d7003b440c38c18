"""An example of a world of your own: go to one of four coloured corners.

Write the goal examples, then train; the curve is in TensorBoard:

  python -m agile_tf.own_world
  python -m agile_tf.launch --preset=own_world
  tensorboard --logdir=runs

For a world of your own, copy this file and change what is above `main`. The
name of the copy's function is then --world=my_world:make_world.
"""

import os

import dm_env
from dm_env import specs
import numpy as np

import agile_tf
from gridlu import goal_dataset
from gridlu import program

COLORS = {'red': (255, 0, 0), 'green': (0, 255, 0), 'blue': (0, 0, 255),
          'yellow': (255, 255, 0)}
# All instructions, or enough to have each word in each place that it can take.
INSTRUCTIONS = [f'go to the {color} corner' for color in COLORS]
CORNERS = [(0, 0), (0, 4), (4, 0), (4, 4)]  # Rows and columns of a 5x5 board.
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]  # What the actions 0 to 3 do.
GOALS = os.path.join('runs', 'own_world_goals.npz')


def draw(order, cell):
  """Returns a board with the colours of its corners, and the agent's cell.

  It is uint8 [40, 40, 3], with 8x8 pixels for each cell of the board.
  """
  board = np.zeros([5, 5, 3], np.uint8)
  for corner, color in zip(CORNERS, order):
    board[corner] = COLORS[color]
  image = board.repeat(8, axis=0).repeat(8, axis=1)
  row, column = 8 * cell[0], 8 * cell[1]
  image[row + 2:row + 6, column + 2:column + 6] = 255  # A white square.
  return image


class Corners(dm_env.Environment):
  """The agent starts anywhere and has ten steps."""

  def __init__(self, seed):
    # Each worker makes an environment of its own, with a seed of its own.
    self._rng = np.random.default_rng(seed)

  def reset(self):
    # An episode keeps its instruction from its first step to its last.
    self._order = list(self._rng.permutation(list(COLORS)))
    self._cell = self._rng.integers(5, size=2)
    self._color = str(self._rng.choice(list(COLORS)))
    self._steps = 0
    return dm_env.restart(self._observation())

  def step(self, action):
    self._cell = np.clip(self._cell + MOVES[action], 0, 4)
    self._steps += 1
    end = dm_env.termination if self._steps == 10 else dm_env.transition
    # AGILE does not see this reward, which makes the curve of success. Without
    # has_ground_truth, below, it may be 0.0 always.
    goal = CORNERS[self._order.index(self._color)]
    return end(float(tuple(self._cell) == goal), self._observation())

  def _observation(self):
    return {'image': draw(self._order, self._cell),
            'instruction': f'go to the {self._color} corner'}

  def observation_spec(self):
    return {'image': specs.BoundedArray((40, 40, 3), np.uint8, 0, 255),
            'instruction': specs.StringArray(())}

  def action_spec(self):
    return specs.DiscreteArray(len(MOVES))


def goal_examples(count=2000):
  """Returns instructions with images of states in which they are carried out.

  These are all that AGILE learns from. They take the place of a reward.
  """
  rng = np.random.default_rng(0)
  instruction = rng.integers(len(INSTRUCTIONS), size=count)
  images = []
  for i in instruction:
    order = list(rng.permutation(list(COLORS)))
    images.append(draw(order, CORNERS[order.index(list(COLORS)[i])]))
  return goal_dataset.GoalDataset(
      tuple(INSTRUCTIONS), instruction, images=np.stack(images))


def make_world():
  """Returns the world of --world=agile_tf.own_world:make_world."""
  return agile_tf.worlds.from_environment(
      Corners, GOALS, INSTRUCTIONS, has_ground_truth=True)


@program.main()
def main(argv):
  """Writes the goal examples of the example."""
  del argv
  try:
    os.makedirs(os.path.dirname(GOALS), exist_ok=True)
    goal_dataset.save(GOALS, goal_examples())
  except OSError as error:
    raise program.UserError(f'{GOALS} cannot be written: {error}.') from error
  print(f'Wrote {GOALS}.')


def start():
  """Starts the program."""
  program.run(main, lambda: None)


if __name__ == '__main__':
  start()
