"""Flags of the programs that play episodes with a run and report on them."""

from absl import flags

# Lists the flags under the program that defines them, in its --help.
flags.disclaim_key_flags()


def define_run(required: bool = True) -> None:
  """Defines --run_dir and --checkpoint."""
  flags.DEFINE_string(
      'run_dir', None if required else '', "The run's directory.",
      required=required)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')


def define_world() -> None:
  """Defines --world, for `trained.load`."""
  flags.DEFINE_string(
      'world', '', "The run's --world. It must be named if it is not GridLU, "
      'because its code is imported.')


def define_episodes(episodes: int, seed: int = 1_000_003) -> None:
  """Defines --episodes and --seed with these defaults, and --json."""
  flags.DEFINE_integer(
      'episodes', episodes, 'How many episodes to play with a checkpoint.',
      lower_bound=1)
  flags.DEFINE_integer(
      'seed', seed, 'Seeds instances and actions.', lower_bound=0)
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')


def define_greedy() -> None:
  """Defines --greedy."""
  flags.DEFINE_bool(
      'greedy', False, 'Take the likeliest action instead of sampling.')


def define_instructions() -> None:
  """Defines --instructions, for `trained.load`."""
  flags.DEFINE_string(
      'instructions', '', 'Play only instructions that match this regular '
      'expression (it may match any part of the text).')
