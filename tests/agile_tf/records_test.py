"""Tests for agile_tf.records."""

import os
import pathlib

from absl.testing import parameterized

from agile_tf import records
from gridlu import schema


class RowsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('steps,x\n1,2,3\n', 'line 2: it has 3 values for 2 columns'),
      ('steps,x\n1,2\n3\n', 'line 3: it has 1 values for 2 columns'),
      ('steps,x,steps\n1,2,3\n', "line 1: the column 'steps' is there twice"))
  def test_rows_of_another_length_are_refused(self, text, problem):
    with self.assertRaisesRegex(ValueError, problem):
      records.rows(self.create_tempfile(content=text).full_path)

  def test_rows_are_read_by_their_columns(self):
    path = self.create_tempfile(
        content='\ufeffsteps,success_rate,x\r\n1,0,\r\n2,1.0,-1e-9\r\n3,'
        ).full_path
    self.assertEqual(records.rows(path), [
        {'steps': '1', 'success_rate': '0', 'x': ''},
        {'steps': '2', 'success_rate': '1.0', 'x': '-1e-9'}])
    path = self.create_tempfile(content='x,y\r1,2\r3,4\r').full_path
    self.assertEqual(records.rows(path)[1], {'x': '3', 'y': '4'})
    path = self.create_tempfile(content='name,x\n"a, b",1\na,1\n').full_path
    self.assertEqual(records.rows(path)[0], {'name': 'a, b', 'x': '1'})

  def test_a_check_of_rows_names_the_line(self):
    path = self.create_tempfile(content='x\n1\n\n2\nabc\n4').full_path
    with self.assertRaisesRegex(ValueError, '^line 5: .*abc'):
      records.rows(path, check=lambda row: float(row['x']))

  def test_only_the_last_whole_rows_are_read(self):
    rows = [{'steps': str(i), 'x': 'yz'} for i in range(4)]
    path = self.create_tempfile(
        content='steps,x\n0,yz\n1,yz\n2,yz\n3,yz\n4,').full_path
    for size, count in (2, 0), (7, 0), (8, 1), (17, 2), (99, 4):
      self.assertEqual(records.rows(path, size), rows[4 - count:])

  def test_only_regular_files_that_fit_the_memory_are_read(self):
    pipe = os.path.join(self.create_tempdir().full_path, 'pipe')
    os.mkfifo(pipe)
    for path in pipe, '/dev/zero':
      with self.assertRaisesRegex(ValueError, 'regular file'):
        records.rows(path)
    path = self.create_tempfile().full_path
    os.truncate(path, 2**42)  # It takes no space on disk.
    with self.assertRaisesRegex(ValueError, 'expected at most'):
      records.rows(path)


class JsonTest(parameterized.TestCase):

  @parameterized.parameters(
      (b'[' * 10_000 + b']' * 10_000, 'nested too deeply'),
      (b'{"a":' * 10_000 + b'1' + b'}' * 10_000, 'nested too deeply'),
      (b'\xff', 'utf-8'), (b'', 'Expecting value'), (b'{"a"', 'Expecting'),
      (b'1' * 10_000, 'digits'),
      (b'{"a": {"b": 1, "c": 2, "b": 3}}', "the key 'b' more than once"))
  def test_a_file_that_is_no_json_is_refused(self, content, problem):
    path = self.create_tempfile(content=content, mode='wb').full_path
    with self.assertRaisesRegex(ValueError, problem):
      records.json_value(content)
    with self.assertRaisesRegex(ValueError, problem):
      records.json_file(path, schema.anything)

  def test_a_file_is_read_and_checked(self):
    path = self.create_tempfile(content='{"x": [1, 2]}').full_path
    check = schema.named({'x': schema.each(schema.whole(1))})
    self.assertEqual(records.json_file(path, check), {'x': [1, 2]})
    pathlib.Path(path).write_text('{"x": [1, 0]}', 'utf-8')
    with self.assertRaisesRegex(ValueError, r'^x\[1\] is 0'):
      records.json_file(path, check)
    with self.assertRaisesRegex(ValueError, 'at most 5'):
      records.json_file(path, check, most=5)
