"""Lets a person judge a policy by the final states of its episodes.

  python -m agile_tf.judge --run_dir=runs/arrangements --episodes=200

The paper has no reward function for GridLU-Arrangements: people looked at the
final states of 200 episodes (section 3.4). This plays such episodes and shows
them in a web page of this machine alone, without any automatic verdict: y if
the instruction was done, n if not, u takes the last answer back. Every answer
is in a file of the run directory at once; the same command goes on with the
first episode that has none. In the end, or at Ctrl-C, it reports the success,
for 4 and for 8 blocks too, and the agreement with the world's own judge.
`--automatic` reports that judge's verdicts alone.

For a run on another machine, forward the port: with --port=8000 there, `ssh -L
8000:127.0.0.1:8000 MACHINE` here.
"""

from collections.abc import Callable, Iterable, Sequence
import glob
import hashlib
import html
import http
import http.server
import io
import json
import os
import re
import signal
import sys
import threading
from typing import Any, NamedTuple

from absl import app
from absl import flags
import numpy as np
from PIL import Image
import tqdm

from agile_tf import checkpoints
from agile_tf import config as config_lib
from agile_tf import evaluate
from agile_tf import trained as trained_lib
from agile_tf import training
from agile_tf import worlds
from gridlu import arrangements
from gridlu import language
from gridlu import rendering
from gridlu import world as board

_SIDE = 560  # Pixels that the longer side of a shown state may have.
_BATCH = 64  # States that are turned into images at a time.
_MAX_BODY = 1000  # Bytes of a request.


class JudgeError(ValueError):
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


def make_cases(episodes: Sequence[evaluate.Episode],
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
    except (OSError, UnicodeDecodeError) as error:
      raise JudgeError(
          f'{self._path} cannot be read: {error}. Expected the answers that '
          'agile_tf.judge writes; move it away to begin again.') from error

  def _parse(self, text: str) -> None:
    """Takes the answers from the file's content."""
    try:
      content = json.loads(text)
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
    temporary = f'{self._path}.part'
    try:
      with open(temporary, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
      os.replace(temporary, self._path)
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
        count = len(json.load(file)['answers'])
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


def rates(cases: Sequence[Case],
          done: Sequence[bool]) -> dict[str, dict[str, Any]]:
  """Counts successes.

  Args:
    cases: Any number of cases.
    done: One verdict for each, of whomever.

  Returns:
    By group ('all', and '4 blocks' and so on where there are boards) the
    episodes, the rate and its 95 % confidence interval.
  """
  groups: dict[tuple[int, str], list[bool]] = {}
  for case, value in zip(cases, done, strict=True):
    groups.setdefault((0, 'all'), []).append(value)
    if case.blocks is not None:
      groups.setdefault(
          (case.blocks, f'{case.blocks} blocks'), []).append(value)
  return {
      name: {
          'episodes': len(values),
          'rate': sum(values) / len(values),
          'interval': evaluate.interval(sum(values), len(values)),
      } for (_, name), values in sorted(groups.items())}


def summarize(cases: Sequence[Case], answers: Sequence[bool] | None,
              judge: str) -> dict[str, Any]:
  """Reports what a person and the world's judge say.

  Args:
    cases: All of a series.
    answers: A person's, to the first of them; None to ask the world's judge
      alone, about all.
    judge: What the world's judge is called.

  Returns:
    'episodes' and 'judged', how many; 'person' and 'automatic', their
    `rates` over the judged episodes; and 'agreement': on how many of these
    they agree, with rate and interval, and how many are a success to the
    person alone and to the automatic judge alone. What nobody can say is
    left out.
  """
  if answers is not None:
    judged = cases[:len(answers)]
  else:
    judged = cases
  report: dict[str, Any] = {
      'episodes': len(cases), 'judged': len(judged), 'automatic_judge': judge}
  if not judged:
    return report
  if answers is not None:
    report['person'] = rates(judged, answers)
  verdicts = [case.verdict for case in judged if case.verdict is not None]
  if len(verdicts) < len(judged):
    return report
  report['automatic'] = rates(judged, verdicts)
  if answers is not None:
    pairs = list(zip(answers, verdicts))
    same = sum(one == other for one, other in pairs)
    report['agreement'] = {
        'episodes': same,
        'rate': same / len(pairs),
        'interval': evaluate.interval(same, len(pairs)),
        'person_alone': pairs.count((True, False)),
        'automatic_alone': pairs.count((False, True)),
    }
  return report


def _percent(values: dict[str, Any]) -> tuple[str, str]:
  """Returns a rate and its interval for people."""
  low, high = values['interval']
  return (f'{100 * values["rate"]:.1f} %',
          f'{100 * low:.1f} to {100 * high:.1f} %')


def rows(report: dict[str, Any]) -> list[list[str]]:
  """Lays a report out as a table, its headings first; [] if it is empty."""
  lines = []
  by_judge = [
      (name, report[key])
      for key, name in (('person', 'person'),
                        ('automatic', report['automatic_judge']))
      if key in report]
  for group in by_judge[0][1] if by_judge else ():
    for name, groups in by_judge:
      lines.append([group, name, str(groups[group]['episodes']),
                    *_percent(groups[group])])
  if not lines:
    return []
  return [['episodes', 'judge', 'count', 'success', '95 % interval'], *lines]


def notes(report: dict[str, Any]) -> list[str]:
  """Returns what a report says beside its table, in sentences."""
  lines = [f'{report["judged"]} of {report["episodes"]} episodes are judged.']
  if 'agreement' in report:
    values = report['agreement']
    judge = report['automatic_judge']
    rate, interval = _percent(values)
    lines.append(
        f'The person and the {judge} agree on {values["episodes"]} of them '
        f'({rate}; 95 % interval {interval}). A success to the person alone: '
        f'{values["person_alone"]}; to the {judge} alone: '
        f'{values["automatic_alone"]}.')
  return lines


def table(report: dict[str, Any]) -> str:
  """Formats a report for a terminal."""
  lines = []
  for group, judge, count, success, interval in rows(report):
    lines.append(
        f'{group:10} {judge:12} {count:>6} {success:>8}   {interval}')
  return '\n'.join([*lines, *notes(report)])


class Session:
  """One person's way through the cases; what the page may ask for.

  No verdict leaves it before every case is answered. Threads may share it.

  Attributes:
    finished: Set once the report has reached the person.
  """

  def __init__(self, cases: Sequence[Case], answers: Answers, judge: str):
    """Begins with the first case that is not answered.

    Args:
      cases: All of a series.
      answers: Those given so far.
      judge: What the world's judge is called.

    Raises:
      JudgeError: if the answers were given to other cases.
    """
    answers.use_with(fingerprint(cases))
    self._cases = cases
    self._answers = answers
    self._judge = judge
    self._lock = threading.Lock()
    self.finished = threading.Event()

  @property
  def complete(self) -> bool:
    """Whether every case is answered."""
    return len(self._answers.values) == len(self._cases)

  def view(self) -> dict[str, Any]:
    """Returns what the page shows now.

    Returns:
      'episodes' and 'answered', how many; and of the case to judge, unless all
      are answered, 'instruction' and 'description'. Its index is 'answered'.
    """
    count = len(self._answers.values)
    view = {'episodes': len(self._cases), 'answered': count}
    if count < len(self._cases):
      case = self._cases[count]
      return {**view, 'instruction': case.instruction,
              'description': case.description}
    return view

  def answer(self, answered: int, done: bool) -> dict[str, Any]:
    """Answers the present case and returns the next view.

    Args:
      answered: As in the view that the person saw.
      done: Whether the instruction was done.

    Raises:
      StaleError: if the person saw another case.
      JudgeError: if it cannot be saved; then it is not answered.
    """
    with self._lock:
      self._check(answered)
      if self.complete:
        raise StaleError('All episodes are answered.')
      self._answers.append(done)
      return self.view()

  def undo(self, answered: int) -> dict[str, Any]:
    """Takes the last answer back and returns the view of its case.

    Args:
      answered: As in the view that the person saw.

    Raises:
      StaleError: if the person saw another case, or there is no answer.
      JudgeError: if that cannot be saved; then the answer stands.
    """
    with self._lock:
      self._check(answered)
      if not answered:
        raise StaleError('There is no answer to take back.')
      self._answers.undo()
      return self.view()

  def _check(self, answered: int) -> None:
    if self.finished.is_set():
      raise StaleError('The report has been shown; no answer changes now.')
    count = len(self._answers.values)
    if answered != count:
      raise StaleError(
          f'That was for episode {answered + 1}, and the next one is '
          f'{count + 1}: another window has gone on. Nothing was changed.')

  def image(self, index: int) -> bytes:
    """Returns a case's final state as a PNG.

    Raises:
      IndexError: if there is no such case.
    """
    if not 0 <= index < len(self._cases):
      raise IndexError(f'There are {len(self._cases)} images, not {index}.')
    pixels = self._cases[index].image
    scale = max(1, _SIDE // max(pixels.shape[:2]))
    return _png(pixels.repeat(scale, axis=0).repeat(scale, axis=1))

  def report(self) -> dict[str, Any]:
    """Returns the report on what is answered, for those who may know."""
    return summarize(self._cases, self._answers.values, self._judge)

  def final_report(self) -> dict[str, Any]:
    """Returns the report for the page.

    Raises:
      StaleError: if there is something left to answer.
    """
    with self._lock:
      if not self.complete:
        raise StaleError('The report comes when all episodes are answered.')
      return self.report()

  def shows_arrangements(self) -> bool:
    """Whether all cases are of GridLU-Arrangements."""
    return all(
        case.blocks is not None and
        case.instruction.split('(', 1)[0] in language.ARRANGEMENTS
        for case in self._cases)

  def shows_boards(self) -> bool:
    """Whether all cases are GridLU boards."""
    return all(case.blocks is not None for case in self._cases)


def _png(pixels: np.ndarray) -> bytes:
  """Returns uint8 [H, W, 3] as a PNG file."""
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, 'PNG')
  return buffer.getvalue()


class Legend(NamedTuple):
  """What the arrangements' words mean, as figure 3 says it."""
  image: np.ndarray  # uint8 [H, W, 3], an example of each form
  description: str  # The image in words.
  unions: list[str]  # Words that stand for several forms, in sentences.


def legend() -> Legend:
  """Draws what GridLU-Arrangements' words mean."""
  placements = {
      word: set(map(tuple, cells.tolist()))
      for word, cells in arrangements.PLACEMENTS.items()}
  unions, examples = [], {}
  for word, own in placements.items():
    forms = [other for other in placements if placements[other] < own]
    if forms:
      unions.append(f'{word}: any of {", ".join(forms)}.')
    else:
      examples[word] = np.isin(
          np.arange(board.NUM_CELLS), sorted(own)[len(own) // 2]).reshape(
              board.SIZE, board.SIZE)
  cells = np.stack(list(examples.values()))
  rect = board.block('rect', board.COLORS[0])
  # The agent stands where no form is in its way: in a corner.
  corners = [np.argwhere(~c)[-1] for c in cells]
  images = rendering.render(board.State(
      rect * cells.astype(np.int32), np.array(corners, np.int32),
      np.zeros(len(cells), np.bool_)))
  described = []
  for word, c in examples.items():
    used = c[c.any(axis=1)][:, c.any(axis=0)]
    described.append(f'{word}: ' + ' / '.join(
        ''.join('x' if x else '-' for x in row) for row in used))
  return Legend(
      rendering.contact_sheet(images, list(examples), columns=4, scale=2),
      'An example of each form. ' + '; '.join(described) + '.', unions)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Was it done as told?</title>
<link rel="icon" href="data:,">
<style>
  :root { color-scheme: light dark; }
  body { font: 1rem/1.45 system-ui, sans-serif; max-width: 68rem;
         margin: 1rem auto; padding: 0 1rem;
         background: light-dark(#fff, #16181c);
         color: light-dark(#16181c, #eceef1); }
  h1 { font-size: 1.1rem; margin: 0; }
  progress { width: 100%; height: .5rem; }
  main { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
  #case { flex: 3 1 22rem; }
  aside { flex: 2 1 16rem; font-size: .9rem; }
  #instruction { font: 600 1.3rem/1.3 ui-monospace, monospace;
                 margin: .4rem 0; overflow-wrap: anywhere; }
  img { max-width: 100%; }
  #image { max-height: 60vh; image-rendering: pixelated; display: block; }
  button { font: inherit; padding: .5rem 1rem; margin: .6rem .4rem 0 0;
           border: 2px solid light-dark(#50565f, #a7adb8);
           border-radius: .4rem; background: light-dark(#f1f3f5, #2a2e35);
           color: inherit; }
  button:focus-visible { outline: 3px solid light-dark(#0a58ca, #8ab8ff);
                         outline-offset: 2px; }
  button:disabled { opacity: .5; }
  kbd { font-family: ui-monospace, monospace; font-weight: 700; }
  table { border-collapse: collapse; margin: .6rem 0; }
  caption { text-align: left; font-weight: 700; }
  th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; }
  #error:not(:empty) { border: 2px solid light-dark(#b3261e, #ff8a80);
                       padding: .5rem; border-radius: .4rem; }
  [hidden] { display: none !important; }
</style>
</head>
<body>
<h1>Was it done as told?</h1>
<progress id="progress" value="0" max="1" aria-label="Episodes answered">
</progress>
<p id="error" role="alert"></p>
<main>
<section id="case" aria-label="Episode">
  <div aria-live="polite" aria-atomic="true">
    <span id="status">Loading.</span>
    <p id="instruction"></p>
  </div>
  <img id="image" alt="" hidden>
  <button id="yes" type="button" aria-keyshortcuts="y" hidden>
    <kbd>y</kbd> Done as told</button>
  <button id="no" type="button" aria-keyshortcuts="n" hidden>
    <kbd>n</kbd> Not done</button>
  <button id="undo" type="button" aria-keyshortcuts="u" hidden>
    <kbd>u</kbd> Undo</button>
  <button id="finish" type="button" aria-keyshortcuts="r" hidden>
    <kbd>r</kbd> Show the report</button>
  <div id="report" tabindex="-1" hidden></div>
</section>
<!--legend-->
</main>
<noscript>This page needs JavaScript.</noscript>
<script>
'use strict';
const at = id => document.getElementById(id);
let view = null;     // What the page shows, as the program sent it.
let busy = false;    // No key counts until the next picture is there.
let over = false;

async function call(path, body) {
  if (busy || over) return;
  busy = true;
  try {
    const reply = await fetch(path, body && {
      method: 'POST', body: JSON.stringify(body),
      headers: {'Content-Type': 'application/json'}});
    const data = await reply.json();
    at('error').textContent = data.error || '';
    if (data.view) await show(data.view, body && body.done);
    if (data.rows) report(data);
  } catch (error) {
    at('error').textContent = 'The program does not answer. Start it again ' +
        'and open the address that it prints: every answer counted above is ' +
        'saved.';
  } finally {
    busy = false;
  }
}

async function show(next, done) {
  const complete = next.answered === next.episodes;
  at('progress').max = next.episodes;
  at('progress').value = next.answered;
  const said = done === undefined ? '' :
      'Saved: ' + (done ? 'done as told. ' : 'not done. ');
  at('status').textContent = said + next.answered + ' of ' + next.episodes +
      ' answered. ' + (complete ? '' : 'Episode ' + (next.answered + 1) + ':');
  at('instruction').textContent =
      complete ? 'That was the last one.' : next.instruction;
  const had = document.activeElement;
  for (const id of ['yes', 'no', 'image']) at(id).hidden = complete;
  at('finish').hidden = !complete;
  at('undo').hidden = false;
  at('undo').disabled = next.answered === 0;
  if (complete) {
    if (had === at('yes') || had === at('no')) at('finish').focus();
  } else {
    if (had === at('finish') || had === at('undo') && at('undo').disabled) {
      at('yes').focus();
    }
    at('image').alt = next.description;
    await new Promise((resolve, reject) => {
      at('image').onload = resolve;
      at('image').onerror = () => reject(Error('The image did not come.'));
      at('image').src = '/image/' + next.answered + '.png';
    });
    if (next.answered + 1 < next.episodes) {
      new Image().src = '/image/' + (next.answered + 1) + '.png';
    }
  }
  view = next;
}

function report(data) {
  over = true;
  const table = document.createElement('table');
  table.createCaption().textContent = 'Report';
  data.rows.forEach((row, i) => {
    const line = table.insertRow();
    row.forEach((text, j) => {
      const cell = document.createElement(i && j ? 'td' : 'th');
      if (!i || !j) cell.scope = i ? 'row' : 'col';
      cell.textContent = text;
      line.append(cell);
    });
  });
  at('report').append(table);
  for (const text of data.notes) {
    const line = document.createElement('p');
    line.textContent = text;
    at('report').append(line);
  }
  for (const id of ['finish', 'undo', 'instruction']) at(id).hidden = true;
  at('status').textContent = 'All answers are saved and the program has ' +
      'ended. This page can be closed.';
  at('report').hidden = false;
  at('report').focus();
}

function act(key) {
  if (!view) return;
  const answered = view.answered, complete = answered === view.episodes;
  if ((key === 'y' || key === 'n') && !complete) {
    call('/answer', {answered, done: key === 'y'});
  } else if (key === 'u' && answered) {
    call('/undo', {answered});
  } else if (key === 'r' && complete) {
    call('/report', {});
  }
}

for (const [id, key] of Object.entries(
    {yes: 'y', no: 'n', undo: 'u', finish: 'r'})) {
  at(id).addEventListener('click', () => act(key));
}
document.addEventListener('keydown', event => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  act(event.key.toLowerCase());
});
call('/view');
</script>
</body>
</html>
"""


def page(session: Session) -> str:
  """Returns the page, with what helps to read this session's images."""
  parts = []
  if session.shows_arrangements():
    help_ = legend()
    parts += [
        '<img src="/legend.png" alt="' + html.escape(help_.description) + '">',
        '<p>' + html.escape(' '.join(help_.unions)) + '</p>',
        '<p>A form may stand anywhere, turned or mirrored. SCENE: all blocks '
        'form it; Color(...): the blocks of that colour, wherever the others '
        'are.</p>']
  if session.shows_boards():
    parts.append('<p>The dark grey square is the agent. If it is white, it '
                 'carries the block in it.</p>')
  aside = ''.join(['<aside aria-label="Help">', *parts, '</aside>'])
  return _PAGE.replace('<!--legend-->', aside if parts else '')


def make_server(session: Session,
                port: int) -> http.server.ThreadingHTTPServer:
  """Makes the page's server, for this machine alone.

  Args:
    session: What it serves.
    port: Where; 0 takes any that is free, `server_port` says which.

  Raises:
    JudgeError: if the port cannot be used.
  """
  content = page(session).encode()

  class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the page's requests; a report ends the session."""

    def do_GET(self) -> None:  # noqa: N802, its name is the library's.
      if not self._is_from_here():
        return
      image = re.fullmatch(r'/image/(\d{1,9})\.png', self.path)
      if self.path == '/':
        self._send(http.HTTPStatus.OK, 'text/html; charset=utf-8', content)
      elif self.path == '/view':
        self._send_json(http.HTTPStatus.OK, {'view': session.view()})
      elif self.path == '/legend.png' and session.shows_arrangements():
        self._send(http.HTTPStatus.OK, 'image/png', _png(legend().image))
      elif image:
        try:
          data = session.image(int(image[1]))
        except IndexError as error:
          self._send_json(http.HTTPStatus.NOT_FOUND, {'error': str(error)})
          return
        self._send(http.HTTPStatus.OK, 'image/png', data)
      else:
        self._send_json(http.HTTPStatus.NOT_FOUND,
                        {'error': f'There is nothing at {self.path}.'})

    def do_POST(self) -> None:  # noqa: N802
      if not self._is_from_here():
        return
      body = self._body()
      if body is None:
        self._send_json(
            http.HTTPStatus.BAD_REQUEST,
            {'error': "This request is not the page's; reload the page."})
        return
      try:
        if self.path == '/report':
          report = session.final_report()
          self._send_json(http.HTTPStatus.OK,
                          {'rows': rows(report), 'notes': notes(report)})
          session.finished.set()
          return
        if self.path == '/undo':
          view = session.undo(body['answered'])
        else:
          view = session.answer(body['answered'], body['done'])
        self._send_json(http.HTTPStatus.OK, {'view': view})
      except JudgeError as error:
        status = (http.HTTPStatus.CONFLICT if isinstance(error, StaleError)
                  else http.HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send_json(status, {'error': str(error), 'view': session.view()})

    def _is_from_here(self) -> bool:
      """Refuses requests that another site's page makes in the browser."""
      name = re.sub(r':\d+$', '', self.headers.get('Host', ''))
      if name in ('127.0.0.1', 'localhost'):
        return True
      self._send_json(http.HTTPStatus.FORBIDDEN, {
          'error': f'{name} is not this machine: open http://127.0.0.1.'})
      return False

    def _body(self) -> dict[str, Any] | None:
      """Returns a request's values; None if it is not one of the page's."""
      wanted = {'/answer': {'answered': int, 'done': bool},
                '/undo': {'answered': int}, '/report': {}}.get(self.path)
      length = self.headers.get('Content-Length', '')
      # Other sites' pages cannot send this type without asking first.
      if (wanted is None or not re.fullmatch(r'\d{1,9}', length) or
          int(length) > _MAX_BODY or
          self.headers.get('Content-Type') != 'application/json'):
        return None
      try:
        body = json.loads(self.rfile.read(int(length)))
      except ValueError:
        return None
      if not isinstance(body, dict) or {
          name: type(value) for name, value in body.items()} != wanted:
        return None
      return body

    def _send_json(self, status: http.HTTPStatus,
                   values: dict[str, Any]) -> None:
      self._send(status, 'application/json', json.dumps(values).encode())

    def _send(self, status: http.HTTPStatus, kind: str, data: bytes) -> None:
      self.send_response(status)
      self.send_header('Content-Type', kind)
      self.send_header('Content-Length', str(len(data)))
      self.send_header('Cache-Control', 'no-store')
      self.send_header('X-Content-Type-Options', 'nosniff')
      self.send_header(
          'Content-Security-Policy',
          "default-src 'none'; connect-src 'self'; img-src 'self' data:; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'")
      self.end_headers()
      self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
      """Says nothing: the terminal is for the report."""

  try:
    return http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
  except OSError as error:
    raise JudgeError(
        f'--port={port} cannot be used: {error}. Expected a free port; '
        '--port=0 takes any.') from error


def serve(session: Session, port: int, announce: Callable[[str], None]) -> None:
  """Serves the page until the report was shown, or Ctrl-C or SIGTERM.

  Args:
    session: What to show.
    port: See `make_server`.
    announce: Called with the address once it can be opened.

  Raises:
    JudgeError: if the port cannot be used.
  """
  server = make_server(session, port)
  stopped = []
  # A signal may come twice; neither it nor the second one may spoil the report.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopped.append(True))
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  announce(f'http://127.0.0.1:{server.server_port}/')
  while not stopped and not session.finished.wait(0.2):
    pass
  server.shutdown()
  server.server_close()


def define_flags() -> None:
  """Defines the program's flags."""
  evaluate.define_play_flags(episodes=200)
  flags.DEFINE_bool(
      'automatic', False, "Report what the world's ground truth or checker "
      'says, without a page and without a person.')
  flags.DEFINE_integer(
      'port', 0, 'Where the page is served, on 127.0.0.1; 0 takes any free '
      'port.', lower_bound=0, upper_bound=65535)


def _say(text: str) -> None:
  """Tells the person at the terminal; the report alone goes to stdout."""
  print(text, file=sys.stderr, flush=True)


def judge(run_dir: str, checkpoint: int | None, series: Series,
          automatic: bool, port: int) -> dict[str, Any]:
  """Plays the episodes of a run and has them judged.

  Args:
    run_dir: The run's directory, where the answers are kept.
    checkpoint: Its step; None for the newest.
    series: Which episodes; its step is replaced by the checkpoint's.
    automatic: Whether to ask the world's judge alone.
    port: See `make_server`.

  Returns:
    The report.

  Raises:
    ConfigError, CheckpointError, WorldError or JudgeError: if that is not
      possible.
  """
  trained = trained_lib.load(run_dir, checkpoint)
  world = trained.world
  series = series._replace(step=trained.steps)
  name = 'ground truth' if world.has_ground_truth else 'checker'
  answers = None
  if not automatic:
    for note in other_answers(run_dir, series):
      _say(f'Note: {note}')
    answers = Answers(series.path(run_dir), series)
  elif not world.has_ground_truth and world.checker is None:
    raise JudgeError(
        f'--automatic: the world of {run_dir}, {trained.config.world!r}, has '
        'neither a ground truth nor a checker. Leave --automatic out and '
        'judge yourself.')
  # Nobody asks the reward model here.
  played = evaluate.play(
      trained._replace(phi=None), series.episodes, series.seed, series.greedy)
  cases = make_cases(
      list(tqdm.tqdm(played, total=series.episodes, unit=' episodes',
                     disable=None, leave=False)), world)
  report = {'run_dir': run_dir, 'steps': trained.steps,
            'greedy': series.greedy, 'seed': series.seed}
  if answers is None:
    return {**report, **summarize(cases, None, name)}
  session = Session(cases, answers, name)
  if not session.complete:
    serve(session, port, lambda address: _say(
        f'Open {address} to judge {series.episodes} episodes, '
        f'{len(answers.values)} of them answered. Ctrl-C ends this; '
        f'{answers.path} has every answer.'))
  return {**report, 'answers': answers.path, **session.report()}


def main(argv: Sequence[str]) -> None:
  """Has a run judged and prints the report."""
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {" ".join(argv[1:])}.')
  values = flags.FLAGS
  training.prepare_device(config_lib.Config())
  try:
    report = judge(
        values.run_dir, values.checkpoint,
        Series(-1, values.seed, values.episodes, values.greedy),
        values.automatic, values.port)
  except (config_lib.ConfigError, checkpoints.CheckpointError,
          worlds.WorldError, JudgeError) as error:
    sys.exit(f'Error: {error}')
  except KeyboardInterrupt:
    sys.exit('Stopped before there was anything to judge; the answers are as '
             'they were.')
  if values.json:
    print(json.dumps(report, indent=2))
  else:
    print(f'{values.run_dir} at step {report["steps"]}, '
          f'{"greedy" if values.greedy else "sampled"} actions')
    print(table(report))


if __name__ == '__main__':
  define_flags()
  app.run(main)
