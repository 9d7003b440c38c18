"""GridLU: a small block world and its instruction language; see the README."""

__version__ = '0.2.0'  # Both packages have it; setup.cfg reads it here.

import contextlib

# It comes first, because the other imports may be interrupted.
from gridlu import interruption  # noqa: F401

# isort: split
from gridlu import arrangements
from gridlu import environment
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import tasks
from gridlu import world
from gridlu.environment import GridLU
from gridlu.tasks import satisfied

with contextlib.suppress(ImportError):  # Gymnasium may be missing.
  from gridlu import gym  # noqa: F401  It registers the environments.

__all__ = ('GridLU', 'arrangements', 'environment', 'language', 'relations',
           'rendering', 'satisfied', 'tasks', 'world')
