"""The machine that TensorFlow computes on: its cores, memory and GPUs.

TensorFlow is imported when it is asked for, after programs have read flags.
"""

from collections.abc import Iterator
import contextlib
import glob
import hashlib
import importlib.metadata
import io
import logging as python_logging
import math
import os
import pathlib
import re
import sys
import tempfile
import time
from typing import Any, NamedTuple

from absl import logging

from agile_tf import config as config_lib
from agile_tf.training import progress
from gridlu import program

# The classes that have tf.functions. `_Network` is in evaluation/trained.py.
_TRACED = 'PolicyPrograms|DiscriminatorPrograms|SharedParameters|_Network'
_MOST_THREADS = 10_000  # TensorFlow gets at most so many.
_KEPT_SECONDS = 30 * 24 * 3600.0  # Older compiled programs are removed.
_process = 0  # The process in which TensorFlow works.


def cores() -> int:
  """Returns how many CPU cores this process may use."""
  count = (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else
           os.cpu_count() or 1)
  # Pairs of a quota and a period, from version 2 of cgroups and from version 1.
  # A quota that is no number, such as 'max' or '-1', is no limit.
  quotas = [text.split() for text in _limits('cpu.max')]
  quotas += map(list, zip(
      _limits('cpu.cfs_quota_us'), _limits('cpu.cfs_period_us')))
  return min([count, *(
      max(1, math.ceil(int(quota) / int(period)))
      for quota, period in quotas if quota.isdecimal())])


def memory() -> int:
  """Returns the most memory that this process may use, in bytes."""
  limits = _limits('memory.max') + _limits('memory.limit_in_bytes')
  return min([os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'), *(
      int(limit) for limit in limits if limit.isdecimal())])


def _limits(name: str) -> list[str]:
  """Returns the texts of file `name` in this process's cgroups and parents.

  Each can have a limit, and the smallest one holds. Within a container the path
  may be that of the host. The container's own limit is then in /sys/fs/cgroup
  itself, which is among the parents.
  """
  found = []
  for line in _text('/proc/self/cgroup').splitlines():
    _, controllers, path = line.split(':', 2)  # Version 2 of cgroups has none.
    for controller in controllers.split(','):
      for folder in (path, *pathlib.PurePosixPath(path).parents):
        found.append(_text(f'/sys/fs/cgroup/{controller}{folder}/{name}'))
  return [text for text in found if text]


def _text(path: str) -> str:
  """Returns the text of a file of the system; '' where there is none."""
  try:
    with open(path, encoding='utf-8') as file:
      return file.read().strip()
  except OSError:
    return ''


@contextlib.contextmanager
def _silence() -> Iterator[None]:
  """Keeps from stderr what is printed meanwhile, unless there is an error."""
  try:
    said, stderr = tempfile.TemporaryFile(), os.fdopen(os.dup(2), 'wb')
  except OSError:  # Nothing can be written, or stderr is closed.
    yield
    return
  with said, stderr:
    os.dup2(said.fileno(), 2)
    try:
      with _logging_to(stderr):
        yield
    except Exception:
      said.seek(0)
      stderr.write(said.read())
      raise
    finally:
      os.dup2(stderr.fileno(), 2)


@contextlib.contextmanager
def _logging_to(stderr: io.BufferedWriter) -> Iterator[None]:
  """Lets the program's own messages through, such as the answer to a signal."""
  handler = logging.get_absl_handler().python_handler
  former = handler.stream
  # It may be a notebook's or a file, which does not lose them.
  if getattr(former, 'name', '') != '<stderr>':
    yield
    return
  stream = io.TextIOWrapper(stderr, errors='backslashreplace')
  handler.setStream(stream)
  try:
    yield
  finally:
    handler.setStream(former)
    stream.detach()


def import_tensorflow() -> Any:
  """Returns TensorFlow, imported without the lines that it prints meanwhile.

  Version 2.21 prints them whatever TF_CPP_MIN_LOG_LEVEL is.
  """
  if 'tensorflow' not in sys.modules:
    with _silence():
      importlib.import_module('tensorflow')
  python_logging.getLogger('tensorflow').addFilter(_is_of_use)
  return sys.modules['tensorflow']


def _is_of_use(record: python_logging.LogRecord) -> bool:
  """Returns False for a warning of TensorFlow's that nobody can act on.

  A process may have several objects of these classes, each with tf.functions of
  its own. TensorFlow knows only a function's name, so it takes them for one
  function that is traced again and again.
  """
  return not re.search(
      rf'<function ({_TRACED})\..*triggered tf.function retracing',
      record.getMessage())


def claim_process() -> None:
  """Makes this the process in which TensorFlow works.

  Raises:
    RuntimeError: if it is a fork of a process for which this was called.
  """
  global _process
  _process = _process or os.getpid()
  if os.getpid() != _process:
    raise RuntimeError(
        f'This is a fork of process {_process}, which has loaded or trained '
        'networks; TensorFlow would wait forever here. Start processes by '
        "'spawn' (multiprocessing.get_context('spawn'), or context='spawn' of "
        "Gymnasium's AsyncVectorEnv), and load or train networks in them.")


def keep_programs(threads: int) -> None:
  """Lets XLA keep the programs that it compiles for the CPU, for a month.

  Call this before TensorFlow is imported. It has no effect where TF_XLA_FLAGS
  names a directory already, or nothing can be written.
  """
  options = os.environ.get('TF_XLA_FLAGS', '')
  if 'tf_xla_persistent_cache_directory' in options:
    return
  root = os.path.join(os.environ.get('XDG_CACHE_HOME') or
                      os.path.expanduser('~/.cache'), 'agile_tf', 'xla')
  with contextlib.suppress(OSError):
    # A program depends on all of this. XLA's names of programs contain none of
    # it, so each combination has a folder of its own.
    key = repr([importlib.metadata.version('tensorflow'), _processor(), threads,
                options, os.environ.get('XLA_FLAGS')])
    folder = os.path.join(root, hashlib.sha256(key.encode()).hexdigest()[:16])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _remove_old_programs(root)
    # This raises OSError where XLA could not write its programs, for example on
    # a full disk.
    with tempfile.TemporaryFile(dir=folder) as file:
      file.write(bytes(2**20))
    os.environ['TF_XLA_FLAGS'] = (
        f"{options} --tf_xla_persistent_cache_directory='{folder}' "
        '--tf_xla_persistent_cache_device_types=CPU').strip()


def _remove_old_programs(root: str) -> None:
  """Removes what is older than a month, and the empty files of a power cut.

  XLA would stop at an empty program at each start.
  """
  for path in glob.glob(f'{glob.escape(root)}/*/*'):
    with contextlib.suppress(OSError):  # Another process may remove it too.
      is_empty = path.endswith('.pb') and not os.path.getsize(path)
      if is_empty or time.time() - os.path.getmtime(path) > _KEPT_SECONDS:
        os.remove(path)


def _processor() -> str:
  """Returns the processor's name and what it can do."""
  return str(sorted({
      line for line in _text('/proc/cpuinfo').splitlines() if line.startswith(
          ('model name', 'flags', 'Features', 'CPU part'))}))


class Machine(NamedTuple):
  """The devices that TensorFlow was set up for."""
  description: str
  parallel: int  # How many threads can compute at the same time.
  # TensorFlow's names of the policy threads' devices; '' leaves it the choice.
  devices: tuple[str, ...] = ('',)
  on_cpu: bool = True  # Whether it computes on the CPU alone.


def select(devices: str) -> tuple[int, ...]:
  """Returns the numbers of the GPUs that --devices selects; () for the CPU."""
  num_gpus = len(import_tensorflow().config.list_physical_devices('GPU'))
  if devices == 'auto':
    return tuple(range(num_gpus))
  if devices == 'CPU:0':
    return ()
  matches = [re.fullmatch(r'GPU:(\d{1,4})', name.strip())
             for name in devices.split(',')]
  numbers = tuple(int(match[1]) for match in matches if match)
  if not all(matches) or len(set(numbers)) < len(numbers):
    raise config_lib.ConfigError(
        f'--devices={devices}: expected "auto", CPU:0, or a list of GPUs such '
        'as GPU:0,GPU:1, each once.')
  if missing := [f'GPU:{i}' for i in numbers if i >= num_gpus]:
    raise config_lib.ConfigError(
        f'--devices={devices}: this machine has no {" and no ".join(missing)}. '
        f'TensorFlow finds {num_gpus} GPUs here. Choose among them, or use '
        '--devices=auto.' + (
            '' if num_gpus else
            f" For NVIDIA's GPUs: {program.installing('cuda')}"))
  return numbers


def _threads(variable: str) -> int:
  """Returns the number of threads that a variable says; 0 means all cores.

  Raises ConfigError if it says something else.
  """
  value = os.environ.get(variable, '')
  # Python raises an error for numbers of thousands of digits.
  if value and not (value.isdecimal() and len(value) < 10 and
                    int(value) <= _MOST_THREADS):
    raise config_lib.ConfigError(
        f'{variable} is {value!r:.100} in the environment; expected a number '
        f'from 0 to {_MOST_THREADS:,}.')
  return int(value or 0) or cores()


def prepare(config: config_lib.Config) -> Machine:
  """Sets TensorFlow up for this machine, before it begins to compute."""
  claim_process()
  # These are TensorFlow's own variables. By default each core has a thread.
  intra_op, inter_op = map(
      _threads, ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS'))
  keep_programs(intra_op)
  # Without AVX-512 VNNI TensorFlow takes memory by malloc, which returns a
  # program's 85 MB to the system after each call. That takes a third of the
  # time of an iteration of 15 workers.
  os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', '1')
  tf = import_tensorflow()
  all_gpus = tf.config.list_physical_devices('GPU')
  gpus = [all_gpus[i] for i in select(config.devices)]
  # Without TF32, a GPU multiplies float32 as a CPU does.
  tf.config.experimental.enable_tensor_float_32_execution(False)
  try:
    tf.config.set_visible_devices(gpus, 'GPU')
    tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op)
  except RuntimeError:
    logging.warning(
        'TensorFlow has already begun to compute. The settings of its threads '
        'and devices cannot be changed any more.')
  if not gpus:
    return Machine(progress.counted(cores(), 'CPU core'), cores())
  details = tf.config.experimental.get_device_details
  description = ' and '.join(
      f"{gpu.name.removeprefix('/physical_device:')} "
      f"({details(gpu).get('device_name', 'unknown')})"
      for gpu in gpus)
  devices = tuple(f'/device:GPU:{i}' for i in range(len(gpus)))
  return Machine(
      description, len(gpus), devices if len(gpus) > 1 else ('',),
      on_cpu=False)


def check_compiler() -> None:
  """Compiles a program, so that wrong XLA_FLAGS end the process now.

  XLA ends a process that has them. Call this before a run writes anything.
  """
  tf = import_tensorflow()
  tf.function(lambda: tf.zeros([1]) + 1, jit_compile=True)()
