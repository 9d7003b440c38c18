"""Tests for workers: what they draw, compute and update."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import workers


class _GoalExamples:
  """Goal examples that are not states of any rollout."""

  def sample(self, rng, count):
    numbers = rng.integers(200, 256, size=count)
    return rollouts.Pairs(
        numbers[:, None].astype(np.int32),
        numbers[:, None].astype(np.uint8))


def _rollout(length, width):
  """States that all differ; the code is the state's number."""
  states = np.arange((length + 1) * width).reshape(length + 1, width, 1)
  mask = np.ones([length, width], np.float32)
  return rollouts.Rollout(
      states.astype(np.uint8), np.arange(width, dtype=np.int32)[:, None],
      np.zeros([length, width], np.int32), mask, mask, mask,
      np.zeros([width], np.bool_), ('go',) * width)


class DiscriminatorWorkerTest(absltest.TestCase):

  def test_waits_until_b_has_enough_and_draws_as_much_as_rho_forgives(self):
    actor = mock.Mock(**{'play.return_value': _rollout(5, 1)})
    shared, programs = mock.Mock(), mock.Mock()
    programs.discriminator_gradients.return_value = 'gradient', {}
    shared.apply.return_value = tf.ones([1])
    buffer = replay.ReplayBuffer(100, 1, [1])
    negatives = workers.AnticipatedNegatives(buffer, 4, 0.4)
    worker = workers.DiscriminatorWorker(
        actor, shared, programs, _GoalExamples(), buffer, negatives, 8, 0.3,
        np.random.default_rng(0))
    parameters = workers.Parameters('theta', 'phi')
    self.assertEqual(worker.iterate(parameters).metrics, {})
    programs.discriminator_gradients.assert_not_called()
    with mock.patch.object(negatives, 'draw', wraps=negatives.draw) as draw:
      worker.iterate(parameters, 7)
    draw.assert_called_once_with(worker.rng, 7)  # A recipe's rho may fall.
    actor.play.assert_called_with('theta')
    shared.apply.assert_called_once_with(0.3, 'gradient')
    (phi, goals, candidates), _ = programs.discriminator_gradients.call_args
    self.assertEqual(phi, 'phi')
    self.assertLen(goals.codes, 4)
    self.assertLen(candidates.codes, 10)  # 8 / (2 * 0.4)
    self.assertTrue((goals.codes >= 200).all())
    self.assertTrue((candidates.codes < 200).all())
    programs.discriminator_gradients.return_value = 'gradient', {'loss': np.nan}
    with self.assertRaises(workers.NumericsError):
      worker.iterate(parameters)


class PolicyWorkerTest(parameterized.TestCase):

  def _iterate(self, rollout, gradients, phi='phi', norms=(1.,), **changes):
    """One iteration; returns it, and the arguments of the gradients and apply.

    Each state is rewarded with its number, whether it was played or not.
    """
    values = rollout.observations[1:, :, 0].astype(np.float32)
    policy = mock.Mock()
    policy.apply.return_value = tf.constant(norms)
    losses = tf.range(len(rollout.codes), dtype=tf.float32)
    programs = mock.Mock(reward_scale=0.5)
    programs.reward.return_value = map(tf.constant, (values, values > 6))
    programs.policy_gradients.return_value = gradients, {'loss': losses}
    actor = mock.Mock(**{'play.return_value': rollout})
    settings = dict(
        auxiliary=None, buffer=None,
        entropy_weight=lambda step: 1.25,
        learning_rate=lambda step: 0.2) | changes
    iteration = workers.PolicyWorker(
        actor, policy, programs, **settings).iterate(
            workers.Parameters('theta', phi), 5)
    actor.play.assert_called_once_with('theta')
    self.assertEqual(programs.policy_gradients.call_args.args[0], 'theta')
    return (iteration, programs.policy_gradients.call_args.args,
            policy.apply.call_args)

  def _partly_played(self):
    """Worker 0 sits it out, and worker 1 ends after two of three steps."""
    rollout = _rollout(3, 3)
    mask = np.array([[0, 1, 1], [0, 1, 1], [0, 0, 1]], np.float32)
    return rollout._replace(mask=mask, ended=np.array([False, True, True]))

  def test_steps_that_were_not_played_are_not_rewarded(self):
    rollout = self._partly_played()
    _, (_, _, values, entropy_weight, replayed), _ = self._iterate(
        rollout, ['a', 'b'])
    self.assertEqual(values.tolist(), [[0, 4, 5], [0, 7, 8], [0, 0, 11]])
    self.assertEqual(entropy_weight, 1.25)
    self.assertIsNone(replayed)

  def test_workers_that_sat_it_out_do_not_count(self):
    iteration, _, (arguments, _) = self._iterate(
        self._partly_played(), ['b', 'c'])
    self.assertEqual(arguments, (0.2, 'b', 'c'))
    self.assertEqual(iteration.metrics['loss'], 1.5)  # Of 1 and 2.

  def test_a_rollout_in_which_nothing_was_played_changes_nothing(self):
    policy = mock.MagicMock()
    rollout = _rollout(3, 3)._replace(mask=np.zeros([3, 3], np.float32))
    iteration = workers.PolicyWorker(
        mock.Mock(**{'play.return_value': rollout}), policy, mock.Mock(),
        None, None, lambda step: 1.25, lambda step: 0.2).iterate(
            workers.Parameters('theta', 'phi'))
    self.assertEqual(iteration.metrics, {})
    policy.apply.assert_not_called()

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_the_first_number_that_is_not_finite_is_named(self, bad):
    workers._require_finite({'loss': np.ones(3), 'norm': 3.}, [4, 5, 7])
    with self.assertRaises(workers.NumericsError) as caught:
      workers._require_finite(
          {'loss': np.ones(3), 'entropy': np.array([0, bad, bad])}, [4, 5, 7])
    self.assertEqual((caught.exception.name, caught.exception.row),
                     ('entropy', 5))
    np.testing.assert_equal(caught.exception.value, bad)

  def test_a_gradient_that_is_not_finite_names_its_worker(self):
    for applied, norms, row in (
        ['b', 'c'], (1., np.inf), 2), (['a'], (np.inf,), None):  # The mean.
      with self.assertRaises(workers.NumericsError) as caught:
        self._iterate(self._partly_played(), applied, norms=norms)
      self.assertEqual((caught.exception.name, caught.exception.row),
                       ('policy_gradient_norm', row))

  def test_a3c_is_rewarded_by_the_ground_truth(self):
    truth = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1]], np.float32)
    iteration, (_, _, values, _, _), _ = self._iterate(
        self._partly_played()._replace(true_rewards=truth), ['b', 'c'],
        phi=None)
    np.testing.assert_array_equal(values, 0.5 * truth, strict=True)
    np.testing.assert_array_equal(iteration.decisions, truth > 0)

  def test_reward_prediction_learns_what_d_decides(self):
    auxiliary = mock.Mock()
    rollout = self._partly_played()
    iteration, (*_, replayed), _ = self._iterate(
        rollout, ['b', 'c'], auxiliary=auxiliary)
    (exchanged, decisions), _ = auxiliary.exchange.call_args
    self.assertIs(exchanged, rollout)
    np.testing.assert_array_equal(decisions, rollout.observations[1:, :, 0] > 6)
    np.testing.assert_array_equal(iteration.decisions, decisions)
    self.assertIs(replayed, auxiliary.exchange.return_value)

  def test_what_changes_knows_the_step(self):
    changing = dict(entropy_weight=mock.Mock(return_value=1.25),
                    learning_rate=mock.Mock(return_value=0.2))
    self._iterate(self._partly_played(), ['b', 'c'], **changing)
    for each in changing.values():
      each.assert_called_once_with(5)

  def test_writes_to_b_what_was_played(self):
    buffer = replay.ReplayBuffer(100, 1, [1])
    self._iterate(self._partly_played(), ['b', 'c'], buffer=buffer)
    self.assertLen(buffer, 5)


class RewardPredictionTest(absltest.TestCase):

  def test_half_of_a_batch_was_rewarded(self):
    predictions = replay.RewardPrediction(
        replay.ReplayBuffer(100, 1, [1]), 4, np.random.default_rng(0))
    rollout = _rollout(5, 3)
    codes, observations, positive = predictions.exchange(
        rollout, rollout.observations[1:, :, 0] % 3 == 0)
    self.assertEqual(codes.shape, (3, 4, 1))
    self.assertLen(np.unique(observations, axis=0), 3)  # Each worker's own.
    np.testing.assert_array_equal(positive.sum(1), [2] * 3)
    np.testing.assert_array_equal(positive, observations[..., 0] % 3 == 0)
    # Each state has its own instruction.
    np.testing.assert_array_equal(codes, observations % 3)
