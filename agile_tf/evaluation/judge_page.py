"""The web page on which a person judges episodes, and its server."""

from collections.abc import Callable, Sequence
import html
import http
import http.server
import io
import json
import os
import re
import signal
import threading
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import judge_report
from gridlu import arrangements
from gridlu import files
from gridlu import language
from gridlu import rendering
from gridlu import world as board

_SIDE = 560  # The longer side of a shown state, in pixels at most.
_MAX_BODY = 1000  # Largest body of a request, in bytes.
_IDLE_SECONDS = 10  # A connection that is silent for longer is closed.


class Session:
  """Answers the requests of the page, case by case.

  It gives no verdict of the automatic judge before every case is answered.
  Threads may share it.

  Attributes:
    finished: Set after the report was sent to the page.
  """

  def __init__(self, cases: Sequence[judge_cases.Case],
               answers: judge_cases.Answers, judge: str):
    """Starts with the first case that is not answered.

    Args:
      cases: All cases of a series.
      answers: The answers so far.
      judge: The name of the automatic judge.

    Raises:
      JudgeError: if the answers belong to other cases.
    """
    answers.use_with(judge_cases.fingerprint(cases))
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
      'episodes' and 'answered', how many there are of both. Unless all are
      answered, also 'instruction' and 'description' of the current case, whose
      index is 'answered'.
    """
    count = len(self._answers.values)
    view = {'episodes': len(self._cases), 'answered': count}
    if count < len(self._cases):
      case = self._cases[count]
      return {**view, 'instruction': case.instruction,
              'description': case.description}
    return view

  def answer(self, answered: int, done: bool) -> dict[str, Any]:
    """Saves the answer to the current case and returns the next view.

    Args:
      answered: The 'answered' of the view that the person saw.
      done: Whether the instruction was carried out.

    Raises:
      StaleError: if the person saw another case.
      JudgeError: if the answer cannot be saved. Nothing changes then.
    """
    with self._lock:
      self._check(answered)
      if self.complete:
        raise judge_cases.StaleError('All episodes are answered.')
      self._answers.append(done)
      return self.view()

  def undo(self, answered: int) -> dict[str, Any]:
    """Removes the last answer and returns the view of its case.

    Args:
      answered: The 'answered' of the view that the person saw.

    Raises:
      StaleError: if the person saw another case, or there is no answer.
      JudgeError: if the change cannot be saved. Nothing changes then.
    """
    with self._lock:
      self._check(answered)
      if not answered:
        raise judge_cases.StaleError('There is no answer to undo.')
      self._answers.undo()
      return self.view()

  def _check(self, answered: int) -> None:
    if self.finished.is_set():
      raise judge_cases.StaleError(
          'The report has been shown. Answers can no longer change.')
    count = len(self._answers.values)
    if answered != count:
      raise judge_cases.StaleError(
          f'That was for episode {answered + 1}, but the current one is '
          f'{count + 1}, perhaps because another window is open. Nothing was '
          'changed.')

  def image(self, index: int) -> bytes:
    """Returns a case's final state as a PNG.

    Raises:
      IndexError: if there is no such case.
    """
    if not 0 <= index < len(self._cases):
      raise IndexError(
          f'There is no image {index}: there are {len(self._cases)}.')
    pixels = self._cases[index].image
    scale = max(1, _SIDE // max(pixels.shape[:2]))
    return _png(pixels.repeat(scale, axis=0).repeat(scale, axis=1))

  def report(self) -> dict[str, Any]:
    """Returns the report on the answers so far."""
    return judge_report.summarize(
        self._cases, self._answers.values, self._judge)

  def final_report(self) -> dict[str, Any]:
    """Returns the report for the page.

    Raises:
      StaleError: if not every case is answered.
    """
    with self._lock:
      if not self.complete:
        raise judge_cases.StaleError(
            'The report is shown when all episodes are answered.')
      return self.report()

  def shows_arrangements(self) -> bool:
    """Returns whether all cases are of GridLU-Arrangements."""
    return all(
        case.blocks is not None and
        case.instruction.split('(', 1)[0] in language.ARRANGEMENTS
        for case in self._cases)

  def shows_boards(self) -> bool:
    """Returns whether all cases are GridLU boards."""
    return all(case.blocks is not None for case in self._cases)


def _png(pixels: np.ndarray) -> bytes:
  """Returns uint8 [H, W, 3] as a PNG file."""
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, 'PNG')
  return buffer.getvalue()


class Legend(NamedTuple):
  """The words of GridLU-Arrangements explained, as in figure 3."""
  image: np.ndarray  # uint8 [H, W, 3], an example of each form
  description: str  # The image in words.
  unions: list[str]  # A sentence for each word that stands for several forms.


def legend() -> Legend:
  """Returns the legend of the words of GridLU-Arrangements."""
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
  # The agent is in the last cell without a block.
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


def page(session: Session) -> str:
  """Returns the HTML page, with a legend that fits the session's images."""
  parts = []
  if session.shows_arrangements():
    help_ = legend()
    parts += [
        '<img src="/legend.png" alt="' + html.escape(help_.description) + '">',
        '<p>' + html.escape(' '.join(help_.unions)) + '</p>',
        '<p>A form may be anywhere on the board, rotated or mirrored. SCENE: '
        'all blocks make the form. Color(...): the blocks of that colour make '
        'it; the others may be anywhere.</p>']
  if session.shows_boards():
    parts.append('<p>The dark grey square is the agent. If it is white, the '
                 'agent carries the block in it.</p>')
  aside = ''.join(['<aside aria-label="Help">', *parts, '</aside>'])
  path = os.path.join(os.path.dirname(__file__), 'judge_page.html')
  with open(path, encoding='utf-8') as file:
    return file.read().replace('<!--legend-->', aside if parts else '')


def make_server(session: Session,
                port: int) -> http.server.ThreadingHTTPServer:
  """Returns the server of the page, which only this machine can reach.

  Args:
    session: Answers the page's requests.
    port: The port; 0 for any free one, which is then its `server_port`.

  Raises:
    JudgeError: if the port cannot be used.
  """
  content = page(session).encode()

  class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the page's requests; sending the report ends the session."""

    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:  # noqa: N802, the library's name.
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
                        {'error': f'Nothing is at {self.path}.'})

    def do_POST(self) -> None:  # noqa: N802
      if not self._is_from_here():
        return
      body = self._body()
      if body is None:
        self._send_json(
            http.HTTPStatus.BAD_REQUEST,
            {'error': 'This request does not come from the page. Reload it.'})
        return
      try:
        if self.path == '/report':
          report = session.final_report()
          self._send_json(http.HTTPStatus.OK,
                          {'rows': judge_report.rows(report),
                           'notes': judge_report.notes(report)})
          session.finished.set()
          return
        if self.path == '/undo':
          view = session.undo(body['answered'])
        else:
          view = session.answer(body['answered'], body['done'])
        self._send_json(http.HTTPStatus.OK, {'view': view})
      except judge_cases.JudgeError as error:
        is_stale = isinstance(error, judge_cases.StaleError)
        status = (http.HTTPStatus.CONFLICT if is_stale
                  else http.HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send_json(status, {'error': str(error), 'view': session.view()})

    def _is_from_here(self) -> bool:
      """Returns whether a request comes from this page; else refuses it.

      A page of another site in the same browser names its own host or origin.
      """
      host = self.headers.get('Host', '')
      name = re.sub(r':\d+$', '', host)
      # Browsers send the origin of the page that makes a request.
      origin = self.headers.get('Origin', f'http://{host}')
      if name not in ('127.0.0.1', 'localhost'):
        error = f'{name} is not this machine. Open http://127.0.0.1.'
      elif origin != f'http://{host}':
        error = f"{origin} is another site. Answer on this machine's page."
      else:
        return True
      self._send_json(http.HTTPStatus.FORBIDDEN, {'error': error})
      return False

    def _body(self) -> dict[str, Any] | None:
      """Returns a request's values; None if the page makes no such request."""
      wanted = {'/answer': {'answered': int, 'done': bool},
                '/undo': {'answered': int}, '/report': {}}.get(self.path)
      length = self.headers.get('Content-Length', '')
      # A page of another site cannot send this type without a preflight.
      if (wanted is None or not re.fullmatch(r'\d{1,9}', length) or
          int(length) > _MAX_BODY or
          self.headers.get('Content-Type') != 'application/json'):
        return None
      try:
        body = files.parse_json(self.rfile.read(int(length)))
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
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
      self.end_headers()
      self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
      """Logs nothing: the terminal is for the report."""

  try:
    return http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
  except OSError as error:
    raise judge_cases.JudgeError(
        f'--port={port} cannot be used: {error}. Expected a free port; '
        '--port=0 takes any free one.') from error


def serve(session: Session, port: int, announce: Callable[[str], None]) -> None:
  """Serves the page until the report was sent, or until Ctrl-C or SIGTERM.

  Args:
    session: Answers the page's requests.
    port: See `make_server`.
    announce: Called with the page's address once the server runs.

  Raises:
    JudgeError: if the port cannot be used.
  """
  server = make_server(session, port)
  stopped = []
  # A second signal must not interrupt the report either.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopped.append(True))
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  announce(f'http://127.0.0.1:{server.server_port}/')
  while not stopped and not session.finished.wait(0.2):
    pass
  server.shutdown()
  server.server_close()
