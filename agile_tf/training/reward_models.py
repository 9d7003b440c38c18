"""Reward model directories: the discriminator D, and what it takes to call it.

A directory has `arrays.npz` and `model.json`. The arrays are D's parameters
phi, float32 by their names, and `codes`, the instructions as D reads them,
int32 [I, slots]. The JSON has

    format        'agile_tf.reward_model'
    version       1
    network       'nmn' (FiLM-NMN), 'lstm' (FiLM-LSTM), or the name of a
                  function of your own, which makes networks
    image_shape   H, W and 3
    parser        'gridlu', 'words', or the name of a function of your own
    tokens        the vocabulary, in the order of phi's tables
    instructions  I texts that have every token and every position
    sha256        the SHA-256 of arrays.npz

None of it can contain code. A parser or networks of your own are given again
when a directory is read; nothing is imported because a file names it. The codes
show whether it is the same parser. Of the networks only the names and shapes of
their parameters are compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import threading
from typing import Any, NamedTuple

import numpy as np

from agile_tf import config as config_lib
from agile_tf import named
from agile_tf import records
from agile_tf.agent import image_sizes
from agile_tf.agent import instructions as instructions_lib
from agile_tf.training import checkpoints
from gridlu import archives
from gridlu import files
from gridlu import language
from gridlu import program
from gridlu import schema

FORMAT = 'agile_tf.reward_model'
VERSION = 1
NETWORKS = config_lib.MODELS
# agile_tf.export_networks writes a run with its networks alone, and its reward
# model in a directory of this name within it.
FOLDER_IN_RUN = 'reward_model'

Parse = Callable[[str], Any]
_PARSERS: dict[str, Parse] = {
    'words': instructions_lib.chain, 'gridlu': language.tree}
_ARRAYS, _MODEL = 'arrays.npz', 'model.json'
_VALUES = schema.named({
    'format': schema.TEXT, 'version': schema.whole(0),
    'network': schema.TEXT, 'image_shape': schema.each(schema.whole(1), 3),
    'parser': schema.TEXT, 'tokens': schema.each(schema.TEXT),
    'instructions': schema.each(schema.TEXT), 'sha256': schema.TEXT})


_saving = threading.Lock()  # The threads of a process save one after the other.


class RewardModel(NamedTuple):
  """The discriminator of a run, or of a learner, with what it reads."""
  network: str  # One of NETWORKS, or the name of a function of the user.
  image_shape: tuple[int, int, int]  # H, W and 3.
  grammar: instructions_lib.Grammar
  # The parts of phi, by names such as 'discriminator/hidden/w'.
  parameters: Mapping[str, np.ndarray]


def is_one(path: str | os.PathLike) -> bool:
  """Returns whether a directory has a `model.json`, which no run's has."""
  return os.path.lexists(os.path.join(path, _MODEL))


def _parser_name(parse: Parse) -> str:
  """Returns the name under which a directory has a parser."""
  for name, known in _PARSERS.items():
    if parse is known:
      return name
  return named.name(parse)


def save(directory: str | os.PathLike, model: RewardModel) -> None:
  """Writes a reward model; it replaces one that is there.

  Raises:
    CheckpointError: It cannot be written, or the directory has something else.
      What was there stays.
  """
  path = program.clean_path(program.path_text('directory', directory))
  if not path:
    raise checkpoints.CheckpointError(
        "The directory's name is empty: name one to save the reward model in.")
  path = os.path.realpath(path)
  if path == os.path.realpath('.'):
    raise checkpoints.CheckpointError(
        f'{path} is the current directory, which cannot be replaced: name '
        'another one, such as reward_model.')
  try:
    archives.check_finite(model.parameters)
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'The reward model is not saved, because it can rate nothing '
        f'({error}). What is at {path} stays.') from error
  grammar = model.grammar
  arrays: dict[str, Any] = {
      **model.parameters, 'codes': grammar.encode(grammar.instructions)}
  content = io.BytesIO()
  np.savez(content, allow_pickle=False, **arrays)
  values = {
      'format': FORMAT, 'version': VERSION, 'network': model.network,
      'image_shape': [*map(int, model.image_shape)],
      'parser': _parser_name(grammar.parser), 'tokens': [*grammar.tokens],
      'instructions': [*grammar.instructions],
      'sha256': hashlib.sha256(content.getvalue()).hexdigest()}
  with _alone(os.path.dirname(path)):
    _replace(path, content.getbuffer(), values)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
  """Lets one thread at a time, of all processes, save into a folder."""
  try:
    os.makedirs(folder, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY)
  except OSError as error:
    raise _not_saved(folder, error) from error
  try:
    with _saving:
      with contextlib.suppress(OSError):  # Some network disks have no locks.
        fcntl.flock(opened, fcntl.LOCK_EX)
      yield
  finally:
    os.close(opened)  # This also gives the lock back.


def _not_saved(path: str, error: OSError) -> checkpoints.CheckpointError:
  return checkpoints.CheckpointError(
      f'{path} cannot be saved ({error}). Name a directory that can be '
      'written, and that has free disk space.')


def _beside(path: str) -> tuple[str, str]:
  """Returns where a new directory is made, and where the old one waits.

  Their names are short, because the directory's may be as long as possible.
  """
  folder, name = os.path.split(path)
  own = f'.{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}'
  return (os.path.join(folder, f'{own}.part'),
          os.path.join(folder, f'{own}.old.part'))


def _replace(path: str, arrays: memoryview, values: dict[str, Any]) -> None:
  """Writes both files to a new directory, which replaces one at `path`."""
  temporary, replaced = _beside(path)
  try:
    if os.path.lexists(path) and not (
        os.path.isdir(path) and (is_one(path) or not os.listdir(path))):
      raise checkpoints.CheckpointError(
          f'{path} is there and is no reward model: name another directory, '
          'or remove it first.')
    # A process may have been killed between the two renamings.
    if is_one(replaced) and not os.path.lexists(path):
      os.rename(replaced, path)
    for left_over in temporary, replaced:
      shutil.rmtree(left_over, ignore_errors=True)
    os.makedirs(temporary)
    with files.replacing(os.path.join(temporary, _ARRAYS), 'wb') as file:
      file.write(arrays)
    with files.replacing(os.path.join(temporary, _MODEL)) as file:
      json.dump(values, file, indent=1)
      file.write('\n')
    if os.path.lexists(path):
      os.rename(path, replaced)
    os.rename(temporary, path)
    shutil.rmtree(replaced, ignore_errors=True)
  except BaseException as error:  # Also Ctrl-C.
    with contextlib.suppress(OSError):
      if os.path.isdir(replaced) and not os.path.lexists(path):
        os.rename(replaced, path)
    shutil.rmtree(temporary, ignore_errors=True)
    if isinstance(error, OSError):
      raise _not_saved(path, error) from error
    raise


class _Read(NamedTuple):
  """The contents of the two files, before a parser is known."""
  values: dict[str, Any]
  arrays: dict[str, np.ndarray]


def load(directory: str | os.PathLike, parse: Parse | None = None
        ) -> RewardModel:
  """Reads a reward model directory.

  Args:
    directory: The directory.
    parse: The parser, if it is one of your own.

  Raises:
    DamagedError: A file is missing or its contents are wrong.
    CheckpointError: It cannot be read, is of another version, or has another
      parser.
  """
  path, (values, arrays) = _read(directory)
  name = values['parser']
  parse = parse or _PARSERS.get(name)
  if parse is None:
    raise checkpoints.CheckpointError(
        f'{path} has the parser {name!r}, a function of its own. What a file '
        'names is not imported, because it may come from others. If you have '
        'that function, give it as parse=...')
  try:
    grammar = instructions_lib.Grammar(
        values['instructions'], parse, values['tokens'])
    codes = grammar.encode(values['instructions'])
    same = np.array_equal(codes, arrays.pop('codes'))
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'{path} has the parser {name!r}, and {parse!r:.100} does not read '
        f'its instructions: {error}') from error
  if not same:
    raise checkpoints.CheckpointError(
        f'{path} has the parser {name!r}, and {parse!r:.100} reads its '
        'instructions in another way. Give the parser that it was saved with.')
  height, width, channels = values['image_shape']
  return RewardModel(
      values['network'], (height, width, channels), grammar, arrays)


def checkpoint(directory: str) -> checkpoints.Checkpoint:
  """Reads a reward model directory, or the newest checkpoint of a run.

  A frozen reward takes either. Raises CheckpointError.
  """
  if not is_one(directory):
    return checkpoints.load(directory)
  path, (values, arrays) = _read(directory)
  return checkpoints.Checkpoint(
      {f'discriminator:{name}': value for name, value in arrays.items()
       if name != 'codes'},
      {name: values[name] for name in ('tokens', 'image_shape')}, path)


def _read(directory: str | os.PathLike) -> tuple[str, _Read]:
  """Returns the path of a directory and what its files have.

  If it is saved anew between the readings of its two files, which then do not
  fit together, it is read again.
  """
  for _ in range(2):
    with contextlib.suppress(checkpoints.DamagedError):
      return _read_once(directory)
  return _read_once(directory)


def _read_once(directory: str | os.PathLike) -> tuple[str, _Read]:
  """Does what `_read` says, once."""
  path = program.clean_path(program.path_text('directory', directory))
  if not is_one(path):
    raise checkpoints.CheckpointError(
        f'{path} is no reward model: it has no {_MODEL}. Expected a directory '
        'that RewardLearner.save or agile_tf.export_networks wrote.')
  try:
    values = records.json_file(
        os.path.join(path, _MODEL), schema.anything, records.most_text())
    found = values if isinstance(values, dict) else {}
    kind, version = found.get('format'), found.get('version')
    if kind == FORMAT and version != VERSION:
      raise checkpoints.CheckpointError(
          f'{path} is of version {version!r:.100}; this program reads version '
          f'{VERSION}. Read it with the program that wrote it.')
    schema.require(kind == FORMAT, kind, 'format', repr(FORMAT))
    _VALUES(values, '')
    is_papers = values['network'] in NETWORKS
    schema.require(is_papers or ':' in values['network'], values['network'],
                   'network', f'{" or ".join(map(repr, NETWORKS))}, or the '
                   'name of a function, with a colon')
    schema.require(values['image_shape'][2] == 3, values['image_shape'][2],
                   'image_shape[2]', '3')
    if is_papers:
      for i, side in enumerate(values['image_shape'][:2]):
        schema.whole(image_sizes.SMALLEST)(side, f'image_shape[{i}]')
    content = files.read(os.path.join(path, _ARRAYS))
    if hashlib.sha256(content).hexdigest() != values['sha256']:
      raise ValueError(f'{_ARRAYS} does not match the sha256 in {_MODEL}')
    arrays = archives.load(io.BytesIO(content))
    archives.check_finite(arrays)
    archives.expect(arrays, 'codes', np.int32,
                    [len(values['instructions']), None])
    return path, _Read(values, arrays)
  except checkpoints.CheckpointError:
    raise
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError,
          ValueError) as error:
    raise checkpoints.DamagedError(f'{path} is damaged ({error}).') from error
  except (OSError, MemoryError, ImportError) as error:
    raise checkpoints.CheckpointError(
        f'{path} cannot be read: {str(error) or type(error).__name__}.'
    ) from error


def network(model: RewardModel, given: Any, path: str | os.PathLike) -> Any:
  """Returns what makes the network of a model that was loaded.

  That is one of NETWORKS, or the function of the user, which must be `given`.

  Raises:
    ConfigError: Another network was given.
    CheckpointError: The function is missing.
  """
  if model.network in NETWORKS:
    if given not in (None, model.network):
      raise config_lib.ConfigError(
          f'model is {given!r}, but {path} has the network '
          f'{model.network!r}: leave it out.')
    return model.network
  if not callable(given):
    raise checkpoints.CheckpointError(
        f'{path} has a network that {model.network!r} made, a function of its '
        'own. What a file names is not imported, because it may come from '
        'others. If you have that function, give the function itself as '
        'model=...')
  return given


def check_parameters(model: RewardModel, shapes: Mapping[str, Sequence[int]],
                     path: str | os.PathLike) -> None:
  """Raises CheckpointError unless a model has just parameters like these."""
  try:
    for name, shape in shapes.items():
      archives.expect(model.parameters, name, np.float32, shape)
    if more := model.parameters.keys() - shapes.keys():
      raise ValueError(f'it has {min(more)}, which the network lacks')
  except ValueError as error:
    fix = '' if model.network in NETWORKS else (
        ' Give the function that it was saved with as model=...')
    raise checkpoints.CheckpointError(
        f'{path} does not fit the network {model.network!r}: {error}.{fix}'
    ) from error
