"""Tests of both losses' gradients against the plain formula in float64.

The formula is `network_oracles`, differentiated by TensorFlow. States and
instructions are GridLU's, or those of a world of images that minimal filtering
is not for.
"""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import worlds
from agile_tf.agent import auxiliary
from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import rollouts
from agile_tf.training import building
from gridlu import goal_dataset
from gridlu import language
from tests.agile_tf.agent import network_oracles

_DISCOUNT, _ENTROPY, _BASELINE, _PREDICTION = 0.9, 0.05, 0.7, 1.3
_SHAPE = (43, 50, 3)  # A board of 3 x 4, and a margin without patches.
_TEXTS = ('red', 'go red', 'go blue', 'stop')

_IMAGES = worlds.EnvironmentWorld(
    None, instructions.Grammar(_TEXTS), _SHAPE, num_actions=3,
    goal_examples='', has_ground_truth=False)


class Images:
  """Random states and instructions of a world of images."""
  tree = staticmethod(instructions.chain)
  world = _IMAGES  # The same for all tests, which share its programs.

  def __init__(self, rng):
    self._rng = rng

  def states(self, *shape):
    """Bright and dark ones, so that networks tell them apart."""
    brightness = self._rng.uniform(size=[*shape, 1, 1, 3])
    return (255 * brightness * self._rng.uniform(
        size=[*shape, *_SHAPE])).astype(np.uint8)

  def texts(self, count):
    return [_TEXTS[i] for i in self._rng.integers(len(_TEXTS), size=count)]


class GridLU:
  """Random goal states and instructions of GridLU, the latter all different."""

  def __init__(self, rng):
    self._rng = rng
    self.world = worlds.GridLUWorld('relations')
    self._goals = goal_dataset.generate(
        'relations', 64, 0, carrying=0.5).states

  def tree(self, text):
    return language.parse(text).tree

  def states(self, *shape):
    return self._goals[self._rng.integers(len(self._goals), size=shape)]

  def texts(self, count):
    texts = [str(text) for text in language.relations_instructions()]
    return [texts[i] for i in self._rng.permutation(len(texts))[:count]]


def _rollout(rng, observations):
  """Four workers: a whole rollout, two ends before R, and none at all.

  Worker 1's episode is terminated after two steps, and what follows means
  nothing. Worker 2's is truncated after three; its last state stays. Worker 3
  sits out. Worker 0 goes on.

  Args:
    rng: draws actions, of 3, and rewards.
    observations: [R + 1, 4, ...], R at least 3.

  Returns:
    By name, what `_as_rollout` takes, and rewards.
  """
  length = len(observations) - 1
  observations = observations.copy()
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


def _as_rollout(parts, codes, activations=()):
  """What the programs take, of such a rollout."""
  return rollouts.Rollout(
      parts['observations'], codes, parts['actions'],
      np.zeros_like(parts['rewards']), parts['discounts'], parts['mask'],
      np.zeros([len(codes)], bool), (), activations)


def _make(fast):
  """What makes the networks, as the paper writes them or fast."""
  return building.make_networks if fast else networks.make


class ProgramsTest(parameterized.TestCase):

  def _start(self, kind):
    self._rng = np.random.default_rng(0)
    self._case = kind(self._rng)
    self._world = self._case.world

  def _apply(self, oracle, model, p, states, texts):
    """What the plain formula says about pairs of state and instruction."""
    return network_oracles.apply(
        oracle, model, self._world.pixels(np.array(states)) / 255,
        map(self._case.tree, texts), self._world.grammar.tokens, p)

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
          np.linalg.norm(one - other), 5e-4 * np.linalg.norm(other),
          f'{who} {name}')

  def _gradient(self, p, loss):
    """The gradient of a loss, and what its function returns."""
    with tf.GradientTape() as tape:
      tape.watch(p)
      value, *rest = loss()
    return tape.gradient(
        value, p, unconnected_gradients=tf.UnconnectedGradients.ZERO
    ), value, *rest

  def _worker_loss(self, model, p, text, rollout, w, replayed, td_lambda=1.0):
    """The loss and its terms of worker w; replayed: texts, states, positive."""
    played = int(rollout['mask'][:, w].sum())
    actions, rewards, discounts = (
        rollout[name][:played, w]
        for name in ('actions', 'rewards', 'discounts'))
    loss = tf.constant(0.0, tf.float64)
    terms = dict.fromkeys(('policy_loss', 'baseline_loss', 'entropy'), 0.0)
    if played:
      # The state after the end of an episode is not needed.
      count = played + int(discounts[-1] != 0)
      logits, baseline, _ = self._apply(
          network_oracles.policy, model, p,
          rollout['observations'][:count, w], [text] * count)
      values = [*baseline.numpy(), 0.0]
      target = values[played]
    for t in reversed(range(played)):
      target = float(rewards[t]) + _DISCOUNT * float(discounts[t]) * (
          (1 - td_lambda) * values[t + 1] + td_lambda * target)
      log_pi = logits[t] - tf.reduce_logsumexp(logits[t])
      step = {
          'policy_loss': -log_pi[actions[t]] * (target - values[t]),
          'baseline_loss': 0.5 * (target - baseline[t])**2,
          'entropy': -tf.reduce_sum(tf.exp(log_pi) * log_pi)}
      loss += (step['policy_loss'] + _BASELINE * step['baseline_loss'] -
               _ENTROPY * step['entropy'])
      terms = {name: terms[name] + step[name] / played for name in terms}
    if replayed is not None:
      texts, samples, positive = replayed
      _, _, logits = self._apply(
          network_oracles.policy, model, p, samples, texts)
      log_p = logits - tf.reduce_logsumexp(logits, -1, keepdims=True)
      terms['reward_prediction_loss'] = -tf.reduce_mean(
          tf.where(positive, log_p[:, 1], log_p[:, 0]))
      loss += _PREDICTION * terms['reward_prediction_loss']
    return loss, terms

  @parameterized.parameters(False, True)
  def test_the_policys_gradients_on_images_are_the_formulas(self, fast):
    self._test_policy(Images, 'nmn', fast, predicts=True, td_lambda=0.5)

  @parameterized.product(model=('nmn', 'lstm'), predicts=(True, False))
  @pytest.mark.slow
  def test_the_policys_gradients_on_gridlu_are_the_formulas(
      self, model, predicts):
    self._test_policy(GridLU, model, True, predicts, td_lambda=1.0)

  def _test_policy(self, kind, model, fast, predicts, td_lambda):
    self._start(kind)
    length, width, samples = 4, 4, 2
    world, case = self._world, self._case
    policy, _ = _make(fast)(model, world)
    theta = network_oracles.large(policy, 1)
    texts = case.texts(width)
    codes = world.grammar.encode(texts)
    # The last worker sits out, others do not play to the end.
    rollout = _rollout(self._rng, case.states(length + 1, width))
    replayed, sampled = None, None
    if predicts:
      sampled = [case.texts(samples) for _ in range(width)]
      replayed = auxiliary.Samples(
          codes=np.stack([world.grammar.encode(each) for each in sampled]),
          observations=case.states(width, samples),
          labels=np.array([[False, True]] * 3 + [[False, False]]))

    def make(averaged):
      return programs_lib.PolicyPrograms(
          policy, world,
          programs_lib.LossSettings(_DISCOUNT, td_lambda, _BASELINE),
          auxiliary_loss=auxiliary.reward_prediction(_PREDICTION, 1, 1).loss,
          averaged=averaged)

    programs = make(averaged=False)

    def run(rollout, workers=slice(None), activations=()):
      """The gradients and the terms of some workers in one pass."""
      these = {name: value[:, workers] for name, value in rollout.items()}
      return programs._worker_gradients(
          theta, _as_rollout(these, codes[workers], activations),
          these['rewards'], np.float32(_ENTROPY),
          replayed and auxiliary.Samples(*(x[workers] for x in replayed)))

    p = network_oracles.variables(policy, theta)

    def expect(w, rollout):
      return self._gradient(p, lambda: self._worker_loss(
          model, p, texts[w], rollout, w, replayed and (
              sampled[w], replayed.observations[w], replayed.labels[w]),
          td_lambda))

    computed, terms = run(rollout)
    self.assertLen(computed, width)
    unused = [() if predicts else ('reward_prediction',)] * width
    unused[3] = ('hidden', 'logits', 'baseline') if predicts else ('',)
    expected = []
    for w in range(width):
      gradient, _, expected_terms = expect(w, rollout)
      expected.append(gradient)
      self._assert_close(policy, computed[w], gradient, f'worker {w}',
                         unused[w])
      self.assertCountEqual(terms, expected_terms)
      for name, value in expected_terms.items():
        np.testing.assert_allclose(
            terms[name][w], value, rtol=1e-3, atol=1e-5, err_msg=name)

    # A run has those of the workers that played.
    arguments = (theta, _as_rollout(rollout, codes), rollout['rewards'],
                 _ENTROPY, replayed)
    active, _ = programs.gradients(*arguments)
    self.assertEqual(list(active), [0, 1, 2])
    for w, gradient in active.items():
      np.testing.assert_array_equal(gradient, computed[w])

    # Averaged, there is one gradient: of the mean of the active workers.
    averaged, _ = make(averaged=True).gradients(*arguments)
    self.assertEqual(list(averaged), [None])
    self._assert_close(
        policy, averaged[None], network_oracles.variables(
            policy, tf.reduce_mean(computed[:3], 0)), 'the mean', unused[0])

    # An end with the last step that is played leaves nothing to bootstrap.
    other = {name: value.copy() for name, value in rollout.items()}
    other['discounts'][-1, 0] = 0
    self._assert_close(
        policy, run(other)[0][0], expect(0, other)[0], 'an end', unused[0])

    # What stands in steps that were not played makes no difference.
    other = {name: value.copy() for name, value in rollout.items()}
    other['observations'][3:, 1] = case.states(length - 2)
    other['rewards'][2:, 1] = other['discounts'][2:, 1] = 7
    other['observations'][:, 3] = case.states(length + 1)
    other['rewards'][:, 3] = 7
    other['discounts'][3:, 2] = 7
    other['actions'][rollout['mask'] == 0] = 0
    for w, (one, two) in enumerate(zip(computed, run(other)[0])):
      np.testing.assert_allclose(
          one, two, rtol=1e-5, atol=1e-6, err_msg=f'worker {w}')
    self.assertEqual(
        programs._worker_gradients.experimental_get_tracing_count(), 1)

    # A worker's gradient does not depend on the other workers.
    for w in range(width):
      (alone,), _ = run(rollout, slice(w, w + 1))
      self._assert_close(
          policy, computed[w], network_oracles.variables(policy, alone),
          f'worker {w}, alone', unused[w])

    # What acting computed, four states at a time, is not computed again.
    acting = [
        policy.at(theta)(tf.constant(states), tf.constant(codes))[1]
        for states in rollout['observations'][:-1]]
    activations = tuple(map(tf.stack, zip(*acting)))
    if not fast:  # The plain network keeps nothing.
      self.assertEmpty(activations)
      return
    for w, reused in enumerate(run(rollout, activations=activations)[0]):
      self._assert_close(
          policy, reused, expected[w], f'worker {w}, reused', unused[w])
    nothing = tuple(map(tf.zeros_like, activations))  # It is believed.
    self.assertFalse(np.allclose(
        run(rollout, activations=nothing)[0][0], computed[0], rtol=1e-2))

  @parameterized.product(
      fast=(False, True),
      sizes=((3, 3), (12, 12), (12, 7), (12, 3), (6, 4, 2)))
  def test_the_discriminators_gradient_on_images_is_the_formula(
      self, fast, sizes):
    self._test_discriminator(Images, 'nmn', fast, 3, *sizes)

  @parameterized.product(
      model=('nmn', 'lstm'), sizes=((4, 12, 12), (495, 495, 495)))
  @pytest.mark.slow
  def test_the_discriminators_gradient_on_gridlu_is_the_formula(
      self, model, sizes):
    self._test_discriminator(GridLU, model, True, *sizes)

  def _test_discriminator(self, kind, model, fast, count, candidates,
                          drawn, mismatched=0):
    """Tests lines 9 and 10 of Algorithm 1."""
    self._start(kind)
    world = self._world
    _, discriminator = _make(fast)(model, world)
    phi = network_oracles.large(discriminator, 2)
    sizes = count, candidates, mismatched
    texts = self._case.texts(sum(sizes))
    texts = [[texts.pop() for _ in range(size)] for size in sizes]
    states = [self._case.states(size) for size in sizes]
    goals, pairs, unrated = (
        rollouts.Pairs(world.grammar.encode(these), each)
        for these, each in zip(texts, states))
    given = replay.Candidates(
        pairs, None if drawn == candidates else np.int32(drawn),
        unrated if mismatched else None)
    threshold = 0.6 if mismatched else 0.5
    made = programs_lib.DiscriminatorPrograms(
        discriminator, reward_threshold=threshold)
    actual, terms = made.gradient(phi, goals, given)

    p = network_oracles.variables(discriminator, phi)

    def loss():
      of_goals, of_drawn, *of_unrated = (
          self._apply(network_oracles.discriminator, model, p, each, these)
          for these, each in zip(texts, states) if these)
      rejected = tf.concat(
          [tf.sort(of_drawn[:drawn])[:count - mismatched], *of_unrated], 0)
      total = (tf.reduce_sum(tf.math.softplus(-of_goals)) +
               tf.reduce_sum(tf.math.softplus(rejected)))
      return total / (2 * count), of_goals, rejected

    expected, total, of_goals, rejected = self._gradient(p, loss)
    self._assert_close(discriminator, actual, expected, 'discriminator')
    np.testing.assert_allclose(terms['discriminator_loss'], total, rtol=1e-4)
    logit = np.log(threshold / (1 - threshold))
    self.assertAlmostEqual(
        float(terms['goals_accepted']), np.mean(of_goals > logit), places=6)
    self.assertAlmostEqual(
        float(terms['negatives_rejected']), np.mean(rejected <= logit),
        places=6)
