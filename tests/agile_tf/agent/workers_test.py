"""Tests for workers: both algorithm boxes, carried out by hand in float64.

Nothing is replaced: a small run is built, and its workers iterate. `_ByHand`
follows them with environments, lists and loops. It uses the networks' formulas
in `network_oracles`, which TensorFlow differentiates, and nothing of the code
under test.
"""

import copy
import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import actors
from agile_tf.agent import workers
from agile_tf.training import building
from gridlu import language
from gridlu import rendering
from gridlu import world as world_lib
from tests.agile_tf import tiny
from tests.agile_tf.agent import network_oracles

# Beside those of tests/agile_tf/tiny.py. Episodes of three steps are a rollout
# of two steps and one that ends early. B and the replay buffer of reward
# prediction are soon full. The programs do not depend on these settings, so
# other tests have compiled them; programs_test and building_test have other
# weights of the losses.
_SETTINGS = dict(
    episode_length=3, solved_starts=True, replay_size=6,
    reward_prediction_replay_size=9, policy_decay=0.95,
    policy_gradient_norm=30.0, discriminator_learning_rate=0.01,
    discriminator_epsilon=0.01, discriminator_gradient_norm=12.0,
    max_column_norm=1.32)


def _entropy_weight(step):
  return 0.05 + 0.02 * step


def _learning_rate(step):
  return 0.01 / (1 + 0.1 * step)


class _Parameters:
  """One network's parameters by name, and its RMSProp, in float64."""

  def __init__(self, shared, decay, epsilon, max_norm, max_column_norm=np.inf):
    self.now = {name: value.numpy() for name, value in
                network_oracles.variables(shared, shared.snapshot()).items()}
    self._mean_square = {
        name: np.ones_like(value) for name, value in self.now.items()}
    self._settings = decay, epsilon, max_norm, max_column_norm
    self.norms = []  # Of all gradients.

  def update(self, gradient, rate):
    """Clips a gradient, takes a step of RMSProp, and clips columns."""
    decay, epsilon, max_norm, max_column_norm = self._settings
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradient.values()))
    self.norms.append(norm)
    for name, g in gradient.items():
      g = g * min(1.0, max_norm / norm)
      self._mean_square[name] = (
          decay * self._mean_square[name] + (1 - decay) * g**2)
      w = self.now[name] - rate * g / np.sqrt(self._mean_square[name] + epsilon)
      if name.endswith('/w'):  # Not biases, and not the tables of FiLM.
        for unit in range(w.shape[-1]):
          w[..., unit] *= min(1, max_column_norm / np.sqrt(
              np.sum(w[..., unit]**2)))
      self.now[name] = w


class _Episodes:
  """One worker's episodes, of an environment that is stepped."""

  def __init__(self, environment, rng, delayed):
    self._environment = copy.deepcopy(environment)
    self._rng = copy.deepcopy(rng)
    self._delayed = delayed
    self._timestep = None

  def play(self, length, logits):
    """The states s_0 ... s_n, and a list of each other thing."""
    environment = self._environment
    if self._timestep is None or self._timestep.last():
      self._timestep = environment.reset()
    text = str(environment.instruction)
    states, actions, rewards, discounts = [environment.state], [], [], []
    gumbel = self._rng.gumbel(size=[length, 5])
    for t in range(length):
      if self._timestep.last() or self._delayed:
        break
      actions.append(int(np.argmax(logits(text, states[-1]) + gumbel[t])))
      self._timestep = environment.step(actions[-1])
      states.append(environment.state)
      rewards.append(self._timestep.reward)
      discounts.append(self._timestep.discount)
    self._delayed = False
    return text, states, actions, rewards, discounts


class _Ring:
  """A list in which each new entry takes the place of the oldest one."""

  def __init__(self, capacity):
    self.entries = []
    self._capacity = capacity
    self._added = 0

  def add(self, entries):
    for entry in entries:
      place = self._added % self._capacity
      self.entries[place:place + 1] = [entry]
      self._added += 1


class _ByHand:
  """Algorithms 1 and 2 with one policy thread, one state at a time."""

  def __init__(self, parts, config):
    self._config = config
    self._world = parts.world
    worker, = parts.policy_workers
    self.theta = _Parameters(
        parts.networks.policy, config.policy_decay, config.policy_epsilon,
        config.policy_gradient_norm)
    self._rows = [
        _Episodes(*pair, delayed=w % 2 == 1) for w, pair in
        enumerate(zip(worker.actor.environments, worker.actor.rngs))]
    self._policy_rng = copy.deepcopy(worker.rng)
    self._predicted = _Ring(config.reward_prediction_replay_size)
    self.decided = []  # D's logits of all states that it rewarded.
    self.phi = None
    if parts.discriminator_worker is not None:
      actor, learner = (parts.discriminator_worker.actor,
                        parts.discriminator_worker.learner)
      self.phi = _Parameters(
          parts.networks.discriminator, config.discriminator_decay,
          config.discriminator_epsilon, config.discriminator_gradient_norm,
          config.max_column_norm)
      self._explorer = _Episodes(
          actor.environments[0], actor.rngs[0], delayed=False)
      self._rng = copy.deepcopy(learner.rng)
      self._b = _Ring(config.replay_size)
      goals = parts.data.goals.dataset
      self._goals = [
          (goals.instructions[i], world_lib.unpack(state))
          for i, state in zip(goals.instruction, goals.states)]

  def _apply(self, oracle, parameters, pairs):
    """What a network says about pairs of instruction and state."""
    texts, states = zip(*pairs)
    images = np.stack([rendering.render(state) for state in states]) / 255
    return network_oracles.apply(
        oracle, 'nmn', images, [language.parse(text).tree for text in texts],
        self._world.grammar.tokens, parameters)

  def _pi(self, theta, pairs):
    return self._apply(network_oracles.policy, theta, pairs)

  def _d(self, phi, pairs):
    return self._apply(network_oracles.discriminator, phi, pairs)

  def iterate_policy(self, theta, phi, step):
    """Lines 2 to 9 of Algorithm 2; returns the metrics."""
    config = self._config
    played = [row.play(config.rollout_length, lambda *pair: self._pi(
        theta, [pair])[0][0].numpy()) for row in self._rows]
    reached = []  # By worker: its pairs, and whether they count as goal states.
    for text, states, _, true_rewards, _ in played:
      pairs = [(text, state) for state in states[1:]]
      positive = [reward > 0 for reward in true_rewards]
      if pairs and phi is not None:
        logits = self._d(phi, pairs).numpy()
        self.decided += [*logits]
        positive = [logit > 0 for logit in logits]
      reached.append([*zip(pairs, positive)])
    for t in range(config.rollout_length):
      self._predicted.add(row[t] for row in reached if t < len(row))
    gradients, terms = [], []
    for rollout, row in zip(played, reached):
      samples = self._samples()
      if row:
        gradient, of_worker = self._policy_gradient(
            theta, rollout, [positive for _, positive in row],
            _entropy_weight(step), samples)
        gradients.append(gradient)
        terms.append(of_worker)
    for gradient in gradients:
      self.theta.update(gradient, _learning_rate(step))
    metrics = {name: np.mean([row[name] for row in terms]) for name in terms[0]}
    metrics['policy_gradient_norm'] = np.mean(
        self.theta.norms[-len(gradients):])
    return metrics

  def _samples(self):
    """Draws a worker's samples of reward prediction."""
    entries = self._predicted.entries
    count = self._config.reward_prediction_batch_size
    kinds = [[i for i, (_, positive) in enumerate(entries) if positive == kind]
             for kind in (False, True)]
    if not all(kinds):
      kinds = [range(len(entries))] * 2
    rows = [*self._policy_rng.choice(kinds[0], count - count // 2),
            *self._policy_rng.choice(kinds[1], count // 2)]
    return [entries[i] for i in rows]

  def _policy_gradient(self, theta, rollout, positive, alpha, samples):
    """The gradient of one worker's loss, and the loss's terms."""
    config = self._config
    text, states, actions, _, discounts = rollout
    steps = len(actions)
    theta = {name: tf.constant(value) for name, value in theta.items()}
    with tf.GradientTape() as tape:
      tape.watch(theta)
      logits, baseline, _ = self._pi(theta, [(text, state) for state in states])
      values = baseline.numpy()
      following = values[steps]
      loss, terms = 0.0, dict.fromkeys(
          ('policy_loss', 'baseline_loss', 'entropy'), 0.0)
      for t in reversed(range(steps)):
        following = config.reward_scale * positive[t] + (
            config.discount * discounts[t] * (
                (1 - config.td_lambda) * values[t + 1] +
                config.td_lambda * following))
        log_pi = tf.nn.log_softmax(logits[t])
        of_step = {
            'policy_loss': -(following - values[t]) * log_pi[actions[t]],
            'baseline_loss': 0.5 * (following - baseline[t])**2,
            'entropy': -tf.reduce_sum(tf.exp(log_pi) * log_pi)}
        loss += (of_step['policy_loss'] +
                 config.baseline_cost * of_step['baseline_loss'] -
                 alpha * of_step['entropy'])
        terms = {name: terms[name] + of_step[name] / steps for name in terms}
      pairs, labels = zip(*samples)
      log_p = tf.nn.log_softmax(self._pi(theta, pairs)[2])
      prediction = -tf.add_n([
          row[int(label)] for row, label in zip(log_p, labels)]) / len(samples)
      terms['reward_prediction_loss'] = prediction
      loss += config.reward_prediction_cost * prediction
    gradient = tape.gradient(loss, theta)
    return ({name: value.numpy() for name, value in gradient.items()},
            {name: float(value) for name, value in terms.items()})

  def iterate_discriminator(self, theta, phi):
    """Lines 2 to 13 of Algorithm 1; returns the metrics."""
    config = self._config
    text, states, *_ = self._explorer.play(
        config.rollout_length,
        lambda *pair: self._pi(theta, [pair])[0][0].numpy())
    self._b.add((text, state) for state in states[1:])
    half = config.batch_size // 2
    drawn = round(half / config.anticipated_negative_rate)
    if len(self._b.entries) < drawn:
      return {}
    goals = [self._goals[i]
             for i in self._rng.integers(len(self._goals), size=half)]
    candidates = [self._b.entries[i] for i in self._rng.integers(
        len(self._b.entries), size=drawn)]
    logits = self._d(phi, candidates).numpy()
    negatives = [candidates[i] for i in np.argsort(logits)[:half]]
    phi = {name: tf.constant(value) for name, value in phi.items()}
    with tf.GradientTape() as tape:
      tape.watch(phi)
      of_goals, of_others = self._d(phi, goals), self._d(phi, negatives)
      loss = tf.reduce_sum(tf.math.softplus(-of_goals)) + tf.reduce_sum(
          tf.math.softplus(of_others))
      loss /= config.batch_size
    gradient = tape.gradient(loss, phi)
    self.phi.update({name: value.numpy() for name, value in gradient.items()},
                    config.discriminator_learning_rate)
    return {
        'discriminator_loss': float(loss),
        'goals_accepted': np.mean(of_goals > 0),
        'negatives_rejected': np.mean(of_others <= 0),
        'discriminator_gradient_norm': self.phi.norms[-1]}


class _Noted:
  """Chooses negatives as `of` does, and notes the steps at which it did."""

  def __init__(self, of):
    self._of = of
    self.largest_draw = of.largest_draw
    self.steps = []

  def draw(self, buffer, goals, rng, step):
    self.steps.append(step)
    return self._of.draw(buffer, goals, rng, step)


def _build(**changes):
  """Returns the parts of a small run."""
  return building.build(tiny.plan(**changes))


def _now(parts):
  """Returns both networks' parameters."""
  return workers.Snapshot(*(
      shared and shared.snapshot() for shared in (
          parts.networks.policy, parts.networks.discriminator)))


def _set(shared, value):
  """Gives a network these parameters, float32 [P]."""
  shared.load(shared.state() | {
      name: part.numpy() for name, part in shared.layout.split(value).items()})


class AlgorithmsTest(parameterized.TestCase):

  def _assert_equal_metrics(self, actual, expected):
    self.assertEqual(actual.keys(), expected.keys())
    for name, value in expected.items():
      np.testing.assert_allclose(
          actual[name], value, rtol=1e-3, atol=1e-5, err_msg=name)

  def _assert_equal_updates(self, shared, start, by_hand, expected_start):
    """Compares what has changed of each parameter, by the change's norm."""
    start = network_oracles.variables(shared, start)
    for name, value in network_oracles.variables(
        shared, shared.snapshot()).items():
      expected = by_hand.now[name] - expected_start[name]
      self.assertLess(
          np.linalg.norm(value - start[name] - expected),
          1e-3 * np.linalg.norm(expected) +
          1e-7 * np.linalg.norm(value),  # What float32 rounds off.
          name)

  def _assert_on_both_sides(self, limit, numbers):
    self.assertBetween(limit, 1.01 * min(numbers), 0.99 * max(numbers))

  @parameterized.parameters('discriminator', 'environment')
  def test_iterations_are_those_of_the_boxes(self, reward):
    plan = tiny.plan(reward=reward, **_SETTINGS)
    config, negatives = plan.config, _Noted(plan.negatives)
    parts = building.build(dataclasses.replace(
        plan, variation=plan.variation._replace(
            negatives=negatives, entropy_weight=_entropy_weight,
            learning_rate=_learning_rate)))
    networks = building.make_networks('nmn', parts.world)
    for shared, network in zip(
        (parts.networks.policy, parts.networks.discriminator), networks):
      if shared is not None:  # Instructions make a difference.
        _set(shared, network_oracles.large(network, 6))
    by_hand = _ByHand(parts, config)
    for step in range(6):
      theta = by_hand.theta.now.copy()
      phi = by_hand.phi and by_hand.phi.now.copy()
      now = _now(parts)
      iteration = parts.policy_workers[0].iterate(now, step)
      self._assert_equal_metrics(
          iteration.metrics, by_hand.iterate_policy(theta, phi, step))
      self._assert_equal_updates(
          parts.networks.policy, now.theta, by_hand.theta, theta)
      if phi is not None:
        iteration = parts.discriminator_worker.iterate(now, step)
        self._assert_equal_metrics(
            iteration.metrics, by_hand.iterate_discriminator(theta, phi))
        self._assert_equal_updates(
            parts.networks.discriminator, now.phi, by_hand.phi, phi)
    # Limits and thresholds had an effect, and rounding crossed none.
    self._assert_on_both_sides(config.policy_gradient_norm, by_hand.theta.norms)
    if by_hand.phi is None:
      return
    self.assertGreater(np.min(np.abs(by_hand.decided)), 1e-3)
    self._assert_on_both_sides(0, by_hand.decided)
    self._assert_on_both_sides(
        config.discriminator_gradient_norm, by_hand.phi.norms)
    w = by_hand.phi.now['features/film_nmn/w']
    columns = np.sqrt(np.sum(w**2, axis=(0, 1, 2)))
    self.assertBetween(np.mean(columns > config.max_column_norm - 1e-6), .1, .9)
    # In two iterations B had too few pairs.
    self.assertEqual(negatives.steps, [2, 3, 4, 5])


class DiscriminatorWorkerTest(absltest.TestCase):

  def test_first_states_of_rollouts_can_be_added_to_b(self):
    for first_states, count in (False, 2), (True, 3):
      parts = _build(first_states_in_buffer=first_states)
      worker = parts.discriminator_worker
      worker.iterate(_now(parts))
      self.assertLen(worker.learner.buffer, count)

  def test_a_loss_that_is_no_number_is_named(self):
    parts = _build()
    worker = parts.discriminator_worker
    _set(parts.networks.discriminator,
         np.nan * parts.networks.discriminator.snapshot())
    worker.iterate(_now(parts))  # B has too few pairs.
    with self.assertRaises(workers.NumericsError) as caught:
      worker.iterate(_now(parts))
    self.assertEqual((caught.exception.name, caught.exception.worker),
                     ('discriminator_loss', None))


class PolicyWorkerTest(parameterized.TestCase):

  def test_a_rollout_in_which_nobody_plays_changes_nothing(self):
    parts = _build()
    made = parts.networks
    worker = workers.PolicyWorker(
        actors.CompiledActor(
            made.policy_programs,
            [parts.world.make_environment(w) for w in range(2)],
            [np.random.default_rng(w) for w in range(2)], 2, [True, True]),
        made.policy, made.policy_programs, made.discriminator_programs,
        lambda step: 0.05, lambda step: 0.1,
        parts.data.auxiliary, np.random.default_rng(0))
    before = made.policy.state()
    self.assertEqual(worker.iterate(_now(parts)).metrics, {})
    for name, value in made.policy.state().items():
      np.testing.assert_array_equal(value, before[name])
    self.assertNotEqual(worker.iterate(_now(parts)).metrics, {})

  def test_workers_may_add_what_they_play_to_b(self):
    parts = _build(all_workers_write=True)
    iteration = parts.policy_workers[0].iterate(_now(parts))
    buffer = parts.discriminator_worker.learner.buffer.state()
    codes, observations = iteration.rollout.pairs()
    np.testing.assert_array_equal(buffer['codes'], codes)
    np.testing.assert_array_equal(buffer['observations'], observations)
    self.assertLen(codes, 2)  # The second row sits its first rollout out.

  def test_a_loss_that_is_no_number_names_its_worker(self):
    parts = _build()
    worker, = parts.policy_workers
    worker.iterate(_now(parts))
    _set(parts.networks.policy, np.nan * parts.networks.policy.snapshot())
    with self.assertRaises(workers.NumericsError) as caught:
      worker.iterate(_now(parts))
    self.assertEqual((caught.exception.name, caught.exception.worker),
                     ('policy_loss', 0))

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_the_first_number_that_is_not_finite_is_named(self, bad):
    workers._require_finite('loss', np.ones(3), [4, 5, 7])
    with self.assertRaises(workers.NumericsError) as caught:
      workers._require_finite('entropy', np.array([0, bad, bad]), [4, 5, 7])
    self.assertEqual((caught.exception.name, caught.exception.worker),
                     ('entropy', 5))
    np.testing.assert_equal(caught.exception.value, bad)

  @parameterized.parameters(
      ({0: 1.0, 1: np.inf}, 1), ({1: np.nan}, 1), ({None: np.inf}, None))
  def test_a_gradient_that_is_not_finite_names_its_worker(self, factors, row):
    parts = _build()
    worker, = parts.policy_workers
    made = parts.networks
    gradients = {of: factor * tf.ones([made.policy.layout.size])
                 for of, factor in factors.items()}
    with mock.patch.object(made.policy_programs, 'gradients',
                           return_value=(gradients, {})):
      with self.assertRaises(workers.NumericsError) as caught:
        worker.iterate(_now(parts))
    self.assertEqual((caught.exception.name, caught.exception.worker),
                     ('policy_gradient_norm', row))


if __name__ == '__main__':
  absltest.main()
