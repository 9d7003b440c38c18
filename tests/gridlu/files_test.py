"""Tests for files that are whole or not there."""

import os
import pathlib
import stat
import subprocess
import sys
import time
from unittest import mock

from absl.testing import parameterized

from gridlu import files
from gridlu import program


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

  def test_what_a_killed_process_left_goes_after_a_day(self):
    path = self.create_tempdir().create_file('file').full_path
    code = ('from gridlu import files; import os, signal\n'
            f'with files.replacing({path!r}) as file:\n'
            '  file.write("half"); file.flush()\n'
            '  os.kill(os.getpid(), signal.SIGKILL)')
    subprocess.run([sys.executable, '-c', code], check=False)
    folder = os.path.dirname(path)

    def write():
      with files.replacing(path) as file:
        file.write('new')
      return [name for name in os.listdir(folder) if name != 'file']

    left, = write()
    os.utime(os.path.join(folder, left), (time.time() - 80_000,) * 2)
    self.assertEqual(write(), [left])  # Its process may still be writing.
    os.utime(os.path.join(folder, left), (time.time() - 90_000,) * 2)
    self.assertEmpty(write())

  def test_two_processes_may_replace_a_file_at_once(self):
    path = os.path.join(self.create_tempdir().full_path, 'x.json')
    code = ('from gridlu import files\nimport sys\n'
            'for _ in range(100):\n'
            f'  with files.replacing({path!r}) as file:\n'
            '    file.write(sys.argv[1] * 9999)\n'
            f'  text = open({path!r}).read()\n'
            '  assert text in ("a" * 9999, "b" * 9999), len(text)')
    processes = [subprocess.Popen([sys.executable, '-c', code, letter])
                 for letter in 'ab']
    self.assertEqual([process.wait() for process in processes], [0, 0])
    self.assertEqual(os.listdir(os.path.dirname(path)), ['x.json'])

  def test_the_longest_name_can_be_written_and_a_longer_one_is_refused(self):
    folder = self.create_tempdir().full_path
    longest = os.path.join(folder, 'x' * 250 + '.json')
    files.check_output('output', longest)
    with files.replacing(longest) as file:
      file.write('{}')
    self.assertEqual(pathlib.Path(longest).read_text(), '{}')
    for name in 'x' * 251 + '.json', 'a\0b.json':
      with self.assertRaisesRegex(program.UserError, 'choose another name'):
        files.check_output('output', os.path.join(folder, name))

  @parameterized.parameters('there', 'not there')
  def test_the_target_of_a_link_is_written(self, target):
    elsewhere = os.path.join(self.create_tempdir().full_path, 'target')
    link = os.path.join(self.create_tempdir().full_path, 'link')
    os.symlink(elsewhere, link)
    if target == 'there':
      pathlib.Path(elsewhere).write_text('old')
    files.check_output('output', link)
    with files.replacing(link) as file:
      file.write('new')
    self.assertTrue(os.path.islink(link))
    self.assertEqual(pathlib.Path(elsewhere).read_text(), 'new')
    self.assertEqual(os.listdir(os.path.dirname(elsewhere)), ['target'])

  def test_only_a_regular_file_is_replaced(self):
    folder = self.create_tempdir().full_path
    pipe, link = os.path.join(folder, 'pipe'), os.path.join(folder, 'link')
    os.mkfifo(pipe)
    os.symlink(pipe, link)
    for path in pipe, link, folder, '', '/dev/null':
      with self.assertRaisesRegex(OSError, 'is no regular file'):
        with files.replacing(path):
          self.fail('It was opened.')
    self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
    self.assertCountEqual(os.listdir(folder), ['pipe', 'link'])

  def test_a_link_that_leads_nowhere_is_refused(self):
    folder = self.create_tempdir().full_path
    for target, problem in (
        ('/no/such/folder/x', 'there is no folder /no/such/folder'),
        (folder, 'expected the name of a new file'),
        ('/dev/null', 'expected the name of a new file')):
      link = os.path.join(folder, 'link')
      os.symlink(target, link)
      with self.assertRaisesRegex(program.UserError, problem):
        files.check_output('output', link)
      os.remove(link)

  def test_a_link_to_a_file_of_another_kind_is_refused(self):
    folder = self.create_tempdir()
    metrics = folder.create_file('metrics.csv', 'steps').full_path
    link = os.path.join(folder.full_path, 'picture.png')
    os.symlink(metrics, link)
    with self.assertRaisesRegex(program.UserError, 'the name of a .png file'):
      files.check_output('picture', link, '.png')
    files.check_output('output', link)

  def test_directories_are_tried_and_not_made(self):
    folder = self.create_tempdir()
    file = folder.create_file('file').full_path
    new = os.path.join(folder.full_path, 'a', 'b')
    for path in folder.full_path, new:
      files.check_directory('out', path)
    self.assertEqual(os.listdir(folder.full_path), ['file'])
    for path, problem in (
        (file, 'is no directory'), (os.path.join(file, 'a'), 'be written'),
        (os.path.join(folder.full_path, 'x' * 256), 'be written')):
      with self.assertRaisesRegex(program.UserError, f'--out=.*{problem}'):
        files.check_directory('out', path)

  def test_only_regular_files_are_read(self):
    folder = self.create_tempdir().full_path
    pipe, there = os.path.join(folder, 'pipe'), os.path.join(folder, 'there')
    os.mkfifo(pipe)
    pathlib.Path(there).write_bytes(b'12345')
    self.assertEqual(files.read(there, 5), b'12345')
    for path, problem in (
        (pipe, 'it is a named pipe; expected a regular file'),
        ('/dev/zero', 'it is a device'), ('/dev/null', 'it is a device'),
        (there, 'it has 5 bytes; expected at most 4')):
      link = os.path.join(folder, 'link')
      os.symlink(path, link)
      for name in path, link:
        with self.assertRaisesRegex(ValueError, problem):
          files.read(name, 4)
      os.remove(link)
    with self.assertRaises(IsADirectoryError):
      files.read(folder)

  def test_a_file_that_is_larger_than_the_memory_is_not_read(self):
    path = self.create_tempfile().full_path
    os.truncate(path, 2**42)  # It takes no space on disk.
    with self.assertRaisesRegex(MemoryError, '4,398,046,511,104 bytes'):
      files.read(path)

  def test_free_memory_is_a_part_of_the_machines(self):
    there = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    self.assertBetween(files.free_memory(), 2**20, there)
