"""Tests for files that are whole or not there."""

import os

from absl.testing import absltest

from gridlu import files


class FilesTest(absltest.TestCase):

  def test_what_stood_there_remains_until_the_new_one_is_whole(self):
    path = self.create_tempfile(content='old').full_path

    def content():
      with open(path, 'rb') as file:
        return file.read()

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
    with files.replacing(path, 'wb') as file:
      file.write(b'\xff')
    self.assertEqual(content(), b'\xff')
    self.assertEqual(os.listdir(os.path.dirname(path)),
                     [os.path.basename(path)])


if __name__ == '__main__':
  absltest.main()
