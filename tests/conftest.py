"""What every test needs before its imports: parsed flags, a quiet TensorFlow.

TensorFlow's threads are left alone: its defaults are one thread a core.
"""

import os
import tempfile

# Before TensorFlow is imported, which reads them then. 2: errors only.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# On the CPU, whatever the machine has: there a run can be repeated to the last
# bit, and processes side by side do not share a GPU's memory.
os.environ['CUDA_VISIBLE_DEVICES'] = ''
# Most of the tests' time is XLA's, which compiles the same small programs again
# for each process that a test starts: here they find them. Within a process see
# tests/agile_tf/conftest.py.
_compiled = tempfile.TemporaryDirectory(prefix='agile_tf_tests_')
os.environ.setdefault(
    'TF_XLA_FLAGS', f'--tf_xla_persistent_cache_directory={_compiled.name} '
    '--tf_xla_persistent_cache_device_types=CPU')

from absl import flags  # noqa: E402

# Under pytest nobody calls app.run, which would parse them.
flags.FLAGS.mark_as_parsed()
