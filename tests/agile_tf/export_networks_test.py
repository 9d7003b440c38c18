"""Tests for copies of runs with the networks alone."""

import functools
import os
import pathlib
import shutil
from unittest import mock

import numpy as np

import agile_tf
from agile_tf import export_networks
from agile_tf import records
from agile_tf.recipe import settings
from agile_tf.training import checkpoints
from agile_tf.training import metrics
from agile_tf.training import run as run_lib
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs

_TEXTS = ["SameLocation(AGENT, Shape('rect', SCENE))"] * 2


class ExportNetworksTest(tiny.SavedRunTest):

  def _export(self):
    self._parent = self.create_tempdir().full_path
    output = os.path.join(self._parent, 'copy')
    self.assertEqual(export_networks.export(self.run_dir, output), 0)
    return output

  def test_copy_has_the_same_networks_and_nothing_else(self):
    output = self._export()
    images = np.random.default_rng(0).integers(
        256, size=[2, 56, 56, 3]).astype(np.uint8)
    for load in (functools.partial(agile_tf.load_policy, greedy=True),
                 agile_tf.load_reward_model):
      np.testing.assert_array_equal(
          load(output)(images, _TEXTS), load(self.run_dir)(images, _TEXTS))
    self.assertEqual(
        {name.split(':')[0] for name in checkpoints.load(output).arrays},
        {'policy', 'discriminator'})
    self.assertCountEqual(
        os.listdir(output),
        ['checkpoints', 'config.json', 'metrics.csv', 'reward_model'])
    size = sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, names in os.walk(output) for name in names)
    self.assertLess(size, 1.6e6)
    self.assertNotIn(self.run_dir, str(checkpoints.load(output).values))
    self.assertEqual(
        settings.load(os.path.join(output, 'config.json'))[0].run_dir, '')

  def test_a_step_can_be_chosen(self):
    run_dir = self.create_tempdir().full_path
    shutil.copytree(self.run_dir, run_dir, dirs_exist_ok=True)
    first = checkpoints.load(run_dir)
    checkpoints.save(run_dir, 16, first._replace(
        arrays={name: value + 1 for name, value in first.arrays.items()},
        values={**first.values, 'steps': 16}), keep=9)
    for flags, expected in ((['--checkpoint=0'], 0), ([], 16)):
      output = os.path.join(self.create_tempdir().full_path, 'copy')
      result = programs.call(
          export_networks, f'--run_dir={run_dir}', f'--output={output}', *flags)
      self.assertEqual(result.returncode, 0, result.stderr)
      copy, there = checkpoints.load(output), checkpoints.load(
          run_dir, expected)
      self.assertEqual(copy.values['steps'], expected)
      for name, value in copy.arrays.items():
        np.testing.assert_array_equal(value, there.arrays[name], name)

  def test_rows_after_the_checkpoint_are_left_out(self):
    with open(os.path.join(self.run_dir, 'metrics.csv'), 'a',
              encoding='utf-8') as file:
      empty = ',' * (len(metrics.COLUMNS) - 2) + '\r\n'
      file.write(f'0,1{empty}16,2{empty}0')  # The last is being written.
    rows = records.rows(os.path.join(self._export(), 'metrics.csv'))
    self.assertEqual([row['steps'] for row in rows], ['0'])

  def test_a_table_that_cannot_be_read_is_named(self):
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    shutil.copytree(self.run_dir, run_dir)
    os.remove(path := os.path.join(run_dir, 'metrics.csv'))
    os.mkdir(path)
    with self.assertRaisesRegex(program.UserError, 'csv cannot be read'):
      export_networks.export(run_dir, os.path.join(run_dir, 'copy'))

  def test_copy_cannot_be_resumed_but_begins_other_runs(self):
    output = self._export()
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'networks alone.*--initial_policy'):
      run_lib.build(tiny.plan(run_dir=output), lambda: None)
    trainer, run = run_lib.build(tiny.plan(
        run_dir=self.create_tempdir().full_path, initial_policy=output,
        reward='frozen', reward_model=output), lambda: None)
    run.close()
    expected = checkpoints.load(self.run_dir).arrays
    assert trainer.discriminator is not None
    for name, part in (('policy', trainer.policy),
                       ('discriminator', trainer.discriminator)):
      for key, value in part.state().items():
        if not key.endswith(('/mean_square', '/momentum')):
          np.testing.assert_array_equal(value, expected[f'{name}:{key}'])

  def test_other_directories_are_left_alone(self):
    output = self.create_tempdir().full_path
    pathlib.Path(os.path.join(output, 'mine')).touch()
    with self.assertRaisesRegex(program.UserError, 'not empty'):
      export_networks.export(self.run_dir, output)
    self.assertEqual(os.listdir(output), ['mine'])

  def test_half_a_copy_is_removed(self):
    with (mock.patch.object(os, 'rename', side_effect=OSError('full')),
          self.assertRaisesRegex(program.UserError, 'cannot be saved .full')):
      self._export()
    self.assertEmpty(os.listdir(self._parent))
