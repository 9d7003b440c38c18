"""Runs agile_tf.launch and counts how often its programs are traced.

It writes `traces.csv` beside the run's other files: seconds, and the number of
traces of all tf.functions until then.
"""

import os
import threading
import time

from absl import flags
import tensorflow as tf

_functions = []
_function = tf.function


def _recorded(*args, **kwargs):
  """tf.function, with a record of the functions that it makes."""
  made = _function(*args, **kwargs)
  if args:
    _functions.append(made)
    return made

  def decorate(function):
    _functions.append(made(function))
    return _functions[-1]

  return decorate


tf.function = _recorded

from agile_tf import launch  # noqa: E402


def _count() -> None:
  start = time.monotonic()
  path = os.path.join(flags.FLAGS.run_dir, 'traces.csv')
  os.makedirs(flags.FLAGS.run_dir, exist_ok=True)
  with open(path, 'w', encoding='utf-8') as file:
    file.write('seconds,traces\n')
    while True:
      count = sum(f.experimental_get_tracing_count() for f in [*_functions])
      file.write(f'{time.monotonic() - start:.0f},{count}\n')
      file.flush()
      time.sleep(5)


_train = launch.train


def _train_and_count(*args, **kwargs):
  threading.Thread(target=_count, daemon=True).start()
  _train(*args, **kwargs)


if __name__ == '__main__':
  launch.train = _train_and_count
  launch.start()
