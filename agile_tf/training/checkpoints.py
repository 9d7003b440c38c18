"""Checkpoints: everything that a run needs to go on as if it had not stopped.

A checkpoint is a directory `checkpoints/step_000000050000` with `arrays.npz`
and `state.json`. It is written under another name and renamed when it is
whole, so that a directory with that name always is one. Both files are
checksummed. Reading them runs no code from them: neither can hold any.
"""

from collections.abc import Mapping, Sequence
import glob
import json
import os
import re
import shutil
from typing import Any, NamedTuple, Protocol
import zipfile
import zlib

from absl import logging
import numpy as np

from gridlu import program

_NAME = re.compile(r'step_(\d{12})')
# In arrays.npz, which has checksums of its own: that of state.json.
_CHECKSUM = 'crc32_of_state'


class CheckpointError(program.UserError):
  """A checkpoint that is missing, damaged or of something else."""


class Checkpoint(NamedTuple):
  """The state of a run."""
  arrays: dict[str, np.ndarray]
  values: dict[str, Any]  # As JSON has them.
  path: str = 'An unsaved checkpoint'  # Where it was read.


def _folder(run_dir: str) -> str:
  return os.path.join(run_dir, 'checkpoints')


def steps(run_dir: str) -> list[int]:
  """Returns the steps of a run's checkpoints, oldest first."""
  if not os.path.isdir(_folder(run_dir)):
    return []
  matches = map(_NAME.fullmatch, os.listdir(_folder(run_dir)))
  return sorted(int(match[1]) for match in matches if match)


def _path(run_dir: str, step: int) -> str:
  return os.path.join(_folder(run_dir), f'step_{step:012d}')


def save(run_dir: str, step: int, checkpoint: Checkpoint, keep: int) -> None:
  """Writes a checkpoint and removes the oldest ones.

  Args:
    run_dir: The run's directory.
    step: The policy steps made; a checkpoint of the same step is replaced.
    checkpoint: What to write.
    keep: How many checkpoints may remain.

  Raises:
    CheckpointError: if it cannot be written. Those before it are left alone.
  """
  path = _path(run_dir, step)
  temporary = f'{path}.part'
  try:
    for left_over in glob.glob(f'{glob.escape(_folder(run_dir))}/step_*.part'):
      shutil.rmtree(left_over)  # Of a run that was killed while it saved.
    _write(temporary, checkpoint)
    if os.path.exists(path):  # Its state is the same: nobody else writes here.
      _remove(path)
    os.rename(temporary, path)
    _sync(_folder(run_dir))
    for old in steps(run_dir)[:-keep]:
      _remove(_path(run_dir, old))
  except OSError as error:
    shutil.rmtree(temporary, ignore_errors=True)
    raise CheckpointError(
        f'{path} cannot be saved ({error}). What was saved before is still '
        'there. Make space, or let the directory be written; the same command '
        'then goes on.') from error


def _remove(path: str) -> None:
  """Removes a checkpoint; under its own name it is never half there."""
  os.rename(path, f'{path}.old.part')
  shutil.rmtree(f'{path}.old.part')


def _write(folder: str, checkpoint: Checkpoint) -> None:
  """Writes a checkpoint's files, and waits until the disk has them."""
  os.makedirs(folder)
  state = json.dumps(checkpoint.values).encode()
  arrays: dict[str, Any] = {
      **checkpoint.arrays, _CHECKSUM: np.uint32(zlib.crc32(state))}
  with open(os.path.join(folder, 'arrays.npz'), 'wb') as file:
    np.savez(file, allow_pickle=False, **arrays)
    file.flush()
    os.fsync(file.fileno())
  with open(os.path.join(folder, 'state.json'), 'wb') as file:
    file.write(state)
    file.flush()
    os.fsync(file.fileno())
  _sync(folder)


def _sync(folder: str) -> None:
  """Waits until the disk has a directory's names."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def load(run_dir: str, step: int | None = None) -> Checkpoint:
  """Reads a checkpoint.

  Args:
    run_dir: The run's directory.
    step: Which one; default: the newest.

  Raises:
    CheckpointError: if it does not exist or cannot be read.
  """
  known = steps(run_dir)
  if not known:
    raise CheckpointError(
        f'{run_dir!r} has no checkpoints; expected the --run_dir of a run '
        'that has saved one.')
  if step is None:
    step = known[-1]
  if step not in known:
    raise CheckpointError(
        f'{run_dir!r} has no checkpoint of step {step}; it has '
        f'{", ".join(map(str, known))}.')
  path = _path(run_dir, step)
  try:
    with open(os.path.join(path, 'arrays.npz'), 'rb') as file:
      if not zipfile.is_zipfile(file):  # np.load takes other files too.
        raise zipfile.BadZipFile('arrays.npz is not a whole archive')
      file.seek(0)
      with np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    with open(os.path.join(path, 'state.json'), 'rb') as file:
      state = file.read()
    if zlib.crc32(state) != arrays.pop(_CHECKSUM):
      raise ValueError('state.json is not what was written')
    values = json.loads(state)
  except Exception as error:  # Whatever NumPy's parsers raise on damage.
    raise CheckpointError(
        f'{path} cannot be read ({error}). Move it away to go on from the '
        'checkpoint before it.') from error
  return Checkpoint(arrays, values, path)


def recover(run_dir: str) -> Checkpoint | None:
  """Reads the newest whole checkpoint, from which a run goes on.

  Newer ones that are damaged are named and set aside, under other names.

  Returns:
    None if the run has no checkpoint.

  Raises:
    CheckpointError: if it has some, and none of them is whole.
  """
  errors: list[CheckpointError] = []
  for step in reversed(steps(run_dir)):
    try:
      checkpoint = load(run_dir, step)
    except CheckpointError as error:
      errors.append(error)
      continue
    for problem, damaged in zip(errors, reversed(steps(run_dir))):
      logging.warning('%s', problem)
      aside = f'{_path(run_dir, damaged)}.damaged'
      shutil.rmtree(aside, ignore_errors=True)
      os.rename(_path(run_dir, damaged), aside)
      logging.warning('It is now %s; the run goes on from step %d.', aside,
                      step)
    return checkpoint
  if errors:
    raise CheckpointError(
        f'None of the checkpoints of {run_dir!r} is whole; the newest: '
        f'{errors[0]}')
  return None


class Saveable(Protocol):
  """A part of a run that a checkpoint holds."""

  def state(self) -> Any:
    """Returns a dict of arrays, or something that JSON can hold."""

  def load(self, state: Any) -> None:
    """Restores what `state` returned."""


class Each:
  """Several parts in a fixed order, as one."""

  def __init__(self, parts: Sequence[Saveable]):
    self._parts = tuple(parts)

  def state(self) -> list[Any]:
    """See `Saveable`."""
    return [part.state() for part in self._parts]

  def load(self, state: list[Any]) -> None:
    """See `Saveable`."""
    for part, its_state in zip(self._parts, state, strict=True):
      part.load(its_state)


class Generator:
  """A NumPy generator's position."""

  def __init__(self, rng: np.random.Generator):
    self._rng = rng

  def state(self) -> dict[str, Any]:
    """See `Saveable`."""
    return dict(self._rng.bit_generator.state)

  def load(self, state: dict[str, Any]) -> None:
    """See `Saveable`."""
    self._rng.bit_generator.state = state


def gather(parts: Mapping[str, Saveable], values: dict[str, Any]) -> Checkpoint:
  """Makes a checkpoint of a run's parts.

  Args:
    parts: By name. A state that is a dict of arrays goes to `arrays`, under
      names 'part:name'; any other goes to `values`.
    values: What else the checkpoint says.
  """
  arrays: dict[str, np.ndarray] = {}
  values = dict(values)
  for name, part in parts.items():
    state = part.state()
    if isinstance(state, dict) and all(
        isinstance(value, np.ndarray) for value in state.values()):
      arrays.update({f'{name}:{key}': value for key, value in state.items()})
    else:
      values[name] = state
  return Checkpoint(arrays, values)


def restore(parts: Mapping[str, Saveable], checkpoint: Checkpoint) -> None:
  """Gives each part the state that `gather` took.

  Raises:
    KeyError: if the checkpoint lacks a part's state.
  """
  for name, part in parts.items():
    part.load(group(checkpoint.arrays, name) or checkpoint.values[name])


def group(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
  """Returns the arrays of one part; {} if there are none."""
  prefix = f'{name}:'
  return {
      key.removeprefix(prefix): value
      for key, value in arrays.items() if key.startswith(prefix)}
