"""Final states for the tests of judging."""

import numpy as np

from agile_tf.agent import worlds
from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import played
from gridlu import world
from tests.gridlu import boards

SERIES = judge_cases.Series(step=64, seed=3, episodes=4, greedy=False)
SNAKE = 'Snake(AGENT, SCENE)'
RED_SNAKE = "Snake(AGENT, Color('red', SCENE))"

DONE = boards.draw("""
    .  .  .  .  .@ /
    .  rr rr .  .  /
    .  .  rr rr .""")
CARRIED = boards.draw("""
    .  rr .   .  . /
    .  rr .   .  . /
    .  .  rr! .  . /
    .  .  rr  .  .""")
EIGHT = boards.draw("""
    rr rr .  .  .  /
    .@ rr rr .  br /
    .  .  .  .  .  /
    .  .  br br br""")
SCATTERED = boards.draw("""
    rr@ .  .  .  rr /
    br  .  br .  .  /
    .   .  .  .  .  /
    br  .  br .  .  /
    rr  .  .  .  rr""")
STATES = (DONE, CARRIED, EIGHT, SCATTERED)


def episode(instruction, state, truth):
  """Returns a played episode that ends in a state."""
  return played.Episode(
      instruction, world.pack(state), None,
      None if truth is None else np.array([False, truth]))


def cases(verdicts=(True, False, True, False)):
  """Returns a case for each state, with the automatic verdicts."""
  episodes = [
      episode(*row) for row in zip(
          (SNAKE, SNAKE, RED_SNAKE, RED_SNAKE),
          STATES, verdicts)]
  return judge_cases.make_cases(episodes, worlds.gridlu_world('arrangements'))
