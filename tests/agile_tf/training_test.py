"""Tests for whole runs: repeatable, resumable, and by their algorithm boxes."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf import checkpoints
from agile_tf import config as config_lib
from agile_tf import launch
from agile_tf import training
from tests.agile_tf import tiny


def _no_tick():
  pass


def _through_files(checkpoint: checkpoints.Checkpoint):
  """What is left of a checkpoint's values after JSON."""
  return checkpoint._replace(
      values=json.loads(json.dumps(checkpoint.values)))


class TrainingTest(parameterized.TestCase):

  def _assert_same(self, one, other):
    self.assertEqual(one.arrays.keys(), other.arrays.keys())
    for name, value in one.arrays.items():
      np.testing.assert_array_equal(value, other.arrays[name], name)
    self.assertEqual(one.values, other.values)

  def test_lockstep_is_repeatable_and_resuming_changes_nothing(self):
    half = training.Trainer(
        tiny.config(steps=32, reward_prediction=True))
    launch.drive_in_lockstep(half, _no_tick)
    saved = _through_files(half.checkpoint())
    config = tiny.config(steps=64, reward_prediction=True)
    resumed = training.Trainer(config)
    resumed.load(saved)
    launch.drive_in_lockstep(resumed, _no_tick)
    whole = training.Trainer(config)
    launch.drive_in_lockstep(whole, _no_tick)
    end = _through_files(whole.checkpoint())
    self._assert_same(_through_files(resumed.checkpoint()), end)
    # The second worker sat out the first round: 2 + 16 * 4 steps.
    self.assertEqual(end.values['steps'], 66)
    self.assertEqual(end.values['iterations'], 8)
    # It was not all the same because nothing happened.
    for group in ('policy', 'discriminator'):
      before = checkpoints.unpack(saved.arrays, group)
      after = checkpoints.unpack(end.arrays, group)
      for name in before:
        self.assertTrue((before[name] != after[name]).any(), name)

  def test_seeds_differ(self):
    parameters = [
        training.Trainer(tiny.config(seed=seed)).policy.state()
        for seed in (0, 0, 1)]
    name = 'policy/hidden/w'
    np.testing.assert_array_equal(parameters[0][name], parameters[1][name])
    self.assertFalse(np.array_equal(parameters[0][name], parameters[2][name]))

  def test_the_two_ways_to_play_train_alike(self):
    ends = []
    for kind in ('compiled', 'environment'):
      trainer = training.Trainer(tiny.config(rollouts=kind))
      launch.drive_in_lockstep(trainer, _no_tick)
      ends.append(trainer.checkpoint().arrays)
    for name, value in ends[0].items():
      np.testing.assert_allclose(value, ends[1][name], atol=1e-5, err_msg=name)

  @parameterized.parameters(
      dict(all_workers_write=False, expected=8 * 2),
      dict(all_workers_write=True, expected=8 * 2 + 66))
  def test_who_writes_to_the_replay_buffer(self, all_workers_write, expected):
    trainer = training.Trainer(tiny.config(
        all_workers_write=all_workers_write, replay_size=1000))
    launch.drive_in_lockstep(trainer, _no_tick)
    assert trainer.buffer is not None
    self.assertLen(trainer.buffer, expected)

  def test_ground_truth_reward_needs_no_discriminator(self):
    trainer = training.Trainer(tiny.config(reward='environment'))
    launch.drive_in_lockstep(trainer, _no_tick)
    row = trainer.row()
    self.assertEqual(row['steps'], 66)
    self.assertIn('success_rate', row)
    self.assertNotIn('reward_model_accuracy', row)
    self.assertFalse(checkpoints.unpack(
        trainer.checkpoint().arrays, 'discriminator'))

  def test_a_frozen_reward_model_stays_as_it_is(self):
    other = training.Trainer(tiny.config(seed=5))
    arrays = checkpoints.unpack(other.checkpoint().arrays, 'discriminator')
    trainer = training.Trainer(
        tiny.config(reward='frozen', reward_model='elsewhere'), arrays)
    launch.drive_in_lockstep(trainer, _no_tick)
    for name, value in checkpoints.unpack(
        trainer.checkpoint().arrays, 'discriminator').items():
      np.testing.assert_array_equal(value, arrays[name], name)
    self.assertIn('reward_model_accuracy', trainer.row())

  def test_rows_have_the_metrics_of_both_networks(self):
    trainer = training.Trainer(tiny.config())
    launch.drive_in_lockstep(trainer, _no_tick)
    row = trainer.row()
    self.assertEqual(row['steps'], 66)
    self.assertEqual(row['episodes'], 16)
    self.assertEqual(row['steps_per_discriminator_update'], 66 / 8)
    self.assertEqual(row['discriminator_steps'], 16)
    self.assertAlmostEqual(
        row['reward_model_accuracy'],
        1 - row['false_positives'] - row['false_negatives'])
    self.assertNotIn('policy_loss', trainer.row())  # Taken is taken.

  def test_an_episode_is_kept_for_a_picture(self):
    trainer = training.Trainer(tiny.config())
    launch.drive_in_lockstep(trainer, _no_tick)
    episode = trainer.take_episode()
    assert episode is not None
    self.assertIn('SameLocation', episode.instruction)
    self.assertEqual(episode.observations.shape, (5, 27))
    self.assertEqual(episode.rewarded.shape, (4,))
    self.assertEqual(
        trainer.images(episode.observations).shape, (5, 56, 56, 3))
    self.assertIsNone(trainer.take_episode())

  def test_unknown_worlds_are_named(self):
    for name, part in (('nowhere', 'nowhere'),
                       ('no.such.module:f', 'no.such'),
                       ('json:nothing', 'nothing'),
                       ('builtins:list', 'returned list')):
      with self.assertRaisesRegex(ValueError, part):
        training.make_world(config_lib.Config(world=name))


if __name__ == '__main__':
  absltest.main()
