"""Checks of the users' code that settings name, before any of it is imported.

A run may come from others. So nothing is imported only because a run's settings
name it: the user has to name it too. `named` imports it.
"""

import importlib.machinery
import importlib.util
import os
import sys

from agile_tf import config as config_lib
from gridlu import tasks


def check_module(world: str) -> None:
  """Raises ConfigError unless --world is a task, or its module may exist.

  Nothing is imported. Of 'package.module' only the package is looked for.
  """
  module, _, path = world.partition(':')
  if world in tasks.TASKS:
    return
  names = module.split('.')
  problem = ''
  if not all(map(str.isidentifier, [*names, *path.split('.')])):
    problem = 'that is not the name of a function in a module'
  elif not _is_found(names[0]):
    problem = f'there is no module {names[0]!r}'
  if problem:
    raise config_lib.ConfigError(
        f'--world={world} cannot be loaded ({problem}). Expected a GridLU '
        f'task ({", ".join(tasks.TASKS)}), or "package.module:function" of a '
        'module in this directory, installed, or on PYTHONPATH.')


def _is_found(module: str) -> bool:
  """Returns whether a module is imported, or could be."""
  if module in sys.modules:
    return True
  here = importlib.machinery.PathFinder.find_spec(module, [os.getcwd()])
  return here is not None or importlib.util.find_spec(module) is not None


def check_world(of_run: str, named: str, run_dir: str) -> None:
  """Raises ConfigError if a run's world is code that the user has not named.

  It also raises one if that code would be imported from the run's directory.

  Args:
    of_run: The --world with which the run was trained.
    named: The --world that the user gives now, or ''.
    run_dir: The directory of the run.
  """
  if of_run in tasks.TASKS:
    if not named:
      return
    # Another task may be named if its instructions are encoded in the same way.
    if named in tasks.TASKS and (
        tasks.find(named).encode == tasks.find(of_run).encode):
      return
  _check_code('world', 'world', of_run, named, run_dir)


def check_model(of_run: str, named: str, run_dir: str) -> None:
  """Does the same as `check_world` for --model, a run's networks."""
  if named or of_run not in config_lib.MODELS:
    _check_code('model', 'networks', of_run, named, run_dir)


def _check_code(flag: str, what: str, of_run: str, named: str, run_dir: str
               ) -> None:
  """Raises ConfigError unless the user names the code that a run names."""
  if named and named != of_run:
    fix = (f'Give --{flag}={of_run}' if ':' in of_run else
           f'Leave --{flag} out')
    raise config_lib.ConfigError(
        f'--{flag}={named}: {run_dir} was trained on the {what} {of_run!r}. '
        f'{fix}.')
  if not named:
    raise config_lib.ConfigError(
        f'{run_dir} was trained on the {what} {of_run!r}, a Python function. '
        'What a run names is not imported until you name it too, because runs '
        f'may come from others. If you trust this code, add --{flag} with the '
        f"same name (in Python: {flag}='...').")
  if ':' not in named:  # The networks or the task come with this package.
    return
  inside = os.path.realpath(run_dir)
  for folder in (os.getcwd(), *sys.path):
    place = os.path.realpath(
        os.path.join(folder, *named.partition(':')[0].split('.')))
    if os.path.commonpath([inside, place]) == inside:
      raise config_lib.ConfigError(
          f'--{flag}={named} would be imported from {place}, in the directory '
          'of the run. Start the program in another directory, or move the '
          'module out of there.')
