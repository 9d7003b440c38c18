"""Tests for learning: compiled programs against plain eager computations."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf.agent import gradients as gradients_lib
from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.agent import rewards as rewards_lib
from agile_tf.agent import signatures
from agile_tf.agent import worlds
from gridlu import language
from tests.agile_tf.agent import network_oracles

_SHAPE = (40, 48, 3)  # A board of 3 x 4, which minimal filtering is not for.
_TEXTS = ('red', 'go red', 'go blue', 'stop')
_DISCOUNT, _ENTROPY, _BASELINE, _PREDICTION = 0.9, 0.05, 0.7, 1.3


def _world():
  def unused(*_):
    raise AssertionError('The gradients do not need this.')

  return worlds.World(
      make_environment=unused, grammar=instructions.Grammar(_TEXTS),
      image_shape=_SHAPE, num_actions=3, observation_shape=_SHAPE,
      observe=unused, images=lambda x: tf.cast(x, tf.float32) / 255,
      load_goal_examples=unused, has_ground_truth=False)


def _images(rng, *shape):
  """Bright and dark ones, so that networks tell them apart."""
  brightness = rng.uniform(size=[*shape, 1, 1, 3])
  return (255 * brightness * rng.uniform(size=[*shape, *_SHAPE])).astype(
      np.uint8)


def _parameters(network, seed):
  """Larger than the initial ones, with biases that are not zeros."""
  rng = np.random.default_rng(seed)
  initial = network.initial(seed)
  return tf.constant(np.where(
      initial == 0, rng.normal(scale=0.2, size=initial.shape),
      1.5 * initial).astype(np.float32))


def _scaled(observations):
  return tf.constant(observations.astype(np.float32) / 255)


def _rollout(rng, length):
  """Four workers: a whole rollout, two ends before T, and none at all.

  Worker 1's episode is terminated after two steps, and what follows means
  nothing. Worker 2's is truncated after three; its last state stays. Worker 3
  sits out. Worker 0 goes on.
  """
  observations = _images(rng, length + 1, 4)
  rewards = rng.uniform(size=[length, 4]).astype(np.float32)
  discounts = np.ones([length, 4], np.float32)
  mask = np.ones([length, 4], np.float32)
  discounts[1, 1], mask[2:, 1] = 0, 0
  discounts[2:, 1] = 5
  discounts[2, 2], mask[3:, 2], rewards[3:, 2] = 0.5, 0, 0
  observations[4:, 2] = observations[3, 2]
  mask[:, 3] = 0
  return dict(
      observations=observations,
      actions=rng.integers(3, size=[length, 4]).astype(np.int32),
      rewards=rewards, discounts=discounts, mask=mask)


def _worker_gradient(policy, theta, codes, observations, actions, rewards,
                     discounts, td_lambda, replayed):
  """The gradient of one worker's loss, over the steps that it played."""
  length = len(actions)
  repeated = np.repeat(codes[None], length + 1, axis=0)
  following = policy(
      theta, _scaled(observations), tf.constant(repeated)).baseline.numpy()[1:]
  targets, target = [], following[-1] if length else None
  for t in reversed(range(length)):
    target = rewards[t] + _DISCOUNT * discounts[t] * (
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
      loss += (step['policy_loss'] + _BASELINE * step['baseline_loss'] -
               _ENTROPY * step['entropy'])
      for name in terms:
        terms[name] += float(step[name]) / length
    if replayed is not None:
      sample_codes, samples, positive = replayed
      p = tf.nn.softmax(policy(
          theta, _scaled(samples), tf.constant(sample_codes)).reward_logits)
      likelihood = tf.where(positive, p[:, 1], p[:, 0])
      terms['reward_prediction_loss'] = -tf.reduce_mean(
          tf.math.log(likelihood))
      loss += _PREDICTION * terms['reward_prediction_loss']
  gradient = tape.gradient(
      loss, theta, unconnected_gradients=tf.UnconnectedGradients.ZERO)
  return gradient, terms


def _assert_close(network, actual, expected, rtol, atol, who):
  """Compares gradients, each parameter's by its own largest number."""
  expected = network.layout.split(expected)
  for name, one in network.layout.split(actual).items():
    other = expected[name].numpy()
    np.testing.assert_allclose(
        one, other, rtol=rtol, atol=atol + 1e-4 * np.abs(other).max(),
        err_msg=f'{who}, {name}')


class PolicyGradientsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._world = _world()
    self._policy = networks.policy('nmn', self._world.grammar, _SHAPE,
        num_actions=3)
    self._theta = _parameters(self._policy, 1)
    self._codes = self._world.grammar.encode(_TEXTS)

  def _assert_close(self, actual, expected, index):
    _assert_close(self._policy, actual, expected, 2e-3, 1e-5, f'worker {index}')

  @parameterized.parameters((1.0, False), (0.5, True))
  def test_each_workers_gradient_is_its_own(self, td_lambda, predicts):
    rng = np.random.default_rng(0)
    length = 4
    rollout = _rollout(rng, length)
    replayed = None
    if predicts:
      replayed = signatures.Replayed(
          codes=self._codes[rng.integers(4, size=[4, 2])],
          observations=_images(rng, 4, 2),
          positive=np.array([[False, True]] * 3 + [[False, False]]))
    program = gradients_lib.policy_gradients_program(
        self._policy, self._world, gradients_lib.PolicyLoss(
            _DISCOUNT, td_lambda, _BASELINE,
            _PREDICTION if predicts else 0.0))

    def run(rollout):
      return program(
          self._theta, rollout['observations'], self._codes,
          rollout['actions'], rollout['rewards'], rollout['discounts'],
          rollout['mask'], _ENTROPY, (), replayed)

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
    mean, = gradients_lib.policy_gradients_program(
        self._policy, self._world, gradients_lib.PolicyLoss(
            _DISCOUNT, td_lambda, _BASELINE,
            _PREDICTION if predicts else 0.0, averaged=True))(
                self._theta, rollout['observations'], self._codes,
                rollout['actions'], rollout['rewards'], rollout['discounts'],
                rollout['mask'], _ENTROPY, (), replayed)[0]
    _assert_close(self._policy, mean, tf.reduce_mean(gradients[:3], 0),
                  2e-3, 1e-5, 'the mean')

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
    self.assertEqual(program.experimental_get_tracing_count(), 1)


def _random(network, seed):
  """Float32 parameters with large FiLM tables, and no zeros among biases."""
  rng = np.random.default_rng(seed)
  values = network.layout.split(_parameters(network, seed))
  for name in values:
    if name.endswith(('film_nmn/gamma', 'film_nmn/beta', 'embeddings')):
      values[name] = tf.constant(
          rng.normal(size=values[name].shape), tf.float32)
    elif name.endswith(('/gamma/w', '/beta/w')):  # Of the FiLM-LSTM.
      values[name] = tf.constant(
          rng.normal(scale=0.3, size=values[name].shape), tf.float32)
  return network.layout.join(values)


class PlainFormulaTest(parameterized.TestCase):
  """Both losses' gradients against the plain formula in float64.

  The formula is `network_oracles`, differentiated by TensorFlow; in NumPy it is
  what `networks_test` compares outputs with.

  States and instructions are GridLU's, so that convolutions are computed in
  all the ways that they can be.
  """

  def setUp(self):
    super().setUp()
    self._rng = np.random.default_rng(0)
    self._world = worlds.gridlu_world('relations')
    self._examples = self._world.load_goal_examples(64, 0, 0.5)

  def _states(self, *shape):
    states = self._examples.states
    return states[self._rng.integers(len(states), size=shape)]

  def _texts(self, count):
    texts = [str(text) for text in language.relations_instructions()]
    return [texts[i] for i in self._rng.permutation(len(texts))[:count]]

  def _variables(self, network, parameters):
    """The parameters in float64, by short names, for the oracle."""
    return {
        name.partition('/')[2]: tf.cast(value, tf.float64)
        for name, value in network.layout.split(parameters).items()}

  def _apply(self, oracle, model, p, states, texts):
    """What the plain formula says about pairs of state and instruction."""
    images = tf.cast(self._world.images(tf.constant(states)), tf.float64)
    outputs = [
        oracle(model, image, language.parse(text).tree,
               self._world.grammar.tokens, p)
        for image, text in zip(tf.unstack(images), texts)]
    return tf.nest.map_structure(lambda *x: tf.stack(x), *outputs)

  def _assert_close(self, network, actual, expected, who='', without=()):
    """Compares each parameter's gradient by its own largest number.

    Those that begin with one of `without` are zeros, and no others.
    """
    for name, one in network.layout.split(actual).items():
      short = name.partition('/')[2]
      other = expected[short].numpy()
      largest = np.abs(other).max()
      self.assertEqual(largest == 0, short.startswith(tuple(without)), short)
      np.testing.assert_allclose(
          one, other, rtol=0, atol=1e-4 * largest, err_msg=f'{who} {name}')

  def _gradient(self, p, loss):
    with tf.GradientTape() as tape:
      tape.watch(p)
      value = loss()
    return tape.gradient(
        value, p, unconnected_gradients=tf.UnconnectedGradients.ZERO)

  def _worker_loss(self, model, p, text, rollout, w, replayed):
    """The loss of worker w; replayed: texts, states, positive."""
    played = int(rollout['mask'][:, w].sum())
    states = rollout['observations'][:played + 1, w]
    actions, rewards, discounts = (
        rollout[name][:played, w]
        for name in ('actions', 'rewards', 'discounts'))
    loss = tf.constant(0.0, tf.float64)
    target = 0.0
    if played:
      logits, values, _ = self._apply(
          network_oracles.policy, model, p, states[:-1], [text] * played)
      if discounts[-1]:
        target = self._apply(
            network_oracles.policy, model, p, states[-1:], [text])[1][0].numpy()
    for t in reversed(range(played)):
      target = float(rewards[t]) + _DISCOUNT * float(discounts[t]) * target
      log_pi = logits[t] - tf.reduce_logsumexp(logits[t])
      loss += (
          -log_pi[actions[t]] * (target - values[t].numpy()) +
          _BASELINE * 0.5 * (target - values[t])**2 +
          _ENTROPY * tf.reduce_sum(tf.exp(log_pi) * log_pi))
    if replayed is not None:
      texts, samples, positive = replayed
      _, _, logits = self._apply(
          network_oracles.policy, model, p, samples, texts)
      log_p = logits - tf.reduce_logsumexp(logits, -1, keepdims=True)
      loss -= _PREDICTION * tf.reduce_mean(
          tf.where(positive, log_p[:, 1], log_p[:, 0]))
    return loss

  @pytest.mark.slow
  def test_policy(self):
    self._test_policy('nmn', predicts=True)

  @parameterized.parameters(('nmn', False), ('lstm', True), ('lstm', False))
  @pytest.mark.slow
  def test_policy_of_other_kinds(self, model, predicts):
    self._test_policy(model, predicts)

  def _test_policy(self, model, predicts):
    length, width, samples = 4, 4, 2
    world = self._world
    policy = networks.policy(
        model, world.grammar, world.image_shape, world.num_actions)
    theta = _random(policy, 1)
    texts = self._texts(width)
    codes = world.grammar.encode(texts)
    # The last worker sits out, others do not play to the end.
    rollout = _rollout(self._rng, length)
    rollout['observations'] = self._states(length + 1, width)
    rollout['observations'][4, 2] = rollout['observations'][3, 2]
    replayed, sampled = None, None
    if predicts:
      sampled = [self._texts(samples) for _ in range(width)]
      replayed = signatures.Replayed(
          codes=np.stack([world.grammar.encode(each) for each in sampled]),
          observations=self._states(width, samples),
          positive=self._rng.integers(2, size=[width, samples]) > 0)
    program = gradients_lib.policy_gradients_program(
        policy, world, gradients_lib.PolicyLoss(
            _DISCOUNT, 1.0, _BASELINE,
            _PREDICTION if predicts else 0.0))

    def run(workers, results=()):
      """The gradients of some workers in one pass."""
      these = {name: value[:, workers] for name, value in rollout.items()}
      return program(
          theta, these['observations'], codes[workers], these['actions'],
          these['rewards'], these['discounts'], these['mask'], _ENTROPY,
          results, replayed and signatures.Replayed(
              *(x[workers] for x in replayed)))[0]

    every = slice(0, width)
    computed = run(every)
    p = self._variables(policy, theta)
    expected = [
        self._gradient(p, lambda w=w: self._worker_loss(
            model, p, texts[w], rollout, w, replayed and (
                sampled[w], replayed.observations[w], replayed.positive[w])))
        for w in range(width)]
    unused = [() if predicts else ('reward_prediction',)] * width
    unused[3] = ('hidden', 'logits', 'baseline') if predicts else ('',)
    for w in range(width):
      self._assert_close(
          policy, computed[w], expected[w], f'worker {w}', unused[w])
    if not predicts:
      np.testing.assert_array_equal(computed[3], 0)
      return

    for w in range(width):
      alone, = run(slice(w, w + 1))
      _assert_close(policy, computed[w], alone, 0, 0, f'worker {w}, alone')

    # What acting computed, four states at a time, is not computed again.
    acting = [
        policy.at(theta).record(
            world.images(tf.constant(states)), tf.constant(codes))[1]
        for states in rollout['observations'][:-1]]
    results = tuple(map(tf.stack, zip(*acting)))
    for w, reused in enumerate(run(every, results)):
      self._assert_close(
          policy, reused, expected[w], f'worker {w}, reused', unused[w])
    nothing = tuple(map(tf.zeros_like, results))  # It is believed.
    self.assertFalse(np.allclose(
        run(every, nothing)[0], computed[0], rtol=1e-2))

  @parameterized.parameters('nmn', 'lstm')
  @pytest.mark.slow
  def test_policy_with_all_instructions(self, model):
    """A worker's last step for each, and the mean of their gradients."""
    world, texts = self._world, self._texts(990)
    policy = networks.policy(
        model, world.grammar, world.image_shape, world.num_actions)
    theta, count = _random(policy, 1), len(texts)
    rollout = dict(
        observations=self._states(2, count),
        actions=self._rng.integers(
            world.num_actions, size=[1, count]).astype(np.int32),
        rewards=self._rng.uniform(size=[1, count]).astype(np.float32),
        discounts=np.zeros([1, count], np.float32),
        mask=np.ones([1, count], np.float32))
    computed, = gradients_lib.policy_gradients_program(
        policy, world, gradients_lib.PolicyLoss(
            _DISCOUNT, 1.0, _BASELINE, 0.0, averaged=True))(
                theta, rollout['observations'], world.grammar.encode(texts),
                rollout['actions'], rollout['rewards'], rollout['discounts'],
                rollout['mask'], _ENTROPY, (), None)[0]
    p = self._variables(policy, theta)
    expected = dict.fromkeys(p, 0.0)
    for part in np.array_split(np.arange(count), 10):  # For the memory.
      gradient = self._gradient(p, lambda part=part: tf.add_n([
          self._worker_loss(model, p, texts[w], rollout, w, None)
          for w in part]) / count)
      expected = {name: expected[name] + gradient[name] for name in p}
    self._assert_close(
        policy, computed, expected, without=('reward_prediction',))

  @parameterized.parameters('nmn', 'lstm')
  @pytest.mark.slow
  def test_discriminator_with_all_instructions(self, model):
    texts = self._texts(990)
    self._test_discriminator(model, texts[:495], texts[495:])

  @parameterized.parameters('nmn', 'lstm')
  @pytest.mark.slow
  def test_discriminator(self, model):
    self._test_discriminator(model, self._texts(4), self._texts(12))

  def _test_discriminator(self, model, *texts):
    """Tests with these instructions of goal examples and of candidates."""
    count, candidates = map(len, texts)
    world = self._world
    discriminator = networks.discriminator(
        model, world.grammar, world.image_shape)
    phi = _random(discriminator, 2)
    goals, drawn = ((each, self._states(len(each))) for each in texts)
    program = gradients_lib.discriminator_gradients_program(
        discriminator, world)
    actual, terms = program(phi, *(
        signatures.Pairs(world.grammar.encode(texts), states)
        for texts, states in (goals, drawn)), np.int32(candidates))

    p = self._variables(discriminator, phi)
    with tf.GradientTape() as tape:
      tape.watch(p)
      of_goals, of_drawn = (
          self._apply(network_oracles.discriminator, model, p, states, texts)
          for texts, states in (goals, drawn))
      kept = tf.sort(of_drawn)[:count]
      loss = (tf.reduce_sum(tf.math.softplus(-of_goals)) +
              tf.reduce_sum(tf.math.softplus(kept))) / (2 * count)
    self._assert_close(
        discriminator, actual, tape.gradient(loss, p), 'discriminator')
    np.testing.assert_allclose(terms['discriminator_loss'], loss, rtol=1e-5)


class DiscriminatorProgramsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._world = _world()
    self._discriminator = networks.discriminator(
        'nmn', self._world.grammar, _SHAPE)
    self._phi = _parameters(self._discriminator, 2)
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
    program = gradients_lib.discriminator_gradients_program(
        self._discriminator, self._world)
    gradient, terms = program(
        self._phi, goals, candidates, np.int32(drawn),
        signatures.Pairs(*mismatched) if num_mismatched else None)

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
    _assert_close(
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
    program = rewards_lib.modelled_program(
        self._discriminator, self._world, 'decision', 0.1)
    rewards, is_goal = program(phi, observations, self._codes)
    np.testing.assert_array_equal(is_goal, decisions)
    np.testing.assert_array_equal(
        rewards, np.where(decisions, 0.1, 0).astype(np.float32))


if __name__ == '__main__':
  absltest.main()
