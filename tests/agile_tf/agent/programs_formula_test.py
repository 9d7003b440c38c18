"""Tests of both losses' gradients against the plain formula in float64.

The formula is `network_oracles`, differentiated by TensorFlow; in NumPy it is
what `networks_test` compares outputs with. States and instructions are
GridLU's, so that convolutions are computed in all the ways that they can be.
"""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf.agent import networks
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.recipe import averaging
from gridlu import language
from tests.agile_tf.agent import gradient_cases as cases
from tests.agile_tf.agent import network_oracles


def _random(network, seed):
  """Float32 parameters with large FiLM tables, and no zeros among biases.

  Reward prediction's logits stay small. Where its softmax is saturated, its
  gradient is the difference of two numbers near 1.
  """
  rng = np.random.default_rng(seed)
  values = network.layout.split(cases.parameters(network, seed))
  for name in values:
    if name.endswith(('film_nmn/gamma', 'film_nmn/beta', 'embeddings')):
      values[name] = tf.constant(
          rng.normal(size=values[name].shape), tf.float32)
    elif name.endswith(('/gamma/w', '/beta/w')):  # Of the FiLM-LSTM.
      values[name] = tf.constant(
          rng.normal(scale=0.3, size=values[name].shape), tf.float32)
    elif name.endswith('reward_prediction/w'):
      values[name] *= 0.2
  return network.layout.join(values)


class GradientsFormulaTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._rng = np.random.default_rng(0)
    self._world = worlds.GridLUWorld('relations')
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
    """Compares each parameter's gradient by its own norm.

    A single number may be further off: where a ReLU's input is nearly 0, its
    sign is different in float32, and with it one state's share of the gradient.

    Those that begin with one of `without` are zeros, and no others.
    """
    for name, one in network.layout.split(actual).items():
      short = name.partition('/')[2]
      other = expected[short].numpy()
      largest = np.abs(other).max()
      self.assertEqual(largest == 0, short.startswith(tuple(without)), short)
      np.testing.assert_allclose(
          one, other, rtol=0, atol=1e-3 * largest, err_msg=f'{who} {name}')
      self.assertLessEqual(
          np.linalg.norm(one - other), 2e-4 * np.linalg.norm(other),
          f'{who} {name}')

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
      target = (
          float(rewards[t]) + cases.DISCOUNT * float(discounts[t]) * target)
      log_pi = logits[t] - tf.reduce_logsumexp(logits[t])
      loss += (
          -log_pi[actions[t]] * (target - values[t].numpy()) +
          cases.BASELINE * 0.5 * (target - values[t])**2 +
          cases.ENTROPY * tf.reduce_sum(tf.exp(log_pi) * log_pi))
    if replayed is not None:
      texts, samples, positive = replayed
      _, _, logits = self._apply(
          network_oracles.policy, model, p, samples, texts)
      log_p = logits - tf.reduce_logsumexp(logits, -1, keepdims=True)
      loss -= cases.PREDICTION * tf.reduce_mean(
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
    rollout = cases.rollout(self._rng, self._states(length + 1, width))
    replayed, sampled = None, None
    if predicts:
      sampled = [self._texts(samples) for _ in range(width)]
      replayed = replay.Replayed(
          codes=np.stack([world.grammar.encode(each) for each in sampled]),
          observations=self._states(width, samples),
          positive=self._rng.integers(2, size=[width, samples]) > 0)
    program = programs_lib.Programs(policy, None, world, programs_lib.Loss(
        cases.DISCOUNT, 1.0, cases.BASELINE, cases.PREDICTION)
                                   )._policy_gradients

    def run(workers, results=()):
      """The gradients of some workers in one pass."""
      these = {name: value[:, workers] for name, value in rollout.items()}
      return program(
          theta, cases.as_rollout(these, codes[workers], results),
          these['rewards'], cases.ENTROPY, replayed and replay.Replayed(
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
      cases.assert_close(
          policy, computed[w], alone, 0, 0, f'worker {w}, alone')

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
    computed, _ = averaging.AveragedPrograms(
        policy, None, world, programs_lib.Loss(
            cases.DISCOUNT, 1.0, cases.BASELINE))._policy_gradients(
                theta, cases.as_rollout(rollout, world.grammar.encode(texts)),
                rollout['rewards'], cases.ENTROPY, None)
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
    pairs = [rollouts.Pairs(world.grammar.encode(texts), states)
             for texts, states in (goals, drawn)]
    actual, terms = programs_lib.Programs(
        None, discriminator, world).discriminator_gradients(
            phi, pairs[0], replay.Negatives(pairs[1], np.int32(candidates)))

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


if __name__ == '__main__':
  absltest.main()
