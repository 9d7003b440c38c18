"""Tests for learning: compiled programs against plain eager computations."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.recipe import averaging
from tests.agile_tf.agent import gradient_cases as cases

_SHAPE = (40, 48, 3)  # A board of 3 x 4, which minimal filtering is not for.
_TEXTS = ('red', 'go red', 'go blue', 'stop')


def _world():
  def unused(*_):
    raise AssertionError('The gradients do not need this.')

  return worlds.World(
      unused, instructions.Grammar(_TEXTS), _SHAPE, num_actions=3,
      goal_examples='', has_ground_truth=False)


def _images(rng, *shape):
  """Bright and dark ones, so that networks tell them apart."""
  brightness = rng.uniform(size=[*shape, 1, 1, 3])
  return (255 * brightness * rng.uniform(size=[*shape, *_SHAPE])).astype(
      np.uint8)


def _scaled(observations):
  return tf.constant(observations.astype(np.float32) / 255)


def _worker_gradient(policy, theta, codes, observations, actions, rewards,
                     discounts, td_lambda, replayed):
  """The gradient of one worker's loss, over the steps that it played."""
  length = len(actions)
  repeated = np.repeat(codes[None], length + 1, axis=0)
  following = policy(
      theta, _scaled(observations), tf.constant(repeated)).baseline.numpy()[1:]
  targets, target = [], following[-1] if length else None
  for t in reversed(range(length)):
    target = rewards[t] + cases.DISCOUNT * discounts[t] * (
        (1 - td_lambda) * following[t] + td_lambda * target)
    targets.insert(0, target)
  with tf.GradientTape() as tape:
    tape.watch(theta)
    loss = tf.constant(0.0)
    terms = dict.fromkeys(('policy_loss', 'baseline_loss', 'entropy'), 0.0)
    for t in range(length):
      output = policy(
          theta, _scaled(observations[t:t + 1]), tf.constant(codes[None]))
      pi = tf.nn.softmax(output.logits[0])
      value = output.baseline[0]
      step = {
          'policy_loss':
              -tf.math.log(pi[actions[t]]) * (targets[t] - value.numpy()),
          'baseline_loss': 0.5 * (targets[t] - value)**2,
          'entropy': -tf.reduce_sum(pi * tf.math.log(pi)),
      }
      loss += (step['policy_loss'] + cases.BASELINE * step['baseline_loss'] -
               cases.ENTROPY * step['entropy'])
      for name in terms:
        terms[name] += float(step[name]) / length
    if replayed is not None:
      sample_codes, samples, positive = replayed
      p = tf.nn.softmax(policy(
          theta, _scaled(samples), tf.constant(sample_codes)).reward_logits)
      likelihood = tf.where(positive, p[:, 1], p[:, 0])
      terms['reward_prediction_loss'] = -tf.reduce_mean(
          tf.math.log(likelihood))
      loss += cases.PREDICTION * terms['reward_prediction_loss']
  gradient = tape.gradient(
      loss, theta, unconnected_gradients=tf.UnconnectedGradients.ZERO)
  return gradient, terms


class PolicyGradientsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._world = _world()
    self._policy = networks.policy('nmn', self._world.grammar, _SHAPE,
        num_actions=3)
    self._theta = cases.parameters(self._policy, 1)
    self._codes = self._world.grammar.encode(_TEXTS)

  def _assert_close(self, actual, expected, index):
    cases.assert_close(
        self._policy, actual, expected, 2e-3, 1e-5, f'worker {index}')

  @parameterized.parameters((1.0, False), (0.5, True))
  def test_each_workers_gradient_is_its_own(self, td_lambda, predicts):
    rng = np.random.default_rng(0)
    length = 4
    rollout = cases.rollout(rng, _images(rng, length + 1, 4))
    replayed = None
    if predicts:
      replayed = replay.Replayed(
          codes=self._codes[rng.integers(4, size=[4, 2])],
          observations=_images(rng, 4, 2),
          positive=np.array([[False, True]] * 3 + [[False, False]]))
    loss = programs_lib.Loss(
        cases.DISCOUNT, td_lambda, cases.BASELINE, cases.PREDICTION)
    programs = programs_lib.Programs(self._policy, None, self._world, loss)

    def run(rollout, programs=programs):
      return programs._policy_gradients(
          self._theta, cases.as_rollout(rollout, self._codes),
          rollout['rewards'], cases.ENTROPY, replayed)

    gradients, terms = run(rollout)
    self.assertLen(gradients, 4)
    for w, actual in enumerate(gradients):
      played = int(rollout['mask'][:, w].sum())
      self.assertEqual(played, [4, 2, 3, 0][w])
      expected, expected_terms = _worker_gradient(
          self._policy, self._theta, self._codes[w],
          rollout['observations'][:played + 1, w],
          *(rollout[name][:played, w]
            for name in ('actions', 'rewards', 'discounts')), td_lambda,
          replayed and [x[w] for x in replayed])
      self._assert_close(actual, expected, w)
      self.assertCountEqual(terms, expected_terms)
      for name, value in expected_terms.items():
        np.testing.assert_allclose(
            terms[name][w], value, rtol=1e-3, atol=1e-5, err_msg=name)
      largest = np.abs(actual).max()
      if played or predicts:
        self.assertGreater(largest, 0.01)
      else:
        self.assertEqual(largest, 0)

    # Averaged, there is one gradient: of the mean of the active workers.
    mean, _ = run(rollout, averaging.AveragedPrograms(
        self._policy, None, self._world, loss))
    cases.assert_close(
        self._policy, mean, tf.reduce_mean(gradients[:3], 0), 2e-3, 1e-5,
        'the mean')

    # An end with the last step that is played leaves nothing to bootstrap.
    other = {name: value.copy() for name, value in rollout.items()}
    other['discounts'][-1, 0] = 0
    expected, _ = _worker_gradient(
        self._policy, self._theta, self._codes[0],
        *(other[name][:, 0] for name in (
            'observations', 'actions', 'rewards', 'discounts')), td_lambda,
        replayed and [x[0] for x in replayed])
    actual = run(other)[0]
    self._assert_close(actual[0], expected, 0)
    self.assertFalse(np.allclose(actual[0], gradients[0], rtol=1e-2))

    # What stands in steps that were not played makes no difference.
    other = {name: value.copy() for name, value in rollout.items()}
    other['observations'][3:, 1] = _images(rng, length - 2)
    other['rewards'][2:, 1] = other['discounts'][2:, 1] = 7
    other['observations'][:, 3] = _images(rng, length + 1)
    other['rewards'][:, 3] = 7
    other['discounts'][3:, 2] = 7
    other['actions'][rollout['mask'] == 0] = 0
    for w, (one, two) in enumerate(zip(gradients, run(other)[0])):
      np.testing.assert_allclose(
          one, two, rtol=1e-5, atol=1e-6, err_msg=f'worker {w}')
    self.assertEqual(
        programs._policy_gradients.experimental_get_tracing_count(), 1)


class DiscriminatorProgramsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._world = _world()
    self._discriminator = networks.discriminator(
        'nmn', self._world.grammar, _SHAPE)
    self._phi = cases.parameters(self._discriminator, 2)
    self._codes = self._world.grammar.encode(_TEXTS)

  def _logits(self, codes, observations, phi=None):
    return self._discriminator(
        self._phi if phi is None else phi, _scaled(observations),
        tf.constant(codes))

  @parameterized.parameters(
      (3, 3), (12, 12), (12, 7), (12, 3), (1, 1, 2), (6, 4, 2))
  def test_gradients(self, num_candidates, drawn, num_mismatched=0):
    rng = np.random.default_rng(1)
    goals, candidates, mismatched = (
        (self._codes[rng.integers(4, size=n)], _images(rng, n))
        for n in (3, num_candidates, num_mismatched))
    programs = programs_lib.Programs(None, self._discriminator, self._world)
    gradient, terms = programs.discriminator_gradients(
        self._phi, rollouts.Pairs(*goals), replay.Negatives(
            rollouts.Pairs(*candidates), np.int32(drawn),
            rollouts.Pairs(*mismatched) if num_mismatched else None))

    # Lines 9 and 10 of Algorithm 1, an example at a time.
    ratings = [
        float(self._logits(code[None], image[None])[0])
        for code, image in zip(*(x[:drawn] for x in candidates))]
    kept = np.argsort(ratings)[:3 - num_mismatched]
    negatives = [np.concatenate([x[kept], other])
                 for x, other in zip(candidates, mismatched)]
    with tf.GradientTape() as tape:
      tape.watch(self._phi)
      d_goals = tf.sigmoid(self._logits(*goals))
      d_kept = tf.sigmoid(self._logits(*negatives))
      loss = (-tf.reduce_sum(tf.math.log(d_goals)) -
              tf.reduce_sum(tf.math.log(1 - d_kept))) / 6
    expected = tape.gradient(loss, self._phi)
    cases.assert_close(
        self._discriminator, gradient, expected, 2e-3, 1e-6, 'discriminator')
    np.testing.assert_allclose(terms['discriminator_loss'], loss, rtol=1e-4)
    self.assertAlmostEqual(
        float(terms['goals_accepted']), np.mean(d_goals > .5), places=6)
    self.assertAlmostEqual(
        float(terms['negatives_rejected']), np.mean(d_kept <= .5), places=6)

  def test_modelled_rewards(self):
    length, width = 6, 4
    observations = _images(np.random.default_rng(2), length + 1, width)

    def rate(phi):
      return np.array([
          [float(self._logits(
              self._codes[w:w + 1], observations[t + 1, w:w + 1], phi)[0])
           for w in range(width)] for t in range(length)])

    # The logits are linear in the last layer, which has no bias: mix two such
    # layers so that half of the first worker's states are on each side of 0.5.
    layout = self._discriminator.layout
    parts = layout.split(self._phi)
    last = layout.names[-1]
    one, two = parts[last], tf.abs(parts[last])
    ratio = np.median(
        (rate(self._phi) / rate(layout.join(parts | {last: two})))[:, 0])
    phi = layout.join(
        parts | {last: one - tf.cast(ratio, tf.float32) * two})
    logits = rate(phi)
    self.assertGreater(np.abs(logits).min(), 1e-5)
    decisions = logits > 0
    self.assertEqual(np.mean(decisions[:, 0]), 0.5)
    # Workers differ.
    self.assertGreater(len(np.unique(decisions, axis=1).T), 1)
    programs = programs_lib.Programs(None, self._discriminator, self._world)
    rewards, is_goal = programs.reward(phi, observations, self._codes)
    np.testing.assert_array_equal(is_goal, decisions)
    np.testing.assert_array_equal(
        rewards, np.where(decisions, 0.1, 0).astype(np.float32))


if __name__ == '__main__':
  absltest.main()
