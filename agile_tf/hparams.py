"""Prints the paper's table of hyperparameters beside a run's values.

  python -m agile_tf.hparams --flagfile=launch/relations.flags

It takes the flags of agile_tf.launch.
"""

from collections.abc import Sequence

from absl import flags

from agile_tf import config as config_lib
from agile_tf.reproduction import comparison
from gridlu import program


@program.main()
def main(argv: Sequence[str]) -> None:
  """Prints the tables for the settings that the flags give."""
  del argv
  print(comparison.table_text(config_lib.from_flags(flags.FLAGS)))


if __name__ == '__main__':
  program.run(main, config_lib.define_flags)
