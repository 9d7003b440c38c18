r"""An example of a world of your own: go to one of four coloured corners.

Write the goal examples, then train; the curve is in TensorBoard:

  python -m agile_tf.own_world
  python -m agile_tf.launch --preset=own_world
  tensorboard --logdir=runs

For a world of your own, copy this file as my_world.py, change what is above
`main`, and train:

  python my_world.py
  python -m agile_tf.launch --preset=own_world --world=my_world:make_world \
      --run_dir=runs/my_world
"""

import os

import dm_env
from dm_env import specs
import numpy as np

import agile_tf
from gridlu import flagfiles
from gridlu import goal_dataset
from gridlu import program

# The colour of each corner, and its row and column on a board of 5x5 cells.
CORNERS = {'red': ((255, 0, 0), (0, 0)), 'green': ((0, 255, 0), (0, 4)),
           'blue': ((0, 0, 255), (4, 0)), 'yellow': ((255, 255, 0), (4, 4))}
# These are all instructions. Some are enough if they have each word, and if one
# of them is as long as any.
INSTRUCTIONS = [f'go to the {name} corner' for name in CORNERS]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]  # What the actions 0 to 3 do.
GOALS = os.path.join('runs', 'own_world_goals.npz')


def draw(agent, bird):
  """Returns the board with the agent and the bird in their cells.

  It is uint8 [40, 40, 3], with 8x8 pixels for each cell.
  """
  board = np.zeros([5, 5, 3], np.uint8)
  for color, place in CORNERS.values():
    board[place] = color
  image = board.repeat(8, axis=0).repeat(8, axis=1)
  for (row, column), gray in ((bird, 128), (agent, 255)):
    image[8 * row + 2:8 * row + 6, 8 * column + 2:8 * column + 6] = gray
  return image


class Corners(dm_env.Environment):
  """The agent starts anywhere and has ten steps. A bird flies about."""

  def __init__(self, seed):
    # Each worker makes an environment of its own, with a seed of its own.
    self._rng = np.random.default_rng(seed)

  def reset(self):
    self._agent = self._rng.integers(5, size=2)
    self._goal = self._rng.choice(list(CORNERS))  # Each episode has one.
    self._steps = 0
    return dm_env.restart(self._observation())

  def step(self, action):
    self._agent = np.clip(self._agent + MOVES[action], 0, 4)
    self._steps += 1
    end = dm_env.termination if self._steps == 10 else dm_env.transition
    # AGILE does not see this reward: it only makes the curve of success. Where
    # nobody knows it, give 0.0 and leave has_ground_truth out, below.
    reward = float(tuple(self._agent) == CORNERS[self._goal][1])
    return end(reward, self._observation())

  def _observation(self):
    return {'image': draw(self._agent, self._rng.integers(5, size=2)),
            'instruction': f'go to the {self._goal} corner'}

  def observation_spec(self):
    return {'image': specs.BoundedArray((40, 40, 3), np.uint8, 0, 255),
            'instruction': specs.StringArray(())}

  def action_spec(self):
    return specs.DiscreteArray(len(MOVES))


def goal_examples(count=2000):
  """Returns instructions with images of states in which they are carried out.

  AGILE learns from these alone.
  """
  rng = np.random.default_rng(0)
  places = [place for _, place in CORNERS.values()]
  instruction = rng.integers(len(INSTRUCTIONS), size=count)
  return goal_dataset.GoalDataset(
      tuple(INSTRUCTIONS), instruction, images=np.stack([
          draw(places[i], rng.integers(5, size=2)) for i in instruction]))


def make_world():
  """Returns the world of --world=agile_tf.own_world:make_world."""
  return agile_tf.worlds.from_environment(
      Corners, GOALS, INSTRUCTIONS, has_ground_truth=True)


@program.main(expand=flagfiles.expand)
def main():
  """Writes the goal examples of the example."""
  try:
    os.makedirs(os.path.dirname(GOALS), exist_ok=True)
    goal_dataset.save(GOALS, goal_examples())
  except OSError as error:
    raise program.UserError(f'{GOALS} cannot be written: {error}.') from error
  print(f'Wrote {GOALS}.')


if __name__ == '__main__':
  main()
