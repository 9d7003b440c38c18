"""The final states that a person judges, and the file of their answers."""

from collections.abc import Iterable, Sequence
import glob
import hashlib
import json
import os
import re
from typing import Any, NamedTuple, TYPE_CHECKING

import numpy as np

from agile_tf.evaluation import played
from agile_tf.training import checkpoints
from gridlu import files
from gridlu import program
from gridlu import world as board

# The programs import what needs TensorFlow after they have read their flags.
if TYPE_CHECKING:
  from agile_tf.agent import worlds

_BATCH = 64  # States drawn in one call.


class JudgeError(program.UserError):
  """An error that stops judging. Its message says how to fix it."""


class StaleError(JudgeError):
  """A request about an episode that is not the current one."""


class Series(NamedTuple):
  """The settings that determine the judged episodes and their order."""
  step: int  # The step of the checkpoint.
  seed: int
  episodes: int
  greedy: bool

  def path(self, run_dir: str) -> str:
    """Returns the path of the file of answers."""
    return f'{self.prefix(run_dir)}{self.step:012d}.json'

  def prefix(self, run_dir: str) -> str:
    """Returns the part of `path` before the checkpoint's step."""
    actions = 'greedy' if self.greedy else 'sampled'
    return os.path.join(
        run_dir,
        f'judged_seed_{self.seed}_episodes_{self.episodes}_{actions}_step_')


class Case(NamedTuple):
  """What a person sees of a played episode, and the automatic verdict.

  Attributes:
    instruction: The instruction as text.
    image: uint8 [H, W, 3], the final state.
    description: The image in words.
    blocks: The number of blocks; None if the state is not a GridLU board.
    verdict: The automatic judge's; None if the world has no such judge.
  """
  instruction: str
  image: np.ndarray
  description: str
  blocks: int | None
  verdict: bool | None


def _describe(state: board.State) -> str:
  """Returns a board in words, the alternative text of its image."""
  words = [
      f'{board.COLORS[(code - 1) % len(board.COLORS)]} '
      f'{board.SHAPES[(code - 1) // len(board.COLORS)]} in row {row + 1}, '
      f'column {column + 1}'
      for (row, column), code in np.ndenumerate(state.blocks) if code]
  row, column = state.agent + 1
  carries = 'the block there' if state.carrying else 'nothing'
  return (f'A board of {board.SIZE} rows and {board.SIZE} columns: '
          f'{"; ".join(words) or "no block"}. The agent is in row {row}, '
          f'column {column} and carries {carries}.')


def make_cases(episodes: Sequence[played.Episode],
               world: 'worlds.World') -> list[Case]:
  """Returns the cases of played episodes, with their images.

  Args:
    episodes: The played episodes.
    world: Their world.
  """
  images: list[np.ndarray] = []
  for i in range(0, len(episodes), _BATCH):
    finals = np.stack([episode.final for episode in episodes[i:i + _BATCH]])
    images.extend(world.pixels(finals))
  has_board = world.observation_shape == (board.PACKED_SIZE,)
  cases = []
  for i, (episode, image) in enumerate(zip(episodes, images)):
    blocks, description = None, f'The final state of episode {i + 1}.'
    if has_board:
      state = board.unpack(episode.final)
      blocks = int(np.count_nonzero(state.blocks))
      description = _describe(state)
    cases.append(Case(
        episode.instruction, image, description, blocks,
        None if episode.truth is None else episode.success))
  return cases


def fingerprint(cases: Iterable[Case]) -> str:
  """Returns a hash of the instructions and images of all cases."""
  digest = hashlib.sha256()
  for case in cases:
    digest.update(f'{case.instruction}\n{case.image.shape}\n'.encode())
    digest.update(case.image.tobytes())
  return digest.hexdigest()


class Answers:
  """A person's answers to the first episodes of a series, in a file.

  Every change is written before its method returns. Each write replaces the
  whole file at once, so a crash loses no answer.
  """

  def __init__(self, path: str, series: Series):
    """Opens the file, or creates one without answers.

    Args:
      path: The file, see `Series.path`.
      series: The series that the answers belong to.

    Raises:
      JudgeError: if the file is damaged, belongs to another series, or cannot
        be read or written.
    """
    self._path = path
    self._series = series
    self._fingerprint = ''
    self._values: tuple[bool, ...] = ()
    self._text = self._read()
    if self._text is not None:
      self._parse(self._text)
    self._write(self._values)  # Fails now if the file cannot be written.

  @property
  def path(self) -> str:
    """The path of the file."""
    return self._path

  @property
  def values(self) -> tuple[bool, ...]:
    """Whether the instruction was carried out, for the first episodes."""
    return self._values

  def use_with(self, cases: str) -> None:
    """Checks that the answers belong to the cases that will be shown.

    Args:
      cases: The `fingerprint` of these cases.

    Raises:
      JudgeError: if the file has answers to other cases.
    """
    if self._values and self._fingerprint != cases:
      raise JudgeError(
          f'{self._path} has {len(self._values)} answers to other episodes '
          'than those played now. Checkpoint and seed are the same, so another '
          'machine, other code or another world played them. Continue there, '
          'or move the file away to start again.')
    self._fingerprint = cases
    self._write(self._values)

  def append(self, done: bool) -> None:
    """Saves the answer to the next episode; raises JudgeError on failure."""
    self._write((*self._values, done))

  def undo(self) -> None:
    """Removes the last answer; raises JudgeError if that cannot be saved."""
    self._write(self._values[:-1])

  def _read(self) -> str | None:
    """Returns the file's content; None if there is no file."""
    try:
      with open(self._path, encoding='utf-8') as file:
        return file.read()
    except FileNotFoundError:
      return None
    except OSError as error:
      raise JudgeError(
          f'{self._path} cannot be read: {error}. It was not changed. Try '
          'again when the cause is gone.') from error
    except UnicodeDecodeError as error:
      raise JudgeError(
          f'{self._path} is not text: {error}. Expected the answers that '
          'agile_tf.judge writes. Move it away to start again.') from error

  def _parse(self, text: str) -> None:
    """Reads the answers from the file's content."""
    try:
      content = files.parse_json(text)
      expected = self._content(())
      if not isinstance(content, dict) or content.keys() != expected.keys():
        raise ValueError(f'expected the keys {", ".join(expected)}')
      answers = content['answers']
      if not isinstance(answers, list) or not all(
          isinstance(answer, bool) for answer in answers):
        raise ValueError('expected answers to be a list of true and false')
      if not isinstance(content['fingerprint'], str):
        raise ValueError('expected fingerprint to be a string')
    except ValueError as error:
      raise JudgeError(
          f'{self._path} is damaged ({error}). Restore a copy of it, or move '
          'it away to start again.') from error
    differences = [
        f'{name} is {content[name]!r} there, {value!r} here'
        for name, value in self._series._asdict().items()
        if content[name] != value]
    if len(answers) > self._series.episodes:
      differences.append(
          f'{len(answers)} answers there, {self._series.episodes} episodes '
          'here')
    if differences:
      raise JudgeError(
          f'{self._path} has answers to other episodes: '
          f'{"; ".join(differences)}. It was renamed or edited. Restore its '
          'name, or move it away.')
    self._values = tuple(answers)
    self._fingerprint = content['fingerprint']

  def _content(self, values: tuple[bool, ...]) -> dict[str, Any]:
    return {**self._series._asdict(), 'fingerprint': self._fingerprint,
            'answers': list(values)}

  def _write(self, values: tuple[bool, ...]) -> None:
    """Writes the file, then sets `values`; on failure changes neither."""
    if self._read() != self._text:
      raise JudgeError(
          f'{self._path} was changed or removed, perhaps by a second '
          'agile_tf.judge. This program saves no more answers. Stop one of the '
          'two and restart the other.')
    text = json.dumps(self._content(values), indent=2) + '\n'
    try:
      with files.replacing(self._path) as file:
        file.write(text)
    except OSError as error:
      raise JudgeError(
          f'{self._path} cannot be written: {error}. No answer is saved until '
          'the directory can be written.') from error
    self._text, self._values = text, values


def other_answers(run_dir: str, series: Series) -> list[str]:
  """Returns notes on unfinished answers to other checkpoints of the run.

  While a run trains it saves new checkpoints. By default the newest is judged,
  so a person may leave answers to an older one unfinished without noticing.
  """
  notes = []
  prefix = series.prefix(run_dir)
  for path in sorted(glob.glob(f'{glob.escape(prefix)}*.json')):
    match = re.fullmatch(r'(\d+)\.json', path.removeprefix(prefix))
    step = int(match[1]) if match else series.step
    if step == series.step:
      continue
    try:
      with open(path, encoding='utf-8') as file:
        count = len(files.parse_json(file.read())['answers'])
    except (OSError, ValueError, TypeError, KeyError):
      continue  # Opening this file for judging reports the error.
    if 0 < count < series.episodes:
      fix = (f'--checkpoint={step} continues with them.'
             if step in checkpoints.steps(run_dir) else
             'That checkpoint is gone.')
      notes.append(
          f'{path} has {count} answers to episodes of step {step}, and this is '
          f'step {series.step}. {fix}')
  return notes
