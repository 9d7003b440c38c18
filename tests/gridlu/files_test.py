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
      ('steps,x\n1,2,3\n', 'line 2: it has 3 values for 2 columns'),
      ('steps,x\n1,2\n3\n', 'line 3: it has 1 values for 2 columns'))
  def test_rows_of_another_length_are_refused(self, text, problem):
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

  def test_last_rows(self):
    rows = [{'steps': str(i), 'x': 'yz'} for i in range(4)]
    path = self.create_tempfile(
        content='steps,x\n0,yz\n1,yz\n2,yz\n3,yz\n4,').full_path
    for size, count in (2, 0), (7, 0), (8, 1), (17, 2), (99, 4):
      self.assertEqual(files.read_rows(path, size), rows[4 - count:])
