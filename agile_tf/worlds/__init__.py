"""The worlds that AGILE can be trained in: GridLU, and environments of yours.

`agile_tf.agent.worlds` says what AGILE asks of a world.
"""

from agile_tf.agent.worlds import World as World
from agile_tf.agent.worlds import WorldError as WorldError
from agile_tf.worlds.environments import EnvironmentWorld as EnvironmentWorld
from agile_tf.worlds.environments import from_environment as from_environment
from agile_tf.worlds.environments import load as load
from agile_tf.worlds.gridlu_world import GridLUWorld as GridLUWorld
from agile_tf.worlds.gymnasium_worlds import from_gymnasium as from_gymnasium
