"""A browser without a window, driven over pipes with Chromium's protocol."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from typing import Any

PATH = next(filter(None, map(shutil.which, (
    'chromium', 'chromium-browser', 'google-chrome'))), None)
_SECONDS = 60  # To wait for anything, on a busy machine.
# Of the directions of pipes, as Chromium expects them.
_READS, _WRITES = 3, 4


def _high(descriptor: int) -> int:
  """Moves a file descriptor away from those that Chromium expects."""
  moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
  os.close(descriptor)
  return moved


class Browser:
  """A browser with one page."""

  def __init__(self):
    assert PATH is not None
    self._profile = tempfile.mkdtemp()
    commands, self._out = map(_high, os.pipe())
    self._in, answers = map(_high, os.pipe())
    self._process = os.posix_spawn(
        PATH,
        [PATH, '--headless', '--no-sandbox', '--disable-gpu', '--no-first-run',
         '--remote-debugging-pipe', f'--user-data-dir={self._profile}'],
        os.environ, setsid=True, file_actions=[
            (os.POSIX_SPAWN_DUP2, commands, _READS),
            (os.POSIX_SPAWN_DUP2, answers, _WRITES),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
    os.close(commands)
    os.close(answers)
    self._number = 0
    self._unread = b''
    self._session: str | None = None
    self.problems: list[Any] = []  # What the page has thrown or logged.
    target = self.send('Target.createTarget', url='about:blank')['targetId']
    self._session = self.send(
        'Target.attachToTarget', targetId=target, flatten=True)['sessionId']
    for domain in 'Page', 'Runtime', 'Log':
      self.send(f'{domain}.enable')

  def close(self) -> None:
    # It leads a group: its own processes, and no others.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process, signal.SIGKILL)
    os.waitpid(self._process, 0)
    os.close(self._in)
    os.close(self._out)
    shutil.rmtree(self._profile, ignore_errors=True)

  def send(self, method: str, **parameters: Any) -> dict[str, Any]:
    """Gives a command of the protocol; returns its result."""
    self._number += 1
    message = {'id': self._number, 'method': method, 'params': parameters}
    if self._session:
      message['sessionId'] = self._session
    os.write(self._out, json.dumps(message).encode() + b'\0')
    while True:
      received = self._receive()
      if received.get('id') == self._number:
        assert 'result' in received, received
        return received['result']
      if received.get('method') in (
          'Runtime.exceptionThrown', 'Runtime.consoleAPICalled',
          'Log.entryAdded'):
        self.problems.append(received['params'])

  def _receive(self) -> dict[str, Any]:
    while b'\0' not in self._unread:
      part = os.read(self._in, 1 << 16)
      assert part, 'The browser has ended.'
      self._unread += part
    message, self._unread = self._unread.split(b'\0', 1)
    return json.loads(message)

  def evaluate(self, code: str) -> Any:
    """Returns the value of JavaScript in the page."""
    result = self.send('Runtime.evaluate', expression=code, returnByValue=True)
    assert 'exceptionDetails' not in result, result
    return result['result'].get('value')

  def wait(self, condition: str) -> None:
    """Waits until JavaScript is true in the page."""
    end = time.monotonic() + _SECONDS
    while not self.evaluate(f'!!({condition})'):
      assert time.monotonic() < end, condition
      time.sleep(.02)

  def open(self, address: str, width: int, height: int, touch: bool = False,
           dark: bool = False) -> None:
    self.send('Emulation.setDeviceMetricsOverride', width=width, height=height,
              deviceScaleFactor=1, mobile=touch)
    self.send('Emulation.setTouchEmulationEnabled', enabled=touch)
    self.send('Emulation.setEmulatedMedia', features=[
        {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
    # Addresses that differ after the # alone are one page.
    self.send('Page.navigate', url='about:blank')
    self.wait('location.href === "about:blank"')
    self.send('Page.navigate', url=address)
    self.wait('document.readyState === "complete" && '
              'location.protocol === "file:"')

  def center(self, selector: str) -> tuple[float, float]:
    """Returns the place of an element's centre in the window."""
    found = self.evaluate(
        f'(() => {{ const box = document.querySelector({json.dumps(selector)})'
        '.getBoundingClientRect(); return [box.x + box.width / 2, '
        'box.y + box.height / 2]; })()')
    return found[0], found[1]

  def click(self, selector: str) -> None:
    self.evaluate(f'document.querySelector({json.dumps(selector)})'
                  '.scrollIntoView({block: "center"})')
    x, y = self.center(selector)
    for kind in 'mousePressed', 'mouseReleased':
      self.send('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left',
                clickCount=1)

  def drag(self, start: tuple[float, float], end: tuple[float, float],
           touch: bool = False) -> None:
    """Drags with the mouse or with a finger."""
    steps = [tuple(a + (b - a) * i / 6 for a, b in zip(start, end))
             for i in range(7)]
    if touch:
      for i, (x, y) in enumerate(steps):
        self.send('Input.dispatchTouchEvent',
                  type='touchMove' if i else 'touchStart',
                  touchPoints=[{'x': x, 'y': y}])
      self.send('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])
      return
    kinds = ['mousePressed'] + ['mouseMoved'] * 6 + ['mouseReleased']
    for kind, (x, y) in zip(kinds, [*steps, steps[-1]]):
      self.send('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left',
                buttons=int(kind != 'mouseReleased'), clickCount=1)

  def press(self, *keys: str) -> None:
    """Presses keys by their names in JavaScript, such as 'w' or 'Enter'."""
    for key in keys:
      text = {'Enter': '\r'}.get(key, key if len(key) == 1 else '')
      self.send('Input.dispatchKeyEvent', type='keyDown', key=key, text=text)
      self.send('Input.dispatchKeyEvent', type='keyUp', key=key)

  def write(self, text: str) -> None:
    self.send('Input.insertText', text=text)
