"""Prints the paper's table of hyperparameters beside a run's values.

  python -m agile_tf.hparams --flagfile=launch/relations.flags

The flags are those of agile_tf.launch.
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from agile_tf import config as config_lib
from agile_tf.reproduction import comparison


def main(argv: Sequence[str]) -> None:
  """Reads the flags and prints the tables."""
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {" ".join(argv[1:])}.')
  try:
    config = config_lib.from_flags(flags.FLAGS)
  except config_lib.ConfigError as error:
    sys.exit(f'Error: {error}')
  print(comparison.table_text(config))


if __name__ == '__main__':
  config_lib.define_flags()
  flags.adopt_module_key_flags(config_lib)  # For --help.
  app.run(main)
