"""GridLU: a small block world and its instruction language.

`GridLU` is the environment and `satisfied` the ground truth; the rest is in
the modules (`gridlu.goal_dataset`, which is also a program, is imported by
name). Where gymnasium is installed it comes to know GridLU by this import.
"""

import contextlib

from gridlu import arrangements
from gridlu import environment
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import tasks
from gridlu import world
from gridlu.environment import GridLU
from gridlu.tasks import satisfied

with contextlib.suppress(ImportError):  # Where there is no gymnasium.
  from gridlu import gym_registration
  gym_registration.register()

__all__ = ('GridLU', 'arrangements', 'environment', 'language', 'relations',
           'rendering', 'satisfied', 'tasks', 'world')
