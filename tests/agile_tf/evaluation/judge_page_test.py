"""Tests for the page on which a person judges, and its server."""

import http.client
import io
import json
import os
import re
import socket
import threading
from unittest import mock
import urllib.error
import urllib.request

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from PIL import Image

from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import judge_report
from gridlu import rendering
from tests.agile_tf.evaluation import judged


class LegendTest(absltest.TestCase):

  def test_shows_each_form_and_lists_the_rest(self):
    legend = judge_page.legend()
    self.assertEqual(legend.unions, [
        'Connected: any of Square, Line, Triangle, Eel, Snake.',
        'Disconnected: any of Dline, Circle.'])
    self.assertIn('Circle: -x- / x-x / -x-;', legend.description)
    self.assertIn('Square: xx / xx;', legend.description)
    # Four in a row, two rows.
    self.assertGreater(legend.image.shape[1], 4 * 2 * rendering.IMAGE_SIZE)


class SessionTest(absltest.TestCase):

  def _session(self, verdicts=(True, False, True, False)):
    path = os.path.join(self.create_tempdir().full_path, 'answers.json')
    return judge_page.Session(
        judged.cases(verdicts), judge_cases.Answers(path, judged.SERIES),
        'checker')

  def test_goes_through_the_cases(self):
    session = self._session()
    view = session.view()
    self.assertEqual(view, {
        'episodes': 4, 'answered': 0, 'instruction': judged.SNAKE,
        'description': judged.cases()[0].description})
    for i in range(4):
      self.assertFalse(session.complete)
      with self.assertRaisesRegex(judge_cases.StaleError, 'when all episodes'):
        session.final_report()
      self.assertEqual(view['instruction'], judged.cases()[i].instruction)
      view = session.answer(i, i % 2 == 0)
    self.assertEqual(view, {'episodes': 4, 'answered': 4})
    with self.assertRaisesRegex(judge_cases.StaleError, 'All episodes'):
      session.answer(4, True)
    self.assertEqual(session.undo(4)['answered'], 3)
    session.answer(3, True)
    self.assertEqual(session.final_report()['agreement']['episodes'], 3)
    session.finished.set()
    with self.assertRaisesRegex(judge_cases.StaleError, 'has been shown'):
      session.undo(4)

  def test_a_second_window_changes_nothing(self):
    session = self._session()
    session.answer(0, True)
    with self.assertRaisesRegex(judge_cases.StaleError, 'for episode 1,'):
      session.answer(0, False)
    with self.assertRaisesRegex(judge_cases.StaleError, 'for episode 1,'):
      session.undo(0)
    session.undo(1)
    with self.assertRaisesRegex(
        judge_cases.StaleError, 'no answer to undo'):
      session.undo(0)

  def test_images_are_big(self):
    session = self._session()
    with Image.open(io.BytesIO(session.image(2))) as image:
      pixels = np.asarray(image)
    np.testing.assert_array_equal(
        pixels[::10, ::10], rendering.render(judged.EIGHT))
    for index in (-1, 4):
      with self.assertRaises(IndexError):
        session.image(index)


class ServerTest(parameterized.TestCase):

  def _serve(self, verdicts=(True, False, True, False), cases=None):
    self.path = os.path.join(self.create_tempdir().full_path, 'answers.json')
    session = judge_page.Session(
        cases or judged.cases(verdicts),
        judge_cases.Answers(self.path, judged.SERIES), 'checker')
    server = judge_page.make_server(session, 0)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={'poll_interval': .01})
    thread.start()
    self.addCleanup(server.server_close)
    self.addCleanup(thread.join)
    self.addCleanup(server.shutdown)
    self.session, self.server = session, server
    self.address = f'http://127.0.0.1:{server.server_port}'

  def _fetch(self, path, body=None, **headers):
    """Returns status, type and bytes."""
    request = urllib.request.Request(self.address + path, headers=headers)
    if body is not None:
      request.data = body if isinstance(body, bytes) else json.dumps(
          body).encode()
      request.headers.setdefault('Content-type', 'application/json')
    try:
      with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.status, reply.headers['Content-Type'], reply.read()
    except urllib.error.HTTPError as error:
      with error:
        return error.code, error.headers['Content-Type'], error.read()

  def _json(self, path, body=None, **headers):
    status, _, content = self._fetch(path, body, **headers)
    return status, json.loads(content)

  def test_the_page_is_whole(self):
    self._serve()
    status, kind, content = self._fetch('/')
    text = content.decode()
    self.assertEqual((status, kind), (200, 'text/html; charset=utf-8'))
    self.assertNotRegex(text, 'https?://')  # Loads no other sites.
    self.assertNotIn('<!--', text)
    self.assertIn('<html lang="en">', text)
    self.assertIn('aria-live', text)
    # Every image has alternative text, and every id in the script exists.
    self.assertLen(re.findall('<img[^>]* alt="', text),
                   len(re.findall('<img ', text)))
    self.assertContainsSubset(
        set(re.findall(r"at\('(\w+)'\)", text)),
        set(re.findall(r'id="(\w+)"', text)))
    status, kind, content = self._fetch('/legend.png')
    self.assertEqual((status, kind), (200, 'image/png'))
    Image.open(io.BytesIO(content)).verify()

  def test_only_arrangements_have_a_legend(self):
    cases = [case._replace(blocks=None) for case in judged.cases()]
    self._serve(cases=cases)
    self.assertNotIn(b'legend', self._fetch('/')[2])
    self.assertNotIn(b'grey square', self._fetch('/')[2])
    self.assertEqual(self._fetch('/legend.png')[0], 404)
    cases = [case._replace(instruction='NorthFrom(...)')
             for case in judged.cases()]
    self._serve(cases=cases)
    self.assertNotIn(b'legend', self._fetch('/')[2])
    self.assertIn(b'grey square', self._fetch('/')[2])

  def test_a_person_judges_all(self):
    self._serve()
    self.assertEqual(self._json('/view')[1]['view']['answered'], 0)
    for i in range(4):
      status, kind, content = self._fetch(f'/image/{i}.png')
      self.assertEqual((status, kind), (200, 'image/png'))
      self.assertEqual(content, self.session.image(i))
      status, reply = self._json('/answer', {'answered': i, 'done': True})
      self.assertEqual((status, reply['view']['answered']), (200, i + 1))
      with open(self.path, encoding='utf-8') as file:
        self.assertLen(json.load(file)['answers'], i + 1)
    self.assertEqual(
        self._json('/undo', {'answered': 4})[1]['view']['answered'], 3)
    self._json('/answer', {'answered': 3, 'done': False})
    self.assertFalse(self.session.finished.is_set())
    status, reply = self._json('/report', {})
    self.assertEqual(status, 200)
    report = self.session.report()
    self.assertEqual(
        reply, {'rows': judge_report.rows(report),
                'notes': judge_report.notes(report)})
    self.assertTrue(self.session.finished.wait(5))
    self.assertEqual(self._json('/undo', {'answered': 4})[0], 409)

  def test_nothing_tells_the_verdict_before_the_end(self):
    everything = []
    for verdicts in ((True,) * 4, (False,) * 4, (None,) * 4):
      self._serve(verdicts)
      seen = [self._fetch(path) for path in (
          '/', '/legend.png', *(f'/image/{i}.png' for i in range(4)))]
      for i in range(4):
        seen += [
            self._fetch('/view'), self._fetch('/report', {}),
            self._fetch('/answer', {'answered': i, 'done': True}),
            self._fetch('/undo', {'answered': i + 1}),
            self._fetch('/answer', {'answered': i, 'done': False})]
      everything.append(seen)
    self.assertEqual(everything[0], everything[1])
    self.assertEqual(everything[0], everything[2])
    self.assertNotIn(b'verdict', b''.join(x[2] for x in everything[0]))

  def test_an_old_page_is_told_where_we_are(self):
    self._serve()
    self._json('/answer', {'answered': 0, 'done': True})
    for path, body in (('/answer', {'answered': 0, 'done': False}),
                       ('/undo', {'answered': 2}), ('/report', {})):
      status, reply = self._json(path, body)
      self.assertEqual(status, 409)
      self.assertTrue(reply['error'])
      self.assertEqual(reply['view']['answered'], 1)
    self.assertEqual(self.session.report()['person']['all']['rate'], 1.0)

  def test_a_failure_to_save_reaches_the_page(self):
    self._serve()
    os.mkdir(f'{self.path}.{socket.gethostname()}.{os.getpid()}.part')
    status, reply = self._json('/answer', {'answered': 0, 'done': True})
    self.assertEqual(status, 500)
    self.assertIn('cannot be written', reply['error'])
    self.assertEqual(reply['view']['answered'], 0)

  @parameterized.parameters(
      ('/answer', b''), ('/answer', b'{'), ('/answer', []),
      ('/answer', {'answered': 0}), ('/answer', {'answered': 0, 'done': 1}),
      ('/answer', {'answered': False, 'done': True}),
      ('/answer', {'answered': 0, 'done': True, 'x': 1}),
      ('/answer', b'[' * 990), ('/answer', b'\xff'),
      ('/answer', b' ' * 2000), ('/undo', {}), ('/nothing', {}), ('/', {}))
  def test_other_requests_are_refused(self, path, body):
    self._serve()
    status, reply = self._json(path, body)
    self.assertEqual(status, 400)
    self.assertIn('Reload', reply['error'])
    self.assertEqual(self.session.view()['answered'], 0)

  def test_other_sites_pages_are_refused(self):
    self._serve()
    good = {'answered': 0, 'done': True}
    self.assertEqual(self._json('/answer', good, Host='evil.com:80')[0], 403)
    self.assertEqual(self._json('/view', Host='evil.com')[0], 403)
    self.assertEqual(
        self._json('/answer', good, **{'Content-type': 'text/plain'})[0], 400)
    self.assertEqual(self.session.view()['answered'], 0)
    for origin in 'http://evil.com', 'null', 'http://127.0.0.1:1', '':
      self.assertEqual(self._json('/answer', good, Origin=origin)[0], 403)
      self.assertEqual(self._json('/view', Origin=origin)[0], 403)
    self.assertEqual(self.session.view()['answered'], 0)
    self.assertEqual(self._json('/view', Origin=self.address)[0], 200)
    # A forwarded port may have another number.
    self.assertEqual(
        self._json('/answer', good, Host='localhost:8000')[0], 200)
    self.assertEqual(self.server.server_address[0], '127.0.0.1')

  @parameterized.parameters(
      '/nothing', '/image/4.png', '/image/-1.png', '/image/x.png',
      '/image/9999999999.png', '/../etc/passwd', '/answer')
  def test_there_is_nothing_else(self, path):
    self._serve()
    self.assertEqual(self._json(path)[0], 404)

  def test_a_lost_connection_ends_nothing(self):
    self._serve()
    connection = http.client.HTTPConnection(
        '127.0.0.1', self.server.server_port, timeout=30)
    connection.request('GET', '/image/0.png')
    connection.close()
    self.assertEqual(self._json('/view')[0], 200)

  def test_an_idle_connection_is_closed(self):
    with mock.patch.object(judge_page, '_IDLE_SECONDS', 0.2):
      self._serve()
    for start in (b'', b'GET /view', b'POST /answer HTTP/1.0\r\n'
                  b'Host: localhost\r\nContent-Type: application/json\r\n'
                  b'Content-Length: 30\r\n\r\n{'):
      with socket.create_connection(
          ('127.0.0.1', self.server.server_port), timeout=30) as connection:
        connection.sendall(start)
        self.assertEqual(connection.recv(1000), b'')
    self.assertEqual(self._json('/view')[0], 200)

  def test_no_other_page_may_frame_it(self):
    self._serve()
    with urllib.request.urlopen(self.address, timeout=30) as reply:
      self.assertIn("frame-ancestors 'none'",
                    reply.headers['Content-Security-Policy'])

  def test_no_picture_of_another_series_is_kept(self):
    self._serve()
    for path in '', '/view', '/image/0.png':
      with urllib.request.urlopen(self.address + path, timeout=30) as reply:
        self.assertEqual(reply.headers['Cache-Control'], 'no-store')

  def test_a_port_in_use_is_named(self):
    self._serve()
    port = self.server.server_port
    with self.assertRaisesRegex(
        judge_cases.JudgeError, f'--port={port} cannot be used.*--port=0'):
      judge_page.make_server(self.session, port)


if __name__ == '__main__':
  absltest.main()
