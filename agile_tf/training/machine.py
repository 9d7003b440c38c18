"""The machine that TensorFlow computes on: its cores, memory and GPUs.

This module imports TensorFlow only when it is asked to, so that programs can
read their flags before that.
"""

from collections.abc import Iterator
import contextlib
import faulthandler
import importlib
import os
import re
import sys
import tempfile
from typing import Any, NamedTuple

from absl import logging

from agile_tf import config as config_lib
from agile_tf.training import compilation_cache


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


@contextlib.contextmanager
def _silence() -> Iterator[None]:
  """Keeps from stderr what is printed meanwhile, unless there is an error."""
  if sys.stderr is None:  # It is closed.
    yield
    return
  sys.stderr.flush()
  with tempfile.TemporaryFile() as printed, os.fdopen(os.dup(2)) as stderr:
    # If the process is aborted, for lack of AVX for example, this shows where.
    here = not faulthandler.is_enabled()
    if here:
      faulthandler.enable(stderr)
    os.dup2(printed.fileno(), 2)
    try:
      yield
    except BaseException:
      printed.seek(0)
      os.write(stderr.fileno(), printed.read())
      raise
    finally:
      os.dup2(stderr.fileno(), 2)
      if here:
        faulthandler.disable()


def import_tensorflow() -> Any:
  """Returns TensorFlow, imported without the lines that it prints meanwhile.

  Version 2.21 prints them whatever TF_CPP_MIN_LOG_LEVEL is. If it is 0, they
  are shown.
  """
  if 'tensorflow' not in sys.modules:
    shown = os.environ.get('TF_CPP_MIN_LOG_LEVEL') == '0'
    with contextlib.nullcontext() if shown else _silence():
      importlib.import_module('tensorflow')
  return sys.modules['tensorflow']


class Machine(NamedTuple):
  """The devices that TensorFlow was set up for."""
  description: str
  parallel: int  # How many threads can compute at the same time.
  # TensorFlow's names of the devices of policy threads. '' leaves the choice to
  # TensorFlow, where there is only one.
  devices: tuple[str, ...] = ('',)


class Selection(NamedTuple):
  """The devices that --devices selects."""
  gpus: tuple[int, ...]  # Their numbers, the first first; empty: the CPU.
  cpus: int = 1  # Logical CPU devices, which share the cores.


def select(devices: str) -> Selection:
  """Returns the devices of this machine that --devices selects.

  Raises:
    ConfigError: if there is no such device.
  """
  there = len(import_tensorflow().config.list_physical_devices('GPU'))
  if devices == 'auto':
    return Selection(tuple(range(there)))
  numbers: dict[str, list[int]] = {'GPU': [], 'CPU': []}
  for name in devices.split(','):
    match = re.fullmatch(r'(GPU|CPU):(\d{1,4})', name.strip())
    if match is None:
      raise config_lib.ConfigError(
          f'--devices={devices}: expected "auto" or a list such as '
          'GPU:0,GPU:1.')
    numbers[match[1]].append(int(match[2]))
  gpus, cpus = numbers['GPU'], numbers['CPU']
  if gpus and cpus or len(set(gpus)) < len(gpus):
    raise config_lib.ConfigError(
        f'--devices={devices}: expected GPUs alone or CPUs alone, each once.')
  if missing := [f'GPU:{i}' for i in gpus if i >= there]:
    raise config_lib.ConfigError(
        f'--devices={devices}: this machine has no {" and no ".join(missing)}. '
        f'TensorFlow finds {there} GPUs here. Choose among them, or use '
        '--devices=auto.')
  if sorted(cpus) != list(range(len(cpus))):
    raise config_lib.ConfigError(
        f'--devices={devices}: expected CPU:0, CPU:1 and so on without a gap. '
        'They share the cores of this machine.')
  return Selection(tuple(gpus), len(cpus) or 1)


def prepare(config: config_lib.Config) -> Machine:
  """Sets TensorFlow up for this machine and returns what it will use.

  TensorFlow reserves the memory of GPUs as needed, and multiplies in float32 as
  on a CPU, not in TensorFloat-32. Compiled programs are kept in the user's
  cache, if TensorFlow was not imported before. These settings cannot be changed
  once TensorFlow has begun to compute.

  Raises:
    ConfigError: if --devices names a device that does not exist.
  """
  intra_op = config.intra_op_threads or cores()
  inter_op = config.inter_op_threads or cores()
  if config.compilation_cache:
    compilation_cache.start(intra_op)  # Before TensorFlow finds its devices.
  tf = import_tensorflow()
  selection = select(config.devices)
  there = tf.config.list_physical_devices('GPU')
  gpus = [there[i] for i in selection.gpus]
  tf.config.experimental.enable_tensor_float_32_execution(False)
  try:
    tf.config.set_visible_devices(gpus, 'GPU')
    for gpu in gpus:
      tf.config.experimental.set_memory_growth(gpu, True)
    if selection.cpus > 1:
      tf.config.set_logical_device_configuration(
          tf.config.list_physical_devices('CPU')[0],
          [tf.config.LogicalDeviceConfiguration()] * selection.cpus)
    tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op)
  except RuntimeError:
    logging.warning(
        'TensorFlow has already begun to compute. The settings of its threads '
        'and devices cannot be changed any more.')
  device, parallel = f'{cores()} CPU cores', cores()
  if selection.cpus > 1:
    device += f' as {selection.cpus} devices'
  if gpus:
    device = ' and '.join(
        f'GPU {gpu.name} ' + '({})'.format(
            tf.config.experimental.get_device_details(gpu).get(
                'device_name', 'unknown')) for gpu in gpus)
    parallel = len(gpus)
  kind, count = ('GPU', len(gpus)) if gpus else ('CPU', selection.cpus)
  names: tuple[str, ...] = ('',)
  if count > 1:
    names = tuple(f'/device:{kind}:{i}' for i in range(count))
  return Machine(
      f'{device} (--intra_op_threads={intra_op} '
      f'--inter_op_threads={inter_op})', parallel,
      names)
