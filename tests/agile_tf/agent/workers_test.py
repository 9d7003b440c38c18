"""Tests for workers: what they draw, and how rho changes."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import signatures
from agile_tf.agent import workers


class AnnealedTest(parameterized.TestCase):

  @parameterized.parameters(
      (0, 1.0), (250, 0.85), (500, 0.7), (1000, 0.4), (10**9, 0.4))
  def test_changes_linearly(self, step, expected):
    rate = workers.Annealed(0.4, 1.0, 1000)
    self.assertAlmostEqual(rate.at(step), expected)

  def test_may_rise(self):
    rate = workers.Annealed(1.0, 0.25, 100)
    self.assertAlmostEqual(rate.at(50), 0.625)

  def test_is_constant_by_default(self):
    rate = workers.Annealed(0.25)
    self.assertEqual([rate.at(0), rate.at(10**6)], [0.25] * 2)


class _GoalExamples:
  """Goal examples that are not states of any rollout."""

  def sample(self, rng, count):
    numbers = rng.integers(200, 256, size=count)
    return signatures.Pairs(
        numbers[:, None].astype(np.int32),
        numbers[:, None].astype(np.uint8))

  def sample_mismatched(self, rng, count):
    codes, observations = self.sample(rng, count)
    return signatures.Pairs(-codes, observations)


def _rollout(length, width):
  """States that all differ; the code is the state's number."""
  states = np.arange((length + 1) * width).reshape(length + 1, width, 1)
  mask = np.ones([length, width], np.float32)
  return rollouts.Rollout(
      states.astype(np.uint8), np.arange(width, dtype=np.int32)[:, None],
      np.zeros([length, width], np.int32), mask, mask, mask,
      np.zeros([width], np.bool_), np.zeros([width], np.bool_),
      ('go',) * width)


class DiscriminatorWorkerTest(parameterized.TestCase):

  @parameterized.parameters((0, 8), (50, 13), (100, 32), (1000, 32))
  def test_draws_as_many_as_rho_forgives(self, step, drawn):
    """rho falls from 1 to 1/4; half of the 16 negatives are from B."""
    actor = mock.Mock(**{'play.return_value': _rollout(40, 1)})
    networks = mock.MagicMock()
    networks.apply.return_value = tf.ones([1])
    gradients = mock.Mock(return_value=(tf.zeros([1]), {'loss': tf.zeros([])}))
    worker = workers.DiscriminatorWorker(
        actor, networks, networks, gradients, _GoalExamples(),
        replay.ReplayBuffer(100, 1, [1]), 32, 32,
        workers.Annealed(0.25, 1.0, 100), np.random.default_rng(0),
        num_mismatched=8)
    worker.iterate(step)
    (_, goals, candidates, count, mismatched), _ = gradients.call_args
    self.assertEqual(count, drawn)
    self.assertLen(goals.codes, 16)
    self.assertLen(candidates.codes, 32)
    self.assertLen(mismatched.codes, 8)

  def test_waits_until_b_has_enough(self):
    actor = mock.Mock(**{'play.return_value': _rollout(5, 1)})
    networks, gradients = mock.MagicMock(), mock.Mock()
    gradients.return_value = tf.zeros([1]), {}
    networks.apply.return_value = tf.ones([1])
    worker = workers.DiscriminatorWorker(
        actor, networks, networks, gradients, _GoalExamples(),
        replay.ReplayBuffer(100, 1, [1]), 8, 10, workers.Annealed(0.4),
        np.random.default_rng(0))
    worker.iterate()
    gradients.assert_not_called()
    worker.iterate()
    gradients.assert_called_once()


class PolicyWorkerTest(parameterized.TestCase):

  def _iterate(self, rollout, gradients, **changes):
    """One iteration; returns it, and the arguments of the gradients and apply.

    Each state is rewarded with its number, whether it was played or not.
    """
    values = rollout.observations[1:, :, 0].astype(np.float32)
    reward = mock.Mock(return_value=rollouts.Reward(values, values > 6))
    policy = mock.MagicMock()
    policy.apply.return_value = tf.ones([1])
    losses = tf.range(len(rollout.codes), dtype=tf.float32)
    program = mock.Mock(return_value=(gradients, {'loss': losses}))
    self.actor = mock.Mock(**{'play.return_value': rollout})
    settings = dict(
        predictions=None, buffer=None, entropy_weight=workers.Annealed(0.25),
        learning_rate=workers.Annealed(0.5, 1.0, 10)) | changes
    iteration = workers.PolicyWorker(
        self.actor, policy, reward, program, **settings).iterate(5)
    return iteration, program.call_args.args, policy.apply.call_args

  def _partly_played(self):
    """Worker 0 sits it out, and worker 1 ends after two of three steps."""
    rollout = _rollout(3, 3)
    mask = np.array([[0, 1, 1], [0, 1, 1], [0, 0, 1]], np.float32)
    return rollout._replace(mask=mask, ended=np.array([False, True, True]))

  def test_steps_that_were_not_played_are_not_rewarded(self):
    rollout = self._partly_played()
    _, arguments, _ = self._iterate(rollout, ['a', 'b', 'c'])
    self.assertEqual(
        arguments[4].tolist(), [[0, 4, 5], [0, 7, 8], [0, 0, 11]])

  def test_workers_that_sat_it_out_do_not_update(self):
    iteration, _, (gradients, settings) = self._iterate(
        self._partly_played(), ['a', 'b', 'c'])
    self.assertEqual(gradients, ('b', 'c'))
    self.assertEqual(settings, {'learning_rate': 0.75})
    self.assertEqual(iteration.metrics['loss'], 1.5)  # Of 1 and 2.

  def test_an_averaged_gradient_updates_once(self):
    _, _, (gradients, _) = self._iterate(self._partly_played(), ['mean'])
    self.assertEqual(gradients, ('mean',))

  def test_failed_episodes_may_begin_again(self):
    self._iterate(self._partly_played(), ['mean'], repeated_share=0.75)
    (workers_, share), _ = self.actor.repeat.call_args
    # Worker 1 ended in state 7, worker 2 in 11, and both count as goal states.
    self.assertEqual((list(workers_), share), ([], 0.75))
    rollout = self._partly_played()
    rollout.observations[2, 1] = 3
    self._iterate(rollout, ['mean'], repeated_share=0.75)
    self.assertEqual(list(self.actor.repeat.call_args.args[0]), [1])
    self._iterate(rollout, ['mean'])
    self.actor.repeat.assert_not_called()

  def test_writes_to_b_what_was_played(self):
    buffer = replay.ReplayBuffer(100, 1, [1])
    self._iterate(self._partly_played(), ['mean'], buffer=buffer)
    self.assertLen(buffer, 5)


class RewardPredictionTest(absltest.TestCase):

  def test_goal_examples_beside_replayed_states(self):
    length, width, replayed, goals = 5, 3, 4, 6
    predictions = workers.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), replayed, np.random.default_rng(0),
        _GoalExamples(), goals)
    rollout = _rollout(length, width)
    decisions = rollout.observations[1:, :, 0] % 3 == 0
    codes, observations, positive = predictions.exchange(rollout, decisions)
    self.assertEqual(codes.shape, (width, replayed + 2 * goals, 1))
    self.assertEqual(observations.shape, (width, replayed + 2 * goals, 1))
    is_goal = codes[..., 0] >= 200
    is_other = codes[..., 0] < 0
    np.testing.assert_array_equal(is_goal.sum(1), [goals] * width)
    np.testing.assert_array_equal(is_other.sum(1), [goals] * width)
    played = ~is_goal & ~is_other
    np.testing.assert_array_equal(
        positive, is_goal | played & (observations[..., 0] % 3 == 0))
    np.testing.assert_array_equal(
        positive.sum(1), [replayed // 2 + goals] * width)
    # Each state that was played has its own instruction.
    np.testing.assert_array_equal(
        codes[played], observations[played] % width)

  def test_of_the_next_state(self):
    """What is stored with a state is then the decision on the next one."""
    for of_next_state in False, True:
      buffer = replay.ReplayBuffer(100, 1, [1])
      predictions = workers.RewardPrediction(
          buffer, 4, np.random.default_rng(0), of_next_state=of_next_state)
      rollout = _rollout(5, 3)
      rollout = rollout._replace(
          mask=np.arange(5)[:, None] < np.array([5, 2, 0]))
      predictions.exchange(rollout, rollout.observations[1:, :, 0] % 4 == 0)
      stored = buffer.state()
      # States are numbered by rows of three; worker 1 plays two steps.
      after = np.array([3, 4, 6, 7, 9, 12, 15])
      np.testing.assert_array_equal(
          stored['observations'][:, 0], after - 3 * of_next_state)
      np.testing.assert_array_equal(stored['positive'], after % 4 == 0)

  def test_uniform(self):
    """Batches then have the buffer's own share of rewards."""
    predictions = workers.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), 1000, np.random.default_rng(0),
        balanced=False)
    rollout = _rollout(5, 3)
    positive = predictions.exchange(
        rollout, rollout.observations[1:, :, 0] % 15 == 3).positive
    # One of 15 states.
    np.testing.assert_allclose(positive.mean(1), 1 / 15, atol=0.04)

  def test_none_in_the_paper(self):
    predictions = workers.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), 4, np.random.default_rng(0))
    rollout = _rollout(5, 3)
    codes, _, positive = predictions.exchange(
        rollout, rollout.observations[1:, :, 0] % 3 == 0)
    self.assertEqual(codes.shape, (3, 4, 1))
    np.testing.assert_array_equal(positive.sum(1), [2] * 3)


if __name__ == '__main__':
  absltest.main()
