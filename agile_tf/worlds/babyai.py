r"""BabyAI's GoToLocal, a world that nobody here wrote, for --world.

One room of 6 x 6 cells has eight objects: balls, boxes and keys in six colours.
The mission is 'go to the red ball', or 'go to a red ball' if there are several.
By BabyAI's rules it is carried out when the agent is beside such an object and
faces it. This needs `pip install -e '.[babyai]'`. Write the goal examples,
which are the final states of BabyAI's own bot, then train:

  python -m agile_tf.worlds.babyai
  python -m agile_tf.launch --flagfile=launch/babyai_goto.flags

What differs from BabyAI-GoToLocal-v0: the policy sees all of the room, from
above; it has the three actions that move, because those that pick up, drop and
open are of no use here; and an episode has 64 steps, also if the mission is
carried out earlier. BabyAI's verdict is the truth for metrics. AGILE never sees
it.
"""

import os
from typing import Any

from absl import flags
import numpy as np

from agile_tf.worlds import environments
from agile_tf.worlds import gymnasium_worlds
from gridlu import files
from gridlu import flagfiles
from gridlu import goal_dataset
from gridlu import program

try:
  import gymnasium
  from gymnasium import spaces
  import minigrid
  from minigrid.core import constants
  from minigrid.envs.babyai.core import roomgrid_level
  from minigrid.utils import baby_ai_bot
except ImportError as problem:
  raise ImportError(
      f'agile_tf.worlds.babyai needs MiniGrid ({problem}). '
      f'{program.installing("babyai")}') from problem

gymnasium.register_envs(minigrid)
# Otherwise BabyAI prints each room that it draws and rejects.
roomgrid_level.print = lambda *values: None

LEVEL = 'BabyAI-GoToLocal-v0'
STEPS = 64  # An episode has BabyAI's own limit for this level.
GOALS = os.path.join('runs', 'babyai_goto_goals.npz')
INSTRUCTIONS = [f'go to {article} {color} {kind}' for article in ('the', 'a')
                for color in constants.COLOR_NAMES
                for kind in ('ball', 'box', 'key')]

# Each cell has 8 x 8 pixels. '#' has the object's colour and '.' is black. The
# agent is white.
_PICTURES = {
    'ball': """
      ........
      ..####..
      .######.
      .######.
      .######.
      .######.
      ..####..
      ........""",
    'box': """
      ........
      .######.
      .######.
      .##..##.
      .##..##.
      .######.
      .######.
      ........""",
    'key': """
      ........
      ..###...
      ..#.#...
      ..###...
      ...#....
      ...###..
      ...#....
      ...###..""",
    'wall': '\n'.join(8 * ['########']),
    'agent': """
      ........
      .##.....
      .####...
      .######.
      .######.
      .####...
      .##.....
      ........""",  # Faces right.
}


def _tile(kind: str, color: Any) -> np.ndarray:
  """Returns the picture of a cell, uint8 [8, 8, 3]."""
  mask = np.array([list(row) for row in _PICTURES[kind].split()]) == '#'
  return (mask[:, :, None] * np.asarray(color)).astype(np.uint8)


_TILES = {(kind, color): _tile(kind, rgb)
          for kind in _PICTURES for color, rgb in constants.COLORS.items()}
# The agent's pictures, by its direction: right, down, left, up.
_AGENTS = [np.rot90(_tile('agent', (255, 255, 255)), -i) for i in range(4)]
_EMPTY = np.zeros([8, 8, 3], np.uint8)


def draw(room: Any) -> np.ndarray:
  """Returns a picture of all of a BabyAI environment, uint8 [H, W, 3]."""
  grid = room.grid
  tiles = [_EMPTY if each is None else _TILES[each.type, each.color]
           for each in grid.grid]
  column, row = room.agent_pos
  tiles[row * grid.width + column] = _AGENTS[room.agent_dir]
  cells = np.array(tiles).reshape(grid.height, grid.width, 8, 8, 3)
  return cells.swapaxes(1, 2).reshape(8 * grid.height, 8 * grid.width, 3)


class Moves(gymnasium.Wrapper):
  """A BabyAI level that is seen as a whole, with the actions that move.

  They are BabyAI's first three: left, right and forward.
  """

  def __init__(self, environment: gymnasium.Env):
    super().__init__(environment)
    room = environment.unwrapped
    self.action_space = spaces.Discrete(3)
    self.observation_space = spaces.Dict({
        'image': spaces.Box(
            0, 255, (8 * room.height, 8 * room.width, 3), np.uint8),
        'mission': room.observation_space['mission']})

  def reset(self, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    _, info = self.env.reset(**arguments)
    return self._observation(), info

  def step(self, action: Any
          ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
    _, *rest = self.env.step(int(action))
    return self._observation(), *rest

  def _observation(self) -> dict[str, Any]:
    room = self.env.unwrapped
    return {'image': draw(room), 'mission': room.mission}


def make_environment() -> Moves:
  """Makes the environment."""
  return Moves(gymnasium.make(LEVEL, disable_env_checker=True))


def parse(text: str) -> tuple:
  """Returns the tree of a mission: ('red', ('ball',))."""
  _, _, _, color, kind = text.split()
  return color, (kind,)


def make_goto() -> environments.EnvironmentWorld:
  """Returns the world of --world=agile_tf.worlds.babyai:make_goto."""
  return gymnasium_worlds.from_gymnasium(
      make_environment, GOALS, INSTRUCTIONS, episode_length=STEPS,
      ignore_ends=True, is_goal=lambda observation, reward, info: reward > 0,
      parse=parse)


def goal_examples(count: int, seed: int = 0) -> goal_dataset.GoalDataset:
  """Returns missions with pictures of the states in which BabyAI's bot ends."""
  environment = gymnasium.make(LEVEL, disable_env_checker=True)
  room = environment.unwrapped
  environment.reset(seed=seed)
  instruction: list[int] = []
  images: list[np.ndarray] = []
  while len(images) < count:
    environment.reset()
    bot = baby_ai_bot.BabyAIBot(environment)
    only_moves, reward, ended = True, 0.0, False
    while not ended:
      action = bot.replan()
      only_moves &= action < 3 or action == room.actions.done
      _, reward, terminated, truncated, _ = environment.step(action)
      ended = terminated or truncated
    # The bot may pick up what is in its way, which the policy cannot.
    if reward > 0 and only_moves:
      instruction.append(INSTRUCTIONS.index(room.mission))
      images.append(draw(room))
  return goal_dataset.GoalDataset(
      tuple(INSTRUCTIONS), np.array(instruction), images=np.stack(images))


def _define_flags() -> None:
  program.define_path('output', GOALS, 'The file of goal examples to write.')
  flags.DEFINE_integer(
      'size', 20_000, 'How many goal examples to write.', lower_bound=1)
  flags.DEFINE_integer(
      'seed', 0, "The seed of the bot's episodes.", lower_bound=0,
      upper_bound=2**31 - 1)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Writes goal examples."""
  values = flags.FLAGS
  try:
    os.makedirs(os.path.dirname(values.output) or '.', exist_ok=True)
  except OSError as error:
    raise program.UserError(
        f'{values.output} cannot be written: {error}.') from error
  files.check_output('output', values.output)
  goal_dataset.save(values.output, goal_examples(values.size, values.seed))
  print(f'Wrote {program.printable(values.output)}.')


if __name__ == '__main__':
  main()
