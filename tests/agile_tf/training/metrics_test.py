"""Tests for metrics: means, decisions and the rows of metrics.csv."""

from concurrent import futures
import errno
import os
import pathlib
import re
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf import records
from agile_tf.training import metrics
from gridlu import program
from tests.agile_tf import tiny


class TallyTest(absltest.TestCase):

  def test_weighted_means_begin_anew(self):
    tally = metrics.Tally()
    self.assertEqual(tally.take(), {})
    tally.add({'a': 1.0, 'b': 5.0})
    tally.add({'a': 4.0}, 2.0)
    self.assertEqual(tally.take(), {'a': 3.0, 'b': 5.0})
    tally.add({'a': 2.0})
    self.assertEqual(tally.take(), {'a': 2.0})

  def test_a_loaded_tally_is_the_saved_one(self):
    tally, restored = metrics.Tally('episodes'), metrics.Tally('episodes')
    tally.add({'a': 1.0, 'b': 5.0}, 3.0)
    state = tally.state()
    restored.add({'a': 99.0, 'z': 9.0})  # `load` removes these.
    tally.count(episodes=2)
    restored.load(state, tally.counts)
    self.assertEqual(restored.counts, {'episodes': 2})
    for each in (tally, restored):
      each.add({'a': 5.0})
      self.assertEqual(each.take(), {'a': 2.0, 'b': 5.0})
    self.assertEqual(
        state, {'sums': {'a': 3.0, 'b': 15.0}, 'weights': {'a': 3.0, 'b': 3.0}})

  def test_many_threads_lose_no_value(self):
    tally = metrics.Tally('steps')

    class Slow(float):  # Another thread runs while it is added.

      def __rmul__(self, weight):
        time.sleep(1e-4)
        return weight * float(self)

      def __radd__(self, count):
        time.sleep(1e-4)
        return count + float(self)

    def add(value):
      for _ in range(50):
        tally.add({'a': Slow(value)}, 0.5)
        tally.count(steps=Slow(1))

    with futures.ThreadPoolExecutor(4) as pool:
      list(pool.map(add, map(float, range(4))))
    self.assertEqual(tally.state()['weights'], {'a': 100.0})
    self.assertEqual(tally.counts, {'steps': 200})
    self.assertEqual(tally.take(), {'a': 1.5})


class DecisionsTest(absltest.TestCase):

  def test_errors_are_shares_of_all_decisions(self):
    decisions, truth = np.array(
        [(1, 1), (1, 0), (0, 1), (0, 1), (0, 0), (0, 0), (1, 1), (0, 1)],
        bool).T
    self.assertEqual(metrics.decision_errors(decisions, truth), {
        'reward_model_accuracy': 4 / 8, 'false_positives': 1 / 8,
        'false_negatives': 3 / 8})


class WarningsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(entropy=.015), ('entropy',)),
      (dict(entropy=.017), ()),
      (dict(goals_accepted=.995, negatives_rejected=.005), ('discriminator',)),
      (dict(goals_accepted=.98, negatives_rejected=.005), ()),
      (dict(goals_accepted=.995, negatives_rejected=.02), ()),
      (dict(goals_accepted=.005, negatives_rejected=.995), ('discriminator',)),
      (dict(goals_accepted=.02, negatives_rejected=.995), ()),
      (dict(goals_accepted=.005, negatives_rejected=.98), ()),
      (dict(goals_accepted=1., negatives_rejected=1.), ()),
      (dict(goals_accepted=0., negatives_rejected=0.), ()),
      (dict(goals_accepted=1.), ()),
      (dict(negatives_rejected=1.), ()),
      (dict(), ()))
  def test_rows_that_look_wrong_get_their_warning(self, row, kinds):
    found = metrics.warnings(row, num_actions=5)
    self.assertEqual(tuple(found), kinds)
    for text in found.values():
      accepts = 'accepts every state', '(a smaller --steps_per_discriminator'
      self.assertEqual(
          [part in text for part in accepts],
          [row.get('goals_accepted', 0.0) > .5] * 2, text)


  @parameterized.parameters(
      (dict(modelled_reward=.0009), ('unrewarded',)),
      (dict(modelled_reward=.0011), ()),
      (dict(true_reward=.03, false_positives=.031, false_negatives=.01,
            success_rate=.05), ('fooled',)),
      (dict(true_reward=.03, false_positives=.01, false_negatives=.01,
            success_rate=.05), ()),
      (dict(true_reward=.03, false_positives=.01, false_negatives=.004,
            success_rate=.05), ('policy',)),
      (dict(true_reward=.03, false_positives=.01, false_negatives=.004,
            success_rate=.11), ()),
      (dict(success_rate=.05), ()),  # A3C.
      (dict(), ()))
  def test_what_lasts_gets_its_warning(self, row, kinds):
    rows = metrics.LASTING * [row]
    self.assertEqual(tuple(metrics.lasting(rows)), kinds)
    self.assertEmpty(metrics.lasting(rows[1:]))
    self.assertEmpty(metrics.lasting([{}, *rows[1:]]))
    self.assertEqual(tuple(metrics.lasting([{}, *rows])), kinds)


class WriterTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._path = os.path.join(self._dir, 'metrics.csv')

  def _write(self, steps, *rows):
    writer = metrics.Writer(self._dir, steps)
    for row in rows:
      writer.row(row)
    writer.close()

  def _rows(self):
    return records.rows(self._path)

  def _row(self, steps, **values):
    return {'steps': steps, 'seconds': steps / 8, 'episodes': 2 * steps,
            'success_rate': 1 / 3} | values

  def _assert_rows(self, steps):
    self.assertEqual([row['steps'] for row in self._rows()], steps)

  def test_rows_are_written_by_column(self):
    self._write(0, self._row(100), self._row(200, entropy=1.23456789e-9))
    rows = self._rows()
    self.assertEqual(list(rows[0]), list(metrics.COLUMNS))
    self.assertEqual(
        {name: value for name, value in rows[0].items() if value},
        {'steps': '100', 'seconds': '12.5', 'episodes': '200',
         'success_rate': '0.333333'})
    self.assertEqual(rows[1]['entropy'], '1.23457e-09')

  def test_every_column_is_there_at_once(self):
    writer = metrics.Writer(self._dir, 0)
    writer.row({
        name: i and i / 100 for i, name in enumerate(metrics.COLUMNS)})
    self.assertEqual(
        list(self._rows()[0].values()),
        [f'{i / 100:g}' for i in range(len(metrics.COLUMNS))])
    with self.assertRaisesRegex(ValueError, 'speed'):
      writer.row(self._row(100, speed=1.0))
    writer.close()

  @parameterized.parameters(
      (0, []), (99, []), (100, ['100']), (250, ['100', '200']),
      (300, ['100', '200', '300']), (900, ['100', '200', '300']))
  def test_later_rows_are_dropped(self, steps, kept):
    self._write(0, *[self._row(i, entropy=0.5) for i in (100, 200, 300)])
    before = self._rows()
    self._write(steps)
    self._assert_rows(kept)
    self.assertEqual(self._rows(), before[:len(kept)])
    self._write(steps, self._row(950))
    self._assert_rows([*kept, '950'])

  def test_rows_without_a_checkpoint_are_kept(self):
    self._write(0, self._row(100), self._row(200))
    before = self._rows()
    for number in 1, 2:
      with self.assertLogs('absl', 'WARNING') as logs:
        self._write(0, self._row(100), self._row(200))
      self.assertIn('up to step 200 are now in', logs.output[0])
      self.assertEqual(records.rows(f'{self._path}.{number}'), before)
    self._write(100)
    self.assertLen([name for name in os.listdir(self._dir)
                    if name.startswith('metrics.csv')], 3)

  @parameterized.parameters(True, False)
  def test_a_row_that_was_cut_off_is_whole_or_gone(self, last_column):
    """However much of the last row is written when the machine stops."""
    values = {'steps_per_discriminator_update': 225} if last_column else {}
    rows = [self._row(i, entropy=0.25, **values) for i in (100, 200)]
    self._write(0, *rows)
    expected = self._rows()
    content = pathlib.Path(self._path).read_bytes()
    first = content.rindex(b'\r\n', 0, len(content) - 2) + 2
    for size in range(first, len(content)):
      pathlib.Path(self._path).write_bytes(content[:size])
      metrics.Writer(self._dir, 900).close()
      self.assertTrue(
          self._rows() in (expected[:1], expected),
          f'{content[first:size]!r} was taken for {self._rows()[1:]}.')

  @parameterized.parameters(0, 5)
  def test_a_header_that_was_cut_off_is_written_anew(self, size):
    pathlib.Path(self._path).write_bytes(b'steps,seconds'[:size])
    self._write(0, self._row(100))
    self._assert_rows(['100'])

  @parameterized.parameters(
      ('steps,success\n16,0.5\n', 'its columns are steps, success;'),
      ('steps,success_rate\n16,0.5,7\n', 'line 2: it has 3 values'),
      ('steps,success_rate\nmany,0.5\n', "line 2: steps is 'many'.*move the"),
      ('steps,seconds\n16,1\n32,abc\n48,3\n', "line 3: seconds is 'abc'; exp"),
      ('steps,seconds\n16,nan\n', "line 2: seconds is 'nan'"),
      ('steps,seconds\n16,-1\n', "line 2: seconds is '-1'"),
      ('steps,seconds\n16,inf\n', "line 2: seconds is 'inf'"),
      ('steps,entropy\n16,1\n32,0x1\n', "line 3: entropy is '0x1'"),
      ('steps,entropy\n16,1\n,1\n', "line 3: steps is ''"),
      ('steps,entropy\n16,1\n16,1\n', "steps is '16'; .* of more than 16"),
      ('steps,entropy\n16,1\n8,1\n', "line 3: steps is '8'"),
      ('steps,entropy\n-1,1\n', "line 2: steps is '-1'"),
      ('steps,entropy\n1.5,1\n', "line 2: steps is '1.5'"),
      ('steps,entropy\n16,\0\0\n', 'line 2'),
      ('success_rate\n0.5\n', 'its columns are success_rate;'))
  def test_other_tables_are_refused_and_stay(self, text, problem):
    pathlib.Path(self._path).write_text(text, 'utf-8')
    with self.assertRaisesRegex(program.UserError, problem):
      metrics.Writer(self._dir, 100)
    with open(self._path, encoding='utf-8') as file:
      self.assertEqual(file.read(), text)

  @parameterized.parameters('pipe', '/dev/zero')
  def test_special_files_are_refused(self, kind):
    if kind == 'pipe':
      os.mkfifo(self._path)
    else:
      os.symlink(kind, self._path)
    with self.assertRaisesRegex(program.UserError, 'expected a regular file'):
      metrics.Writer(self._dir, 100)

  def test_a_file_that_is_removed_begins_anew(self):
    writer = metrics.Writer(self._dir, 0)
    writer.row(self._row(100))
    os.remove(self._path)
    writer.row(self._row(200))
    writer.row(self._row(300))
    writer.close()
    self._assert_rows(['200', '300'])

  def test_a_row_that_somebody_changes_meanwhile_is_not_repaired(self):
    writer = metrics.Writer(self._dir, 0)
    writer.row(self._row(100))
    with open(self._path, 'a', encoding='utf-8') as file:
      file.write('a note')
    writer.row(self._row(200))
    writer.close()
    before = pathlib.Path(self._path).read_bytes()
    with self.assertRaisesRegex(
        program.UserError, "line 3: steps is 'a note200'.*Mend or remove"):
      metrics.Writer(self._dir, 200)
    self.assertEqual(pathlib.Path(self._path).read_bytes(), before)

  def test_seconds_go_on_after_a_resume(self):
    self._write(0, self._row(80))
    self._write(80, self._row(88))
    self.assertEqual([row['seconds'] for row in self._rows()], ['10', '21'])

  def test_an_error_of_the_system_leaves_the_rows(self):
    self._write(0, self._row(100))
    before = self._rows()
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    for broken in 'builtins.open', 'os.replace':
      with (mock.patch(broken, side_effect=error),
            self.assertRaisesRegex(program.UserError, 'Input/output')):
        metrics.Writer(self._dir, 100)
      self.assertEqual(self._rows(), before)
    # os.path.exists is False after such an error; rows must not depend on it.
    with mock.patch('os.path.exists', return_value=False):
      self._write(100)
    self.assertEqual(self._rows(), before)

  def _summaries(self):
    return {value.tag: (step, tf.make_ndarray(value.tensor))
            for step, value in tiny.summaries(self._dir)}

  def test_every_column_is_described(self):
    text = pathlib.Path(
        __file__).parents[3].joinpath('docs/runs.md').read_text('utf-8')
    table = text.partition('## Every metric')[2].partition('\n## ')[0]
    self.assertCountEqual(metrics.COLUMNS, [
        name for row in re.findall(r'^\| (`.*?) \|', table, re.MULTILINE)
        for name in re.findall('`([a-z_]+)`', row)])

  def test_tensorboard_shows_rows_images_and_settings(self):
    writer = metrics.Writer(self._dir, 0)
    writer.row(self._row(100, entropy=0.5))
    self.assertEqual(writer.progress.note, 'success 33.3 %')
    writer.image('episode', np.zeros([4, 6, 3], np.uint8), 100)
    with mock.patch.object(
        metrics.hparams, 'hparams', wraps=metrics.hparams.hparams) as compared:
      writer.settings('runs/it_seed3', {'discount': .9}, settings='| a |')
    compared.assert_called_with({'discount': .9}, trial_id='runs/it')
    writer.close()
    values = self._summaries()
    self.assertCountEqual(values, [
        'run/episodes', 'at a glance/1 success rate', 'policy/entropy',
        'settings', 'episode', '_hparams_/session_start_info'])
    self.assertEqual(values['policy/entropy'], (100, 0.5))
    self.assertEqual(values['episode'][0], 100)
    self.assertLen(values['episode'][1], 2 + 1)  # Width, height and picture.
    self.assertEqual(values['settings'][1].item(), b'| a |')

  @parameterized.parameters('at a glance', 'checker')
  def test_tensorboard_shows_first_what_matters(self, first):
    writer = metrics.Writer(self._dir, 0, checked=first == 'checker')
    writer.row({name: 1 for name in metrics.COLUMNS})
    writer.close()
    tags = sorted(self._summaries())
    self.assertEqual(
        tags[:2],
        [f'{first}/1 success rate', f'{first}/2 reward model accuracy'])
    self.assertFalse(tags[2].startswith(f'{first}/'))
    self.assertLen(tags, len(metrics.COLUMNS) - 2)  # But steps and seconds.
    of_truth = [tag for tag in tags if 'checker' in tag]
    self.assertLen(of_truth, 5 if first == 'checker' else 0)
