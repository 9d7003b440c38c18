"""Flags of the programs that play episodes with a run and report on them."""

from absl import flags

# Lists the flags under the program that defines them, in its --help.
flags.disclaim_key_flags()


def define_flags(episodes: int) -> None:
  """Defines the flags.

  Args:
    episodes: The default of --episodes.
  """
  flags.DEFINE_string(
      'run_dir', None, "The run's directory.", required=True)
  flags.DEFINE_integer(
      'episodes', episodes, 'How many episodes to play.', lower_bound=1)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')
  flags.DEFINE_integer(
      'seed', 1_000_003, 'Seeds instances and actions.', lower_bound=0)
  flags.DEFINE_bool(
      'greedy', False, 'Take the likeliest action instead of sampling.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')


def define_instructions() -> None:
  """Defines --instructions, for `trained.load`."""
  flags.DEFINE_string(
      'instructions', '', 'Play only instructions that match this regular '
      'expression (it may match any part of the text).')
