"""Sets up every test before its imports: parsed flags, a quiet TensorFlow.

The number of TensorFlow's threads is its default, one for each core.
"""

import os

from absl import flags

from agile_tf.training import machine

# Tests run on the CPU, where runs are repeatable to the last bit and several
# processes do not compete for a GPU's memory.
os.environ['CUDA_VISIBLE_DEVICES'] = ''
# Most of the tests' time goes to XLA. What it compiles is shared between the
# processes that a test starts, and kept for the next time the tests run;
# agile_tf/training/building.py shares programs within a process.
machine.keep_programs(0)

# Under pytest no test calls app.run, which would parse them.
flags.FLAGS.mark_as_parsed()


def pytest_configure(config):
  """Imports TensorFlow, without its lines, in processes that run tests."""
  distributes = config.getoption('numprocesses', None)
  if not distributes or hasattr(config, 'workerinput'):
    machine.import_tensorflow()
