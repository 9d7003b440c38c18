"""The machine that TensorFlow computes on."""

import os
from typing import NamedTuple

from absl import logging
import tensorflow as tf

from agile_tf import config as config_lib


def cores() -> int:
  """Returns how many CPU cores this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def memory() -> int:
  """Returns how many bytes of memory this process may use at most."""
  most = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  for path in ('/sys/fs/cgroup/memory.max',
               '/sys/fs/cgroup/memory/memory.limit_in_bytes'):
    try:
      with open(path, encoding='utf-8') as file:
        most = min(most, int(file.read()))
    except (OSError, ValueError):  # No such limit.
      continue
  return most


class Machine(NamedTuple):
  """What TensorFlow has been set up for."""
  description: str
  parallel: int  # How many threads it can compute for at the same time.


def prepare(config: config_lib.Config) -> Machine:
  """Sets TensorFlow up for this machine; says what it will use.

  Where there are GPUs the first one that is visible is used; its memory grows
  as it is needed, and it multiplies in float32 as a CPU does, not in
  TensorFloat-32. The settings cannot be changed any more once TensorFlow has
  begun to compute.
  """
  gpus = tf.config.list_physical_devices('GPU')[:1]
  intra_op = config.intra_op_threads or cores()
  inter_op = config.inter_op_threads or cores()
  tf.config.experimental.enable_tensor_float_32_execution(False)
  try:
    tf.config.set_visible_devices(gpus, 'GPU')
    for gpu in gpus:
      tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op)
  except RuntimeError:
    logging.warning(
        'TensorFlow is running already, with the settings that it has.')
  device, parallel = f'{cores()} CPU cores', cores()
  for gpu in gpus:
    details = tf.config.experimental.get_device_details(gpu)
    device = f'GPU {gpu.name} ({details.get("device_name", "unknown")})'
    parallel = 1
  return Machine(
      f'{device} (--intra_op_threads={intra_op} '
      f'--inter_op_threads={inter_op})', parallel)
