"""Checkpoints: what a run needs to resume.

It resumes as if never stopped, except that an environment which cannot be saved
begins a new episode.

A checkpoint is a directory `checkpoints/step_000000050000` with `arrays.npz`,
`state.json` and `manifest.json`, which has the SHA-256 of both. The directory
gets its name when it is complete. Its contents are used only if they match the
manifest, and none of them can contain code.

A checkpoint is called damaged only if a file is missing or its contents are
wrong. A system error, such as too many open files, says nothing about it.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
from typing import Any, NamedTuple
import unicodedata

from absl import logging
import numpy as np

from agile_tf import records
from gridlu import archives
from gridlu import files
from gridlu import program
from gridlu import schema

_NAME = re.compile('step_([0-9]{12})')
_ARRAYS, _STATE, _MANIFEST = 'arrays.npz', 'state.json', 'manifest.json'
# The most bytes that are read of a manifest, which has about 200.
_MOST_MANIFEST = 10_000

# The contents of state.json. A user's world may have states of any form. A
# checkpoint of the networks alone has only the values that are required.
_ACTOR = schema.each(schema.named({
    'generator': schema.generator, 'delayed': schema.BOOL,
    'environment': schema.anything,
}, {
    'observation': schema.each(schema.whole(0, 255)),
    'steps_left': schema.whole(0, 2**31 - 1), 'instruction': schema.TEXT,
    'in_episode': schema.BOOL, 'steps': schema.whole(0, 2**63 - 1)}))
_STATE_VALUES = schema.named({
    'config': schema.by_name(schema.anything),
    'steps': schema.whole(0, 10**12 - 1), 'tokens': schema.each(schema.TEXT),
}, {
    'networks_alone': schema.BOOL, 'iterations': schema.whole(0, 2**63 - 1),
    'actors': schema.each(_ACTOR), 'generators': schema.each(schema.generator),
    'tally': schema.named({'sums': schema.by_name(schema.number),
                           'weights': schema.by_name(schema.number)}),
    'totals': schema.by_name(schema.whole(0, 2**63 - 1))})

# The endings of checkpoints that are being replaced and removed.
_OLD, _REMOVED = '.old.part', '.removed.part'


class CheckpointError(program.UserError):
  """A checkpoint that is missing, damaged or from another kind of run."""


class DamagedError(CheckpointError):
  """A checkpoint whose contents are not what a run writes."""


class Checkpoint(NamedTuple):
  """The state of a run."""
  arrays: dict[str, np.ndarray]  # Names are like 'policy:policy/baseline/w'.
  values: dict[str, Any]  # Values that JSON can represent.
  path: str = 'An unsaved checkpoint'  # The directory that it was read from.

  def group(self, name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of one part of the run; {} if there are none."""
    return {
        key.removeprefix(f'{name}:'): value
        for key, value in self.arrays.items() if key.startswith(f'{name}:')}


def _folder(run_dir: str) -> str:
  return os.path.join(run_dir, 'checkpoints')


def _path(run_dir: str, step: int) -> str:
  return os.path.join(_folder(run_dir), f'step_{step:012d}')


def steps(run_dir: str) -> list[int]:
  """Returns the steps of a run's checkpoints, oldest first."""
  try:
    names = os.listdir(_folder(run_dir))
  except (FileNotFoundError, NotADirectoryError):
    return []
  except OSError as error:
    raise CheckpointError(
        f'{_folder(run_dir)} cannot be read: {error}.') from error
  return sorted(
      int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def save(run_dir: str, step: int, checkpoint: Checkpoint, keep: int) -> None:
  """Writes a checkpoint, and removes all but the newest `keep`.

  One of the same step is replaced.

  Raises:
    CheckpointError: if it cannot be written. Earlier checkpoints stay.
  """
  path = _path(run_dir, step)
  temporary, replaced = f'{path}.part', f'{path}{_OLD}'
  try:
    for left_over in glob.glob(f'{glob.escape(_folder(run_dir))}/step_*.part'):
      # A killed run, or a removal that failed, has left it.
      shutil.rmtree(left_over, ignore_errors=True)
    # Unlike makedirs, this fails if the run's directory has been removed.
    with contextlib.suppress(FileExistsError):
      os.mkdir(_folder(run_dir))
    _write(temporary, checkpoint)
    # During the discriminator's head start several have the same step.
    if os.path.exists(path):
      os.rename(path, replaced)
    os.rename(temporary, path)
    _sync(_folder(run_dir))
    shutil.rmtree(replaced, ignore_errors=True)
    # A run resumes from its newest checkpoint, so those of later steps have
    # been put there by somebody. They are left alone.
    own = [other for other in steps(run_dir) if other <= step]
    for old in own[:-keep]:
      # It is renamed first: its name must never stand for an incomplete one.
      removed = f'{_path(run_dir, old)}{_REMOVED}'
      try:
        os.rename(_path(run_dir, old), removed)
        shutil.rmtree(removed)
      except OSError as error:  # The new one is saved already.
        logging.warning(
            '%s cannot be removed: %s.', _path(run_dir, old), error)
  except OSError as error:
    shutil.rmtree(temporary, ignore_errors=True)
    raise CheckpointError(
        f'{path} cannot be saved ({error}). Earlier checkpoints are intact. '
        'Free some disk space, or make the directory writable, and give the '
        'same command again.') from error


def _write(folder: str, checkpoint: Checkpoint) -> None:
  """Writes a checkpoint's files and waits until they are on disk."""
  os.mkdir(folder)
  digests: dict[str, str] = {}
  for name in _ARRAYS, _STATE, _MANIFEST:
    with open(os.path.join(folder, name), 'w+b') as file:
      if name == _ARRAYS:
        arrays: dict[str, Any] = checkpoint.arrays
        np.savez(file, allow_pickle=False, **arrays)
      elif name == _STATE:
        file.write(json.dumps(checkpoint.values, sort_keys=True).encode())
      else:
        file.write(_manifest(digests))
      file.flush()
      os.fsync(file.fileno())
      file.seek(0)
      digests[name] = hashlib.file_digest(file, 'sha256').hexdigest()
  _sync(folder)


def _manifest(digests: Mapping[str, str]) -> bytes:
  return json.dumps(digests, indent=2).encode()


def _sync(folder: str) -> None:
  """Waits until the entries of a directory are on disk."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    if error.errno != errno.EINVAL:  # Some file systems cannot do this.
      raise
  finally:
    os.close(descriptor)


def find(run_dir: str, step: int | None = None) -> int:
  """Returns the step of a run's checkpoint; None asks for the newest.

  Raises:
    CheckpointError: if there is no such checkpoint.
  """
  known = steps(run_dir)
  if not known:
    raise CheckpointError(
        f'{run_dir!r} has no checkpoints; expected the --run_dir of a run '
        'that has saved one.')
  if step is not None and step not in known:
    raise CheckpointError(
        f'{run_dir!r} has no checkpoint of step {step}; it has '
        f'{", ".join(map(str, known))}.')
  return known[-1] if step is None else step


def load(run_dir: str, step: int | None = None) -> Checkpoint:
  """Reads a run's checkpoint of a step; by default the newest.

  Raises:
    DamagedError: if a file is missing or its contents are wrong.
    CheckpointError: if there is no such checkpoint, or it cannot be read.
  """
  known = steps(run_dir)
  advice = (' Move it away to use the checkpoint before it.'
            if step is None and len(known) > 1 else '')
  step = find(run_dir, step)
  path = _path(run_dir, step)
  try:
    checkpoint = _read(path)
    if checkpoint.values.get('steps') != step:
      raise ValueError(f'it is of step {checkpoint.values.get("steps")} and '
                       'has been renamed')
    return checkpoint
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError,
          ValueError) as error:
    raise DamagedError(f'{path} is damaged ({error}).{advice}') from error
  except (OSError, MemoryError, ImportError) as error:
    raise CheckpointError(
        f'{path} cannot be read: {str(error) or type(error).__name__}. This is '
        'a system error; the checkpoint may be intact and was not changed. '
        'Remove the cause and try again.') from error


def _read(folder: str) -> Checkpoint:
  """Returns a checkpoint; raises ValueError unless its files are intact."""
  if not os.path.exists(os.path.join(folder, _MANIFEST)):
    raise ValueError(f'it has no {_MANIFEST}; if an earlier version saved it, '
                     'commit ad1cf9b reads it')
  content = {}
  for name, limit in ((_MANIFEST, _MOST_MANIFEST), (_ARRAYS, None),
                      (_STATE, records.most_text())):
    try:
      content[name] = files.read(os.path.join(folder, name), limit)
    except ValueError as error:
      raise ValueError(f'{name}: {error}') from error
  # Git for Windows changes the ends of lines in text files. The digests are
  # those of texts with the line ends of Unix.
  for name in _STATE, _MANIFEST:
    content[name] = content[name].replace(b'\r\n', b'\n')
  manifest = content.pop(_MANIFEST)
  # Every byte is compared, so that the manifest itself cannot change either.
  if manifest != _manifest({
      name: hashlib.sha256(part).hexdigest()
      for name, part in content.items()}):
    raise ValueError(f'its files do not match its {_MANIFEST}')
  arrays = archives.load(io.BytesIO(content[_ARRAYS]))
  archives.check_finite(arrays)
  try:
    values = records.json_value(content[_STATE])
    _STATE_VALUES(values, '')
    _check_steps_left(values)
  except ValueError as error:
    raise ValueError(f'{_STATE}: {error}') from error
  return Checkpoint(arrays, values, folder)


def _check_steps_left(values: dict[str, Any]) -> None:
  """Raises a ValueError if an episode of GridLU has too many steps left."""
  length = values['config'].get('episode_length', 0)
  schema.whole(0)(length, 'config.episode_length')
  check = schema.whole(0, length)
  for i, actor in enumerate(values.get('actors', [])):
    for w, row in enumerate(actor):
      if 'steps_left' in row:
        check(row['steps_left'], f'actors[{i}][{w}].steps_left')


def check_tokens(checkpoint: Checkpoint, tokens: Sequence[str]) -> None:
  """Raises CheckpointError unless a checkpoint has the tokens of a world."""
  # An earlier version did not normalise the tokens that it saved.
  saved = [unicodedata.normalize('NFC', token)
           for token in checkpoint.values.get('tokens', ())]
  here = list(tokens)
  if saved != here:
    raise CheckpointError(
        f'{checkpoint.path} is from a world with the tokens {saved}; this '
        f'world has {here}. Use a checkpoint from the same world.')


def check_actions(checkpoint: Checkpoint, num_actions: int) -> None:
  """Raises CheckpointError if its policy has another number of actions.

  A user's networks are not checked: their arrays have other names.
  """
  if (biases := checkpoint.arrays.get('policy:policy/logits/b')) is not None:
    _check_shape(checkpoint, biases.shape, [num_actions], 'actions')


def check_pairs(checkpoint: Checkpoint, num_slots: int,
                observation_shape: Sequence[int]) -> None:
  """Raises CheckpointError if it has a replay buffer that does not fit."""
  for name, here, what in (
      ('codes', [num_slots], 'positions in the trees of its instructions'),
      ('observations', observation_shape, 'numbers in an observation')):
    if (array := checkpoint.arrays.get(f'buffer:{name}')) is not None:
      _check_shape(checkpoint, array.shape[1:], here, what)


def _check_shape(checkpoint: Checkpoint, saved: Sequence[int],
                 here: Sequence[int], what: str) -> None:
  """Raises CheckpointError unless two shapes are the same."""
  if tuple(saved) != tuple(here):
    there, now = (' x '.join(map(str, each)) for each in (saved, here))
    raise CheckpointError(
        f'{checkpoint.path} is from a world with {there} {what}; this '
        f'world has {now}. The world has been changed since: change it '
        'back, or start a new run in another --run_dir. The checkpoint is left '
        'as it is.')


def recover(run_dir: str, restore: Callable[[Checkpoint], None]) -> bool:
  """Restores the newest intact checkpoint; renames damaged ones of later steps.

  `restore` raises DamagedError if the contents are not what the run writes.

  If all are damaged, or one cannot be read, none is renamed.

  Returns:
    Whether the run has a checkpoint.
  """
  folder = _folder(run_dir)
  if os.path.lexists(folder) and not os.path.isdir(folder):
    raise CheckpointError(
        f'{folder} is no directory, or a link to one that is not there. Make '
        'it one, or remove it to begin the run again.')
  for replaced in glob.glob(f'{glob.escape(folder)}/step_*{_OLD}'):
    path = replaced.removesuffix(_OLD)
    if not os.path.exists(path):  # The new one did not get this name.
      os.rename(replaced, path)
  errors: dict[int, DamagedError] = {}
  for step in reversed(steps(run_dir)):
    try:
      restore(load(run_dir, step))
    except DamagedError as error:
      errors[step] = error
      continue
    for damaged, problem in errors.items():
      path = _path(run_dir, damaged)
      try:
        shutil.rmtree(f'{path}.damaged', ignore_errors=True)
        os.rename(path, f'{path}.damaged')
      except OSError as error:
        raise CheckpointError(
            f'{problem} It cannot be renamed: {error}.') from error
      logging.warning(
          '%s It was renamed to %s.damaged. The run resumes from step %d.',
          problem, path, step)
    return True
  if errors:
    raise CheckpointError(
        f'None of the checkpoints of {run_dir!r} is intact; the newest: '
        f'{next(iter(errors.values()))}')
  return False
