"""Tests for files that are whole or not there."""

import os
import pathlib
import socket
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from gridlu import files


class FilesTest(absltest.TestCase):

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
    # Those of running processes and of other machines stay.
    kept = [f'{path}.{socket.gethostname()}.{os.getppid()}.part',
            f'{path}.elsewhere.999999999.part', f'{path}.notes.part']
    for name in kept:
      pathlib.Path(name).touch()
    with files.replacing(path) as file:
      file.write('new')
    self.assertCountEqual(
        os.listdir(folder), map(os.path.basename, [path, *kept]))

  def test_json(self):
    self.assertEqual(files.parse_json('{"a": [1]}'), {'a': [1]})
    for text in '{', b'\xff', '[' * 990, '[' * 100_000, '9' * 5000:
      with self.assertRaises(ValueError):
        files.parse_json(text)
