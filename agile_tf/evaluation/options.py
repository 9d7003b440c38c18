"""The flags of programs that play a run's episodes and report."""

from absl import flags

# Flags count as those of the program that defines them, for its --help.
flags.disclaim_key_flags()


def define_flags(episodes: int) -> None:
  """Defines the flags.

  Args:
    episodes: How many they play by default.
  """
  flags.DEFINE_string(
      'run_dir', None, "The run's directory.", required=True)
  flags.DEFINE_integer(
      'episodes', episodes, 'How many episodes to play.', lower_bound=1)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')
  flags.DEFINE_integer(
      'seed', 1_000_003, 'Decides instances and actions.', lower_bound=0)
  flags.DEFINE_bool(
      'greedy', False, 'Take the likeliest action instead of sampling.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')
