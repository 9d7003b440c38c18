"""Prints the paper's table of hyperparameters beside a run's values.

  python -m agile_tf.hparams --flagfile=launch/relations.flags

It takes the flags of agile_tf.launch.
"""

from absl import flags

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.reproduction import comparison
from gridlu import program
from gridlu import tasks


@program.main(settings.define_flags, expand=presets.expand)
def main() -> None:
  """Prints the table for the settings that the flags give."""
  config = config_lib.from_flags(flags.FLAGS)
  recipe = config_lib.from_flags(flags.FLAGS, settings.Recipe)
  recipe.check(config)
  if config.world not in tasks.TASKS and ':' not in config.world:
    raise config_lib.ConfigError(
        f'--world={config.world}: expected a GridLU task '
        f'({", ".join(tasks.TASKS)}), or "package.module:function".')
  print(program.printable(comparison.table_text(config, recipe)))


if __name__ == '__main__':
  main()
