"""What programs that play a run's policy share: flags, loading and playing."""

import os
import sys
from typing import Any, TYPE_CHECKING

from absl import flags
import tqdm

import agile_tf
from agile_tf import code_checks
from agile_tf import config as config_lib
from agile_tf.evaluation import played
from agile_tf.recipe import settings
from agile_tf.training import checkpoints
from agile_tf.training import machine
from agile_tf.training import progress
from agile_tf.training import selection
from gridlu import program
from gridlu import tasks

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.evaluation import trained as trained_lib

PICTURED = 24  # The most episodes that a picture shows.


class _RunParser(flags.ArgumentParser):
  """Reads the path of a run; 'trained' is the agent of the package."""

  def parse(self, argument: str) -> str:
    return run_path(argument)


def run_path(argument: str) -> str:
  """Returns the directory of a run that a user named; see `define_run`."""
  path = program.clean_path(argument)
  if path == 'trained' and not os.path.exists(path):
    return agile_tf.TRAINED
  return path


def define_run() -> None:
  """Defines --run_dir, --checkpoint, --world and --model, for `load`."""
  flags.DEFINE(
      _RunParser(), 'run_dir', None, "The run's directory; "
      '"trained" for the agent that comes with the package.',
      serializer=flags.ArgumentSerializer(), required=True)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')
  define_code()


def define_code() -> None:
  """Defines --world and --model, of a run or of several."""
  flags.DEFINE_string(
      'world', '', "The run's --world. It must be named if it is not GridLU, "
      'because its code is imported. A run of relations can play crowded, and '
      'the other way round.')
  flags.DEFINE_string(
      'model', '', "The run's --model. It must be named if it is a function of "
      'yours, because its code is imported.')


def define_episodes(episodes: int, seed: int = 1_000_003) -> None:
  """Defines --episodes and --seed with these defaults.

  This seed is unlikely to be that of a run. agile_tf.choose has another one,
  and says why.
  """
  flags.DEFINE_integer(
      'episodes', episodes, 'How many episodes to play with a checkpoint.',
      lower_bound=1, upper_bound=100_000)
  define_seed(seed)


def define_seed(seed: int | None) -> None:
  """Defines --seed with this default."""
  flags.DEFINE_integer(
      'seed', seed, 'Seeds instances and actions' + (
          '; default: a random seed.' if seed is None else '.'),
      lower_bound=0, upper_bound=2**63 - 1)


def define_play() -> None:
  """Defines --greedy, for `play`, and --instructions, for `load`."""
  flags.DEFINE_bool(
      'greedy', False, 'Take the likeliest action instead of sampling.')
  flags.DEFINE_string(
      'instructions', '', 'Play only instructions that match this regular '
      'expression (it may match any part of the text).')


def check(run_dir: str, step: int | None = None, world: str = '',
          model: str = '', only: str = '') -> None:
  """Raises UserError if a run cannot be loaded, without importing TensorFlow.

  It does not find every error that `trained.load` finds. Arguments are those of
  `trained.load`; `only` is a regular expression that instructions must match.
  """
  run_dir = program.clean_path(run_dir)
  config, _ = settings.load(os.path.join(run_dir, 'config.json'))
  code_checks.check_world(config.world, world, run_dir)
  code_checks.check_model(config.model, model, run_dir)
  code_checks.check_module(world or config.world)
  checkpoints.find(run_dir, step)
  if config.world in tasks.TASKS:
    selection.matching(only, tasks.find(config.world).instructions())


def check_outside(run_dir: str, flag: str, path: str) -> None:
  """Raises UserError if an output would replace a file that makes the run."""
  first, *_ = os.path.relpath(
      os.path.realpath(path), os.path.realpath(run_dir)).split(os.sep)
  if first in ('config.json', 'metrics.csv', 'owner.txt', 'checkpoints',
               'reward_model'):
    raise program.UserError(
        f'--{flag}={path} is a file of the run itself, which would be lost: '
        'name another file.')


def load(values: flags.FlagValues, **how: Any) -> 'trained_lib.Trained':
  """Sets TensorFlow up and loads the run that the flags name.

  Other arguments are those of `trained.load`, which also lists the errors.
  """
  check(values.run_dir, values.checkpoint, values.world, values.model,
        values.instructions)
  if sys.stderr.isatty():
    print(f'Loading {program.printable(values.run_dir)}. Compiling its '
          'networks can take a minute.', file=sys.stderr)
  machine.prepare(config_lib.Config())  # It reads only `devices`, here 'auto'.
  from agile_tf.evaluation import trained
  return trained.load(values.run_dir, values.checkpoint, world=values.world,
                      model=values.model, only=values.instructions, **how)


def describe(trained: 'trained_lib.Trained', only: str = '') -> str:
  """Returns what is shown of a run: its world, and what rewarded its policy.

  `only` is the regular expression that the instructions match.
  """
  config = trained.config
  parts = [f'world {config.world}']
  texts = getattr(trained.world, 'texts', None)
  if texts is not None:  # It is GridLU's.
    matching = f' that match {only!r}' if only else ''
    parts += [f'{progress.counted(len(texts), "instruction")}{matching}',
              f'{config.physics} physics', f'{config.episode_length} steps']
  parts.append('no reward model' if trained.phi is None else
               f'a reward model that accepts D > {config.reward_threshold:g}')
  return ', '.join(parts)


def play(trained: 'trained_lib.Trained', values: flags.FlagValues
        ) -> list[played.Episode]:
  """Plays as many episodes as the flags say, with a bar in a terminal.

  The first `PICTURED` episodes keep all their states, for pictures. The others
  keep only the first and the last state, which saves memory.
  """
  bar = tqdm.tqdm(
      trained.play(values.episodes, values.seed, values.greedy),
      total=values.episodes, unit=' episodes', leave=False, desc='playing',
      disable=None)
  return [
      episode if i < PICTURED else episode._replace(
          states=episode.states[[0, -1]]) for i, episode in enumerate(bar)]
