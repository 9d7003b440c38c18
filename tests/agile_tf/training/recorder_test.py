"""Tests for recorder: recorded episodes and their pictures."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf.agent import rollouts
from agile_tf.training import recorder

_GREEN = (0, 160, 0)
_TEXT = ("NorthFrom(Color('green', Shape('triangle', SCENE)), "
         "Color('blue', Shape('triangle', SCENE)))")


def _rollout(first, steps, ended, workers=3):
  """Two actions, of which `steps` are played; states count up from `first`."""
  observations = np.zeros([3, workers, 1], np.uint8)
  observations[:, 0, 0] = first + np.minimum(np.arange(3), steps)
  return rollouts.Rollout(
      observations, np.zeros([workers, 1], np.int32),
      np.zeros([2, workers], np.int32), np.zeros([2, workers], np.float32),
      np.ones([2, workers], np.float32),
      (np.arange(2)[:, None] < steps).repeat(workers, 1).astype(np.float32),
      np.full([workers], ended), ('go',) * workers)


class RecorderTest(absltest.TestCase):

  def test_joins_the_rollouts_of_an_episode(self):
    followed = recorder.Recorder()
    decisions = np.zeros([2, 3], bool)
    decisions[0, 0] = True
    followed.add(_rollout(0, 2, False), decisions)
    self.assertIsNone(followed.take())
    followed.add(_rollout(2, 1, True), decisions)
    episode = followed.take()
    assert episode is not None
    self.assertEqual(episode.instruction, 'go')
    np.testing.assert_array_equal(episode.observations[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(episode.decisions, [True, False, True])
    self.assertIsNone(followed.take())

  def test_of_a_long_episode_the_end_is_kept(self):
    followed = recorder.Recorder()
    decisions = np.zeros([2, 3], bool)
    for i in range(500):
      rollout = _rollout(0, 2, i == 499)
      rollout.observations[:, 0, 0] = np.arange(2 * i, 2 * i + 3) % 256
      followed.add(rollout, decisions)
    episode = followed.take()
    assert episode is not None
    self.assertLen(episode.decisions, 300)
    np.testing.assert_array_equal(
        episode.observations[:, 0], np.arange(700, 1001) % 256)

  def test_after_a_resume_waits_for_an_episode_to_begin(self):
    followed = recorder.Recorder(waits=True)
    decisions = np.zeros([2, 3], bool)
    followed.add(_rollout(7, 2, True), decisions)
    self.assertIsNone(followed.take())
    followed.add(_rollout(0, 2, True), decisions)
    episode = followed.take()
    assert episode is not None
    np.testing.assert_array_equal(episode.observations[:, 0], [0, 1, 2])

  def test_keeps_nothing_of_the_other_workers(self):
    followed = recorder.Recorder()
    rollout = _rollout(0, 2, False, workers=1000)
    followed.add(rollout, np.zeros([2, 1000], bool))
    for kept in followed._observations:
      self.assertLess((kept if kept.base is None else kept.base).nbytes, 10)


def _episode(steps, size=56):
  images = np.random.default_rng(0).integers(
      1, 255, size=[steps + 1, size, size, 3]).astype(np.uint8)
  decisions = np.arange(1, steps + 1) % 4 == 0
  return recorder.RecordedEpisode(_TEXT, images, decisions), images


class PicturesTest(parameterized.TestCase):

  def test_a_sheet_shows_every_state_with_its_verdict(self):
    episode, images = _episode(30)
    sheet = recorder.sheet(episode, images, 'the reward model')
    # About as wide as TensorBoard shows it.
    self.assertLess(sheet.shape[1], 450)
    with mock.patch.object(recorder.rendering, 'contact_sheet') as drawn:
      recorder.sheet(episode, images, 'the reward model')
    framed, captions, _ = drawn.call_args.args
    np.testing.assert_array_equal(framed[:, 2:-2, 2:-2], images)
    framed[:, 2:-2, 2:-2] = framed[:, :1, :1]
    for frame, goal in zip(framed, [False, *episode.decisions], strict=True):
      self.assertTrue(np.all(frame == (_GREEN if goal else 255)))
    self.assertLen(captions, 31)
    self.assertEqual(captions[:6], [
        'start', '1 no goal', '2 no goal', '3 no goal', '4 goal', '5 no goal'])
    self.assertEqual(
        drawn.call_args.kwargs['title'], f'{_TEXT}, judged by the reward model')

  @parameterized.parameters((1, 56, 1), (11, 40, 2), (12, 300, 3), (300, 8, 10))
  def test_a_sheet_may_have_other_lengths_and_sizes(self, steps, size, rows):
    episode, images = _episode(steps, size)
    sheet = recorder.sheet(episode, images, 'the ground truth')
    height = max(1, round(56 / size)) * (size + 4) + 16 + 8
    self.assertBetween(len(sheet) - rows * height, 10, 150)
