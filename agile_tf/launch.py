"""Trains an agent: builds a run, starts its threads, and stops cleanly.

  python -m agile_tf.launch --flagfile=launch/relations.flags

The same command resumes a run. Ctrl-C, SIGTERM, SIGHUP (sent when a terminal
closes), SIGUSR1 and SIGUSR2 save and end it.
"""

from absl import flags
from absl import logging

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.reproduction import comparison
from agile_tf.training import machine
from agile_tf.training import start
from gridlu import program


@program.main(settings.define_flags, expand=presets.expand)
def main() -> None:
  """Carries out a run, from its start or from its newest checkpoint."""
  logging.set_verbosity(logging.INFO)
  config = config_lib.from_flags(flags.FLAGS)
  recipe = config_lib.from_flags(flags.FLAGS, settings.Recipe)
  recipe.check(config)
  with start.begin(config, settings.saved(config, recipe), settings.DEFAULTS
                  ) as begun:
    with begun.signals.deferred('TensorFlow is loaded'):
      # TensorFlow is set up before other modules import it. `build` in
      # training/run.py calls `prepare` again, because it needs the `Machine`
      # that it returns.
      machine.prepare(config)
      machine.check_compiler()
      from agile_tf.recipe import variations
      from agile_tf.training import building
      from agile_tf.training import train
    train.go_on(
        building.Plan(config, variations.make(config, recipe), recipe),
        begun, comparison.table_markdown(config, recipe))


if __name__ == '__main__':
  main()
