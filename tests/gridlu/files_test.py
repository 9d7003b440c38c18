"""Tests for files that are whole or not there."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized

from gridlu import files


class FilesTest(parameterized.TestCase):

  def test_what_stood_there_remains_until_the_new_one_is_whole(self):
    path = self.create_tempfile(content='old').full_path

    def content():
      return pathlib.Path(path).read_bytes()

    with self.assertRaises(ZeroDivisionError):
      with files.replacing(path) as file:
        file.write('half')
        file.flush()
        raise ZeroDivisionError
    self.assertEqual(content(), b'old')
    self.assertEqual(os.listdir(os.path.dirname(path)),
                     [os.path.basename(path)])
    with files.replacing(path) as file:
      file.write('né\r\nw\n')
      file.flush()
      self.assertEqual(content(), b'old')
    self.assertEqual(content(), 'né\r\nw\n'.encode())

  def test_a_file_is_on_disk_before_it_has_its_name(self):
    path = self.create_tempdir().create_file('file').full_path
    events = []
    with (mock.patch.object(
        files.os, 'fsync', side_effect=lambda descriptor: events.append(
            os.path.getsize(f'/proc/self/fd/{descriptor}'))),
          mock.patch.object(
              files.os, 'replace', side_effect=lambda *_: events.append(
                  'renamed'))):
      with files.replacing(path) as file:
        file.write('new')
    self.assertEqual(events, [3, 'renamed'])

  def test_what_a_killed_process_left_goes_with_the_next_write(self):
    path = self.create_tempdir().create_file('file').full_path
    code = ('from gridlu import files; import os, signal\n'
            f'with files.replacing({path!r}) as file:\n'
            '  file.write("half"); file.flush()\n'
            '  os.kill(os.getpid(), signal.SIGKILL)')
    subprocess.run([sys.executable, '-c', code], check=False)
    folder = os.path.dirname(path)
    self.assertLen(os.listdir(folder), 2)
    with files.replacing(path) as file:
      file.write('new')
    self.assertEqual(os.listdir(folder), ['file'])

  @parameterized.parameters(
      ('steps,x\n16,1\n16,1\n', "line 3: steps is '16'; expected a whole"),
      ('steps,x\n32,1\r\n16,1\r\n', "line 3: steps is '16'"),
      ('steps,x\n,1\n', "line 2: steps is ''"),
      ('steps,x\n1.6e1,1\n', "line 2: steps is '1.6e1'"),
      ('steps,steps\n1,2\n', 'line 1: a column is there more than once'),
      ('steps,x\n16,1\n16,1\n', "line 3: steps is '16'; expected a whole"),
      ('steps,x\n32,1\r\n16,1\r\n', "line 3: steps is '16'"),
      ('steps,x\n,1\n', "line 2: steps is ''"),
      ('steps,x\ninf,1\n', "line 2: steps is 'inf'"),
      ('steps,x\n1.6e1,1\n', "line 2: steps is '1.6e1'"),
      ('steps,x\n16\u2028,1\n', r"line 2: steps is '16\\u2028'"),
      ('steps,x\n1,1\n\n2,1\u2028\n', r"line 4: x is '1\\u2028'"),
      ('steps,success_rate\n1,2.716\n', 'line 2: success_rate is 2.716; exp'),
      ('steps,false_positives\n1,-0.1\n', 'line 2: false_positives is -0.1'),
      ('steps,success_rate\n1,nan\n', 'line 2: success_rate is nan'),
      ('steps,x\n1,many\n', "line 2: x is 'many'; expected a number"),
      ('steps,x\n1,2,3\n', 'line 2: it has 3 values for 2 columns'),
      ('steps,x\n1,2\n3\n', 'line 3: it has 1 values for 2 columns'),
      ('steps,x\r1,2\r3,4\r', 'line 1 ends with CR alone'))
  def test_what_no_run_writes_is_refused_with_its_line(self, text, problem):
    with self.assertRaisesRegex(ValueError, problem):
      files.read_rows(self.create_tempfile(content=text).full_path)

  def test_rows(self):
    path = self.create_tempfile(
        content='\ufeffsteps,success_rate,x\r\n1,0,\r\n2,1.0,-1e-9\r\n3,'
        ).full_path
    self.assertEqual(files.read_rows(path), [
        {'steps': '1', 'success_rate': '0', 'x': ''},
        {'steps': '2', 'success_rate': '1.0', 'x': '-1e-9'}])
    path = self.create_tempfile(content='name,x\n"a, b",1\na,1\n').full_path
    self.assertEqual(files.read_rows(path)[0], {'name': 'a, b', 'x': '1'})

  def test_devices_and_pipes_are_no_files(self):
    pipe = f'{self.create_tempdir().full_path}/pipe'
    os.mkfifo(pipe)
    for path in ('/dev/zero', pipe, '/'):
      with self.assertRaisesRegex(ValueError, 'is no regular file'):
        files.read_rows(path)

  def test_json(self):
    self.assertEqual(files.parse_json('{"a": [1]}'), {'a': [1]})
    for text in '{', b'\xff', '[' * 990, '[' * 100_000, '9' * 5000:
      with self.assertRaises(ValueError):
        files.parse_json(text)
