"""The machine that TensorFlow computes on: its cores, memory and GPUs."""

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
  """Returns the most memory that this process may use, in bytes."""
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
  """The devices that TensorFlow was set up for."""
  description: str
  parallel: int  # How many threads can compute at the same time.


def prepare(config: config_lib.Config) -> Machine:
  """Sets TensorFlow up for this machine and returns what it will use.

  Of several visible GPUs the first is used. TensorFlow reserves its memory as
  needed, and multiplies in float32 as on a CPU, not in TensorFloat-32. These
  settings cannot be changed once TensorFlow has begun to compute.
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
        'TensorFlow has already begun to compute. The settings of its threads '
        'and devices cannot be changed any more.')
  device, parallel = f'{cores()} CPU cores', cores()
  for gpu in gpus:
    details = tf.config.experimental.get_device_details(gpu)
    device = f'GPU {gpu.name} ({details.get("device_name", "unknown")})'
    parallel = 1
  return Machine(
      f'{device} (--intra_op_threads={intra_op} '
      f'--inter_op_threads={inter_op})', parallel)
