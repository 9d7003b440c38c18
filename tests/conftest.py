"""What every test needs before its imports: parsed flags, a quiet TensorFlow.

TensorFlow's threads are left alone: its defaults are one thread a core.
"""

import os

# Before TensorFlow is imported, which reads it then. 2: errors only.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from absl import flags  # noqa: E402

# Under pytest nobody calls app.run, which would parse them.
flags.FLAGS.mark_as_parsed()
