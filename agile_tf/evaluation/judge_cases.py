"""The final states that a person judges, and the file of the answers."""

from collections.abc import Iterable, Sequence
import glob
import hashlib
import json
import os
import re
from typing import Any, NamedTuple

import numpy as np

from agile_tf.agent import worlds
from agile_tf.evaluation import played
from agile_tf.training import checkpoints
from gridlu import files
from gridlu import program
from gridlu import world as board

_BATCH = 64  # States that are turned into images at a time.


class JudgeError(program.UserError):
  """Something that keeps a person from judging: what, and the fix."""


class StaleError(JudgeError):
  """A request that was made of another episode than the present one."""


class Series(NamedTuple):
  """What decides which episodes are judged, and in which order."""
  step: int  # The checkpoint's.
  seed: int
  episodes: int
  greedy: bool

  def path(self, run_dir: str) -> str:
    """Returns where the answers are kept."""
    return f'{self.prefix(run_dir)}{self.step:012d}.json'

  def prefix(self, run_dir: str) -> str:
    """Returns what the paths for all checkpoints begin with."""
    actions = 'greedy' if self.greedy else 'sampled'
    return os.path.join(
        run_dir,
        f'judged_seed_{self.seed}_episodes_{self.episodes}_{actions}_step_')


class Case(NamedTuple):
  """A played episode, as somebody judges it."""
  instruction: str
  image: np.ndarray  # uint8 [H, W, 3], the final state
  description: str  # The image in words.
  blocks: int | None  # On the board; None if the world has no such board.
  verdict: bool | None  # The world's judge's; None if it has none.


def _describe(state: board.State) -> str:
  """Puts one board into words, for those who cannot see it."""
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
               world: worlds.World) -> list[Case]:
  """Draws and counts what there is to judge.

  Args:
    episodes: Of that world.
    world: Which also says whether a state is a GridLU board.
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
  """Returns a text that tells the cases of one series from any others."""
  digest = hashlib.sha256()
  for case in cases:
    digest.update(f'{case.instruction}\n{case.image.shape}\n'.encode())
    digest.update(case.image.tobytes())
  return digest.hexdigest()


class Answers:
  """A person's answers to the first episodes of a series, in a file.

  The file is replaced as a whole: it always holds every answer given, and is
  written before a method returns.
  """

  def __init__(self, path: str, series: Series):
    """Opens the file, or makes one without answers.

    Args:
      path: See `Series.path`.
      series: Of which episodes the answers are.

    Raises:
      JudgeError: if the file is damaged or of another series, or cannot be
        read or written.
    """
    self._path = path
    self._series = series
    self._fingerprint = ''
    self._values: tuple[bool, ...] = ()
    self._text = self._read()
    if self._text is not None:
      self._parse(self._text)
    self._write(self._values)  # If that is impossible, better now than later.

  @property
  def path(self) -> str:
    """The file."""
    return self._path

  @property
  def values(self) -> tuple[bool, ...]:
    """Of the first episodes, in order, whether the instruction was done."""
    return self._values

  def use_with(self, cases: str) -> None:
    """Makes sure that the answers are to these cases.

    Args:
      cases: The `fingerprint` of those that will be shown.

    Raises:
      JudgeError: if answers were given to others.
    """
    if self._values and self._fingerprint != cases:
      raise JudgeError(
          f'{self._path} has {len(self._values)} answers to other episodes '
          'than those that were played now, of the same checkpoint and seed: '
          'another machine, other code or another world played them. Go on '
          'where they were given, or move the file away to begin again.')
    self._fingerprint = cases
    self._write(self._values)

  def append(self, done: bool) -> None:
    """Answers the next episode; raises JudgeError if it cannot be saved."""
    self._write((*self._values, done))

  def undo(self) -> None:
    """Forgets the last answer; raises JudgeError if that cannot be saved."""
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
          f'{self._path} cannot be read: {error}. It is left as it is; try '
          'again once the cause is gone.') from error
    except UnicodeDecodeError as error:
      raise JudgeError(
          f'{self._path} is no text: {error}. Expected the answers that '
          'agile_tf.judge writes; move it away to begin again.') from error

  def _parse(self, text: str) -> None:
    """Takes the answers from the file's content."""
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
        raise ValueError('expected fingerprint to be a text')
    except ValueError as error:
      raise JudgeError(
          f'{self._path} is damaged ({error}). Put back a copy of it, or move '
          'it away to begin again.') from error
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
          f'{"; ".join(differences)}. It has been renamed or edited; give it '
          'its own name back, or move it away.')
    self._values = tuple(answers)
    self._fingerprint = content['fingerprint']

  def _content(self, values: tuple[bool, ...]) -> dict[str, Any]:
    return {**self._series._asdict(), 'fingerprint': self._fingerprint,
            'answers': list(values)}

  def _write(self, values: tuple[bool, ...]) -> None:
    """Writes the file, and only then changes what is known."""
    if self._read() != self._text:
      raise JudgeError(
          f'{self._path} was changed or removed meanwhile, perhaps by a second '
          'agile_tf.judge. Nothing more is saved: let one of them go on, and '
          'start this one again.')
    text = json.dumps(self._content(values), indent=2) + '\n'
    try:
      with files.replacing(self._path) as file:
        file.write(text)
    except OSError as error:
      raise JudgeError(
          f'{self._path} cannot be written: {error}. Nothing more is saved '
          'until the directory can be written.') from error
    self._text, self._values = text, values


def other_answers(run_dir: str, series: Series) -> list[str]:
  """Says which answers to another checkpoint's episodes are not complete.

  A run that goes on saves new checkpoints, and the newest is what is judged.
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
      continue  # It is named once somebody wants to go on with it.
    if 0 < count < series.episodes:
      fix = (f'--checkpoint={step} goes on with them.'
             if step in checkpoints.steps(run_dir) else
             'That checkpoint is gone.')
      notes.append(
          f'{path} has {count} answers to episodes of step {step}, and this is '
          f'step {series.step}. {fix}')
  return notes
