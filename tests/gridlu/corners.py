"""A third task in one file: a block of a colour has to be in a corner."""

import functools

import numpy as np

from gridlu import language
from gridlu import world

TITLE = 'GridLU-Corners'
EPISODE_LENGTH = 12
HAS_GROUND_TRUTH = True
TOKENS = ('InCorner', *world.COLORS, 'AGENT')
FIRST_GROUPS = ('red', 'other')

_CORNERS = np.zeros((world.SIZE, world.SIZE), np.bool_)
_CORNERS[::world.SIZE - 1, ::world.SIZE - 1] = True


class Corner(language.Instruction):
  """A block of the colour is in a corner."""
  task = 'corners'
  noun = 'a corner'
  words = ('InCorner',)

  def problem(self):
    if self.left != language.AGENT:
      return 0, 'AGENT'
    if (isinstance(self.right, language.Blocks) and self.right.color and
        not self.right.shape):
      return None
    return 1, 'Color(..., SCENE)'


@functools.cache
def all_instructions():
  return tuple(
      Corner('InCorner', language.AGENT, language.Blocks(color))
      for color in world.COLORS)


def encode(instructions):
  return np.array(
      [[world.COLORS.index(i.right.color)] for i in instructions], np.int32)


def satisfied(codes, states, xp=np):
  blocks = xp.asarray(states.blocks, np.int32)
  colors = (blocks + len(world.COLORS) - 1) % len(world.COLORS)
  fits = (blocks > 0) & (colors == codes[..., 0][..., None, None])
  return xp.any(fits & _CORNERS, axis=(-2, -1))


def instances(rng, count, instructions=None):
  """A rect of each colour and the agent, in four different cells."""
  chosen = language.chosen(instructions, all_instructions())
  cells = np.argsort(rng.random((count, world.NUM_CELLS)), axis=1)
  blocks = np.zeros((count, world.NUM_CELLS), np.int32)
  for column, color in enumerate(world.COLORS):
    blocks[np.arange(count), cells[:, column]] = world.block('rect', color)
  return world.Instances(
      rng.integers(len(chosen), size=count, dtype=np.int32),
      world.free_agents(blocks, cells[:, 3]))


def goal_states(rng, count, instructions=None, distractors=(2, 2)):
  del distractors  # There are always two.
  codes = encode(language.chosen(instructions, all_instructions()))
  drawn = instances(rng, 20 * count + 100, instructions)
  goals = np.flatnonzero(
      satisfied(codes[drawn.instruction], drawn.state))[:count]
  return world.Instances(
      drawn.instruction[goals], world.State(*(x[goals] for x in drawn.state)))


def groups(instruction, start):
  color = instruction.right.color
  return ('red' if color == 'red' else 'other',)
