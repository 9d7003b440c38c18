"""Sets up every test before its imports: parsed flags, a quiet TensorFlow.

The number of TensorFlow's threads is its default, one for each core.
"""

import os
import tempfile

# TensorFlow reads this when it is imported. 2 means errors only.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# Tests run on the CPU, where runs are repeatable to the last bit and several
# processes do not compete for a GPU's memory.
os.environ['CUDA_VISIBLE_DEVICES'] = ''
# Most of the tests' time goes to XLA, which would compile the same small
# programs in each process that a test starts. This cache shares them between
# processes; tests/agile_tf/conftest.py shares them within one.
_compiled = tempfile.TemporaryDirectory(prefix='agile_tf_tests_')
os.environ.setdefault(
    'TF_XLA_FLAGS', f'--tf_xla_persistent_cache_directory={_compiled.name} '
    '--tf_xla_persistent_cache_device_types=CPU')

from absl import flags  # noqa: E402

# Under pytest no test calls app.run, which would parse them.
flags.FLAGS.mark_as_parsed()
