"""Runs agile_tf.launch and lets one worker hang once `RUN_DIR.hang` exists."""

import os
import threading

from absl import flags

from agile_tf import launch
from agile_tf.agent import workers

_iterate = workers.PolicyWorker.iterate
_first = threading.Lock()


def _hang_or_iterate(self, step):
  """Iterates a worker, or lets the first one that comes here hang."""
  if os.path.exists(f'{flags.FLAGS.run_dir}.hang') and _first.acquire(False):
    threading.Event().wait()
  return _iterate(self, step)


workers.PolicyWorker.iterate = _hang_or_iterate

if __name__ == '__main__':
  launch.start()
