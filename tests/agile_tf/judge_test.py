"""Tests for judging by eye: the answers, the report, the page's server."""

import dataclasses
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from PIL import Image
import tensorflow as tf

from agile_tf import checkpoints
from agile_tf import config as config_lib
from agile_tf import evaluate
from agile_tf import judge
from agile_tf import judge_cases
from agile_tf import judge_page
from agile_tf import judge_report
from agile_tf import worlds
from gridlu import rendering
from gridlu import world
from tests.agile_tf import tiny
from tests.gridlu import boards

SERIES = judge_cases.Series(step=64, seed=3, episodes=4, greedy=False)
SNAKE = 'Snake(AGENT, SCENE)'
RED_SNAKE = "Snake(AGENT, Color('red', SCENE))"

DONE = boards.draw("""
    .  .  .  .  .@ /
    .  rr rr .  .  /
    .  .  rr rr .""")
CARRIED = boards.draw("""
    .  rr .   .  . /
    .  rr .   .  . /
    .  .  rr! .  . /
    .  .  rr  .  .""")
EIGHT = boards.draw("""
    rr rr .  .  .  /
    .@ rr rr .  br /
    .  .  .  .  .  /
    .  .  br br br""")
SCATTERED = boards.draw("""
    rr@ .  .  .  rr /
    br  .  br .  .  /
    .   .  .  .  .  /
    br  .  br .  .  /
    rr  .  .  .  rr""")


def _episode(instruction, state, truth):
  return evaluate.Episode(
      instruction, world.pack(state), None,
      None if truth is None else np.array([False, truth]))


def _cases(verdicts=(True, False, True, False)):
  episodes = [
      _episode(*row) for row in zip(
          (SNAKE, SNAKE, RED_SNAKE, RED_SNAKE),
          (DONE, CARRIED, EIGHT, SCATTERED), verdicts)]
  return judge_cases.make_cases(episodes, worlds.gridlu_world('arrangements'))


class CasesTest(absltest.TestCase):

  def test_boards_are_drawn_counted_and_described(self):
    cases = _cases()
    for case, state in zip(cases, (DONE, CARRIED, EIGHT, SCATTERED)):
      np.testing.assert_array_equal(case.image, rendering.render(state))
    # A carried block is on the board.
    self.assertEqual([case.blocks for case in cases], [4, 4, 8, 8])
    self.assertEqual(
        [case.verdict for case in cases], [True, False, True, False])
    self.assertEqual(
        cases[1].description,
        'A board of 5 rows and 5 columns: red rect in row 1, column 2; red '
        'rect in row 2, column 2; red rect in row 3, column 3; red rect in row '
        '4, column 3. The agent is in row 3, column 3 and carries the block '
        'there.')

  def test_another_world_has_images_alone(self):
    own = dataclasses.replace(
        worlds.gridlu_world('arrangements'), observation_shape=(24, 30, 3),
        images=lambda x: tf.cast(x, tf.float32) / 255, checker=None)
    image = np.arange(24 * 30 * 3).reshape(24, 30, 3).astype(np.uint8)
    # More than are drawn at a time.
    cases = judge_cases.make_cases(
        [evaluate.Episode('go home', image, None, None)] * 70, own)
    self.assertLen(cases, 70)
    np.testing.assert_array_equal(cases[69].image, image)
    self.assertEqual(
        cases[69][2:], ('The final state of episode 70.', None, None))

  def test_fingerprints_tell_cases_apart(self):
    cases = _cases()
    same = judge_cases.fingerprint(cases)
    self.assertEqual(judge_cases.fingerprint(_cases((None,) * 4)), same)
    for others in (
        cases[:3], cases[::-1],
        [*cases[:3], cases[3]._replace(instruction=SNAKE)],
        [*cases[:3], cases[3]._replace(image=cases[2].image)]):
      self.assertNotEqual(judge_cases.fingerprint(others), same)


class AnswersTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.run_dir = self.create_tempdir().full_path
    self.path = SERIES.path(self.run_dir)

  def _open(self):
    answers = judge_cases.Answers(self.path, SERIES)
    answers.use_with('cases')
    return answers

  def _content(self):
    with open(self.path, encoding='utf-8') as file:
      return file.read()

  def test_every_change_is_in_the_file_at_once(self):
    answers = self._open()
    for done, expected in (
        (True, [True]), (False, [True, False]), (None, [True]),
        (True, [True, True]), (None, [True]), (None, []), (False, [False])):
      if done is None:
        answers.undo()
      else:
        answers.append(done)
      self.assertEqual(list(answers.values), expected)
      self.assertEqual(json.loads(self._content()), {
          'step': 64, 'seed': 3, 'episodes': 4, 'greedy': False,
          'fingerprint': 'cases', 'answers': expected})
      # Nobody closes the file: this is what is there after a crash.
      self.assertEqual(list(self._open().values), expected)
    self.assertEqual(os.listdir(self.run_dir), [os.path.basename(self.path)])

  def test_each_series_has_a_file_of_its_own(self):
    others = [
        SERIES, SERIES._replace(step=65), SERIES._replace(seed=4),
        SERIES._replace(episodes=5), SERIES._replace(greedy=True)]
    self.assertLen({series.path(self.run_dir) for series in others}, 5)

  @parameterized.parameters(
      ('', 'damaged'),
      ('{"step": 64, "seed"', 'damaged'),
      ('[]', 'expected the keys step, seed'),
      ('{"answers": []}', 'expected the keys step, seed'),
      ('ANSWERS [true, 1]', 'a list of true and false'),
      ('ANSWERS {"0": true}', 'a list of true and false'),
      ('ANSWERS [true, true, true, true, false]',
       '5 answers there, 4 episodes here'),
  )
  def test_a_damaged_file_is_named_and_left(self, content, message):
    if content.startswith('ANSWERS'):
      content = json.dumps({
          **SERIES._asdict(), 'fingerprint': 'cases',
          'answers': json.loads(content.removeprefix('ANSWERS'))})
    with open(self.path, 'w', encoding='utf-8') as file:
      file.write(content)
    with self.assertRaisesRegex(judge_cases.JudgeError, message) as raised:
      self._open()
    self.assertIn(self.path, str(raised.exception))
    self.assertIn('away', str(raised.exception))
    self.assertEqual(self._content(), content)

  def test_bytes_that_are_no_text(self):
    with open(self.path, 'wb') as file:
      file.write(b'\xff\xfe\x00')
    with self.assertRaisesRegex(judge_cases.JudgeError, 'cannot be read'):
      self._open()

  def test_a_renamed_file_of_another_series_is_refused(self):
    self._open().append(True)
    other = SERIES._replace(seed=4, greedy=True)
    os.rename(self.path, other.path(self.run_dir))
    with self.assertRaisesRegex(
        judge_cases.JudgeError,
        'seed is 3 there, 4 here; greedy is False there'):
      judge_cases.Answers(other.path(self.run_dir), other)

  def test_answers_to_other_cases_are_refused(self):
    answers = self._open()
    # There is nothing to lose.
    judge_cases.Answers(self.path, SERIES).use_with('others')
    answers = self._open()
    answers.append(True)
    before = self._content()
    with self.assertRaisesRegex(
        judge_cases.JudgeError, '1 answers to other epis'):
      judge_cases.Answers(self.path, SERIES).use_with('others')
    self.assertEqual(self._content(), before)

  def test_two_programs_do_not_overwrite_each_other(self):
    first, second = self._open(), self._open()
    first.append(True)
    with self.assertRaisesRegex(judge_cases.JudgeError, 'changed or removed'):
      second.append(False)
    self.assertEqual(second.values, ())
    self.assertEqual(self._open().values, (True,))

  def test_what_cannot_be_saved_is_not_answered(self):
    answers = self._open()
    answers.append(True)
    before = self._content()
    os.mkdir(f'{self.path}.part')  # Not even root can write there.
    for change in (answers.undo, lambda: answers.append(False)):
      with self.assertRaisesRegex(judge_cases.JudgeError, 'cannot be written'):
        change()
      self.assertEqual(answers.values, (True,))
      self.assertEqual(self._content(), before)
    with self.assertRaisesRegex(judge_cases.JudgeError, 'cannot be written'):
      judge_cases.Answers(SERIES.path(os.path.join(self.run_dir, 'no')), SERIES)

  def test_tells_of_answers_to_another_checkpoint(self):
    self.assertEmpty(judge_cases.other_answers(self.run_dir, SERIES))
    self._open().append(True)
    self.assertEmpty(judge_cases.other_answers(self.run_dir, SERIES))
    newer = SERIES._replace(step=128)
    note, = judge_cases.other_answers(self.run_dir, newer)
    self.assertRegex(note, 'has 1 answers to episodes of step 64.* is gone')
    checkpoints.save(self.run_dir, 64, checkpoints.Checkpoint({}, {}), keep=1)
    note, = judge_cases.other_answers(self.run_dir, newer)
    self.assertIn('--checkpoint=64 goes on', note)
    self.assertEmpty(
        judge_cases.other_answers(self.run_dir, newer._replace(seed=9)))
    with open(self.path, 'w', encoding='utf-8') as file:
      file.write('{')
    self.assertEmpty(judge_cases.other_answers(self.run_dir, newer))


class ReportTest(absltest.TestCase):

  def test_counts_by_the_number_of_blocks(self):
    report = judge_report.summarize(
        _cases(), [True, True, False, False], 'checker')
    self.assertEqual(report, {
        'episodes': 4, 'judged': 4, 'automatic_judge': 'checker',
        'person': {
            'all': {'episodes': 4, 'rate': .5,
                    'interval': evaluate.interval(2, 4)},
            '4 blocks': {'episodes': 2, 'rate': 1.0,
                         'interval': evaluate.interval(2, 2)},
            '8 blocks': {'episodes': 2, 'rate': 0.0,
                         'interval': evaluate.interval(0, 2)}},
        'automatic': {
            name: {'episodes': n, 'rate': .5,
                   'interval': evaluate.interval(n // 2, n)}
            for name, n in (('all', 4), ('4 blocks', 2), ('8 blocks', 2))},
        'agreement': {
            'episodes': 2, 'rate': .5, 'interval': evaluate.interval(2, 4),
            'person_alone': 1, 'automatic_alone': 1}})
    self.assertEqual(list(report['person']), ['all', '4 blocks', '8 blocks'])
    json.dumps(report)

  def test_a_person_who_is_not_done_stays_blind(self):
    report = judge_report.summarize(_cases(), [True], 'checker')
    self.assertEqual(report['judged'], 1)
    self.assertEqual(report['person']['all']['rate'], 1.0)
    self.assertNotIn('8 blocks', report['person'])
    self.assertNotIn('automatic', report)
    self.assertNotIn('agreement', report)

  def test_the_automatic_judge_alone(self):
    report = judge_report.summarize(_cases(), None, 'checker')
    self.assertEqual(report['judged'], 4)
    self.assertEqual(report['automatic']['8 blocks']['rate'], .5)
    self.assertNotIn('person', report)
    self.assertNotIn('agreement', report)

  def test_without_answers_there_is_nothing_to_say(self):
    report = judge_report.summarize(_cases(), [], 'checker')
    self.assertEqual(
        report, {'episodes': 4, 'judged': 0, 'automatic_judge': 'checker'})
    self.assertEqual(judge_report.table(report), '0 of 4 episodes are judged.')

  def test_without_an_automatic_judge_the_person_stands_alone(self):
    cases = [case._replace(blocks=None, verdict=None) for case in _cases()[:2]]
    report = judge_report.summarize(cases, [True, False], 'checker')
    self.assertEqual(list(report['person']), ['all'])
    self.assertNotIn('automatic', report)
    self.assertNotIn('agreement', report)
    self.assertRegex(judge_report.table(report), r'all +person +2 +50\.0 %')

  def test_the_table_is_readable(self):
    text = judge_report.table(
        judge_report.summarize(_cases(), [True, True, False, True], 'checker'))
    lines = text.splitlines()
    self.assertEqual([' '.join(line.split()) for line in lines[:3]], [
        'episodes judge count success 95 % interval',
        'all person 4 75.0 % 30.1 to 95.4 %',
        'all checker 4 50.0 % 15.0 to 85.0 %'])
    self.assertLen(lines, 1 + 3 * 2 + 2)
    self.assertIn('agree on 1 of them (25.0 %', lines[-1])
    self.assertIn(
        'the person alone: 2; to the checker alone: 1.', lines[-1])
    self.assertLessEqual(max(map(len, lines[:-1])), 80)


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
        _cases(verdicts), judge_cases.Answers(path, SERIES), 'checker')

  def test_goes_through_the_cases(self):
    session = self._session()
    view = session.view()
    self.assertEqual(view, {
        'episodes': 4, 'answered': 0, 'instruction': SNAKE,
        'description': _cases()[0].description})
    for i in range(4):
      self.assertFalse(session.complete)
      with self.assertRaisesRegex(judge_cases.StaleError, 'when all episodes'):
        session.final_report()
      self.assertEqual(view['instruction'], _cases()[i].instruction)
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
        judge_cases.StaleError, 'no answer to take back'):
      session.undo(0)

  def test_images_are_big(self):
    session = self._session()
    with Image.open(io.BytesIO(session.image(2))) as image:
      pixels = np.asarray(image)
    np.testing.assert_array_equal(pixels[::10, ::10], rendering.render(EIGHT))
    for index in (-1, 4):
      with self.assertRaises(IndexError):
        session.image(index)


class ServerTest(parameterized.TestCase):

  def _serve(self, verdicts=(True, False, True, False), cases=None):
    self.path = os.path.join(self.create_tempdir().full_path, 'answers.json')
    session = judge_page.Session(
        cases or _cases(verdicts), judge_cases.Answers(self.path, SERIES),
        'checker')
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
    self.assertNotRegex(text, 'https?://')  # Nothing comes from elsewhere.
    self.assertNotIn('<!--', text)
    self.assertIn('<html lang="en">', text)
    self.assertIn('aria-live', text)
    # Every image has a text, every element that the script names is there.
    self.assertLen(re.findall('<img[^>]* alt="', text),
                   len(re.findall('<img ', text)))
    self.assertContainsSubset(
        set(re.findall(r"at\('(\w+)'\)", text)),
        set(re.findall(r'id="(\w+)"', text)))
    status, kind, content = self._fetch('/legend.png')
    self.assertEqual((status, kind), (200, 'image/png'))
    Image.open(io.BytesIO(content)).verify()

  def test_only_arrangements_have_a_legend(self):
    cases = [case._replace(blocks=None) for case in _cases()]
    self._serve(cases=cases)
    self.assertNotIn(b'legend', self._fetch('/')[2])
    self.assertNotIn(b'grey square', self._fetch('/')[2])
    self.assertEqual(self._fetch('/legend.png')[0], 404)
    cases = [case._replace(instruction='NorthFrom(...)') for case in _cases()]
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
    os.mkdir(f'{self.path}.part')
    status, reply = self._json('/answer', {'answered': 0, 'done': True})
    self.assertEqual(status, 500)
    self.assertIn('cannot be written', reply['error'])
    self.assertEqual(reply['view']['answered'], 0)

  @parameterized.parameters(
      ('/answer', b''), ('/answer', b'{'), ('/answer', []),
      ('/answer', {'answered': 0}), ('/answer', {'answered': 0, 'done': 1}),
      ('/answer', {'answered': False, 'done': True}),
      ('/answer', {'answered': 0, 'done': True, 'x': 1}),
      ('/answer', b' ' * 2000), ('/undo', {}), ('/nothing', {}), ('/', {}))
  def test_other_requests_are_refused(self, path, body):
    self._serve()
    status, reply = self._json(path, body)
    self.assertEqual(status, 400)
    self.assertIn('reload', reply['error'])
    self.assertEqual(self.session.view()['answered'], 0)

  def test_other_sites_pages_are_refused(self):
    self._serve()
    good = {'answered': 0, 'done': True}
    self.assertEqual(self._json('/answer', good, Host='evil.com:80')[0], 403)
    self.assertEqual(self._json('/view', Host='evil.com')[0], 403)
    self.assertEqual(
        self._json('/answer', good, **{'Content-type': 'text/plain'})[0], 400)
    self.assertEqual(self.session.view()['answered'], 0)
    # A forwarded port has another name.
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

  def test_a_port_in_use_is_named(self):
    self._serve()
    port = self.server.server_port
    with self.assertRaisesRegex(
        judge_cases.JudgeError, f'--port={port} cannot be used.*--port=0'):
      judge_page.make_server(self.session, port)


class ProgramTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.run_dir = tiny.save_for(
        cls, world='arrangements', instructions='Snake', episode_length=6,
        rollout_length=4)
    cls.step, = checkpoints.steps(cls.run_dir)

  def _command(self, *arguments):
    return [sys.executable, '-m', 'agile_tf.judge', '--episodes=3', '--json',
            f'--run_dir={self.run_dir}', *arguments]

  def _start(self):
    """Starts the program; returns it and its page's address."""
    program = subprocess.Popen(
        self._command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    self.addCleanup(program.stderr.close)
    self.addCleanup(program.stdout.close)
    self.addCleanup(program.kill)
    line = next(
        (line for line in program.stderr if line.startswith('Open ')), '')
    self.assertTrue(line, 'The program ended without a page.')
    return program, line, re.search(r'http://127.0.0.1:\d+', line)[0]

  def _post(self, address, body):
    request = urllib.request.Request(
        address, json.dumps(body).encode(),
        {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as reply:
      return json.load(reply)

  def test_judges_leaves_and_takes_up_again(self):
    program, line, address = self._start()
    self.assertIn('judge 3 episodes, 0 of them answered', line)
    with urllib.request.urlopen(f'{address}/image/2.png', timeout=60) as reply:
      last = reply.read()
    self._post(f'{address}/answer', {'answered': 0, 'done': True})
    # Twice, as a wrapper does that also signals the process group.
    program.send_signal(signal.SIGINT)
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    self.assertEqual(program.returncode, 0, errors)
    report = json.loads(output)
    self.assertEqual(
        (report['steps'], report['judged'], report['episodes']),
        (self.step, 1, 3))
    self.assertEqual(report['person']['all']['rate'], 1.0)
    self.assertEqual(report['automatic_judge'], 'checker')

    program, line, address = self._start()
    self.assertIn('judge 3 episodes, 1 of them answered', line)
    with urllib.request.urlopen(f'{address}/image/2.png', timeout=60) as reply:
      self.assertEqual(reply.read(), last)
    self._post(f'{address}/answer', {'answered': 1, 'done': False})
    self._post(f'{address}/answer', {'answered': 2, 'done': False})
    self.assertLen(self._post(f'{address}/report', {})['notes'], 2)
    output, errors = program.communicate(timeout=60)  # It ends by itself.
    self.assertEqual(program.returncode, 0, errors)
    report = json.loads(output)
    self.assertEqual(report['judged'], 3)
    with open(report['answers'], encoding='utf-8') as file:
      self.assertEqual(json.load(file)['answers'], [True, False, False])

    # Nothing is left to answer: it only reports.
    series = judge_cases.Series(-1, 1_000_003, 3, False)
    again, automatic = (
        json.loads(json.dumps(
            judge.judge(self.run_dir, None, series, automatic, 0)))
        for automatic in (False, True))
    self.assertEqual(again, report)
    self.assertEqual(automatic['automatic'], report['automatic'])
    self.assertNotIn('person', automatic)

  def test_bad_input_is_named(self):
    series = judge_cases.Series(-1, 5, 2, False)
    nowhere = self.create_tempdir().full_path
    with self.assertRaisesRegex(config_lib.ConfigError, nowhere):
      judge.judge(nowhere, None, series, False, 0)
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'step 7'):
      judge.judge(self.run_dir, 7, series, False, 0)
    # Before anything is played.
    path = series._replace(step=self.step).path(self.run_dir)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('{')
    self.addCleanup(os.remove, path)
    with self.assertRaisesRegex(judge_cases.JudgeError, path):
      judge.judge(self.run_dir, None, series, False, 0)
    result = subprocess.run(
        self._command('--episodes=0'), capture_output=True, text=True,
        check=False)
    self.assertEqual(result.returncode, 1)
    self.assertIn('--episodes=0', result.stderr)
    self.assertNotIn('Traceback', result.stderr)


if __name__ == '__main__':
  absltest.main()
