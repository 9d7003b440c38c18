"""Tests for optimizers: TensorFlow 1's own optimiser, and many threads."""

import threading

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import optimizers
from agile_tf.agent import parameters as parameters_lib

# The decay, the epsilon and the norm of the gradient.
_POLICY = 0.99, 0.1, 40.0
_DISCRIMINATOR = 0.9, 1e-10, 25.0
_RATE = 5e-4
LAYOUT = parameters_lib.Layout(
    ('a/w', 'a/b', 'gamma'), ((4, 3), (3,), (2, 3)), tables=('gamma',))


def draw(rng, scale=1.0):
  return rng.normal(scale=scale, size=LAYOUT.size).astype(np.float32)


def tensorflow_1(layout, initial, gradients, max_norm, make):
  """Variables and norms after each step of the optimiser that `make` makes.

  There each parameter is a variable of its own.
  """
  initial, *gradients = (
      [part.numpy() for part in layout.split(vector).values()]
      for vector in (initial, *gradients))
  v1 = tf.compat.v1
  with tf.Graph().as_default(), v1.Session() as session:
    variables = [
        v1.get_variable(f'v{i}', initializer=value)
        for i, value in enumerate(initial)]
    feeds = [v1.placeholder(tf.float32, value.shape) for value in initial]
    clipped, norm = tf.clip_by_global_norm(feeds, max_norm)
    train = make().apply_gradients(zip(clipped, variables))
    session.run(v1.global_variables_initializer())
    steps = []
    for step in gradients:
      norm_value, _ = session.run([norm, train], dict(zip(feeds, step)))
      steps.append((norm_value, np.concatenate(
          [value.ravel() for value in session.run(variables)])))
  return steps


def _make(settings, initial=None, layout=LAYOUT, max_column_norm=None):
  decay, epsilon, gradient_norm = settings
  return optimizers.SharedParameters(
      layout, draw(np.random.default_rng(0)) if initial is None else initial,
      optimizers.rmsprop(decay, epsilon), gradient_norm, max_column_norm)


def _start(*functions):
  threads = [threading.Thread(target=function) for function in functions]
  for thread in threads:
    thread.start()
  return threads


class UpdateTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('policy', _POLICY, 3e-4, 1.0),
      ('policy_clipped', _POLICY, 3e-4, 100.0),
      ('discriminator', _DISCRIMINATOR, _RATE, 1.0),
      ('discriminator_clipped', _DISCRIMINATOR, _RATE, 100.0),
      ('small_gradients', _DISCRIMINATOR, _RATE, 1e-5),
      ('large_rate', (0.5, 1e-3, 2.0), 0.1, 1.0))
  def test_updates_equal_those_of_tensorflow_1(self, settings, rate, scale):
    rng = np.random.default_rng(0)
    initial = draw(rng)
    gradients = [draw(rng, scale) for _ in range(5)]
    parameters = _make(settings, initial)
    decay, epsilon, gradient_norm = settings
    steps = tensorflow_1(
        LAYOUT, initial, gradients, gradient_norm,
        lambda: tf.compat.v1.train.RMSPropOptimizer(
            rate, decay, epsilon=epsilon))
    for gradient, (norm, expected) in zip(gradients, steps, strict=True):
      actual, = parameters.update(rate, tf.constant(gradient))
      np.testing.assert_allclose(actual, norm, rtol=1e-6)
      np.testing.assert_allclose(
          parameters.snapshot(), expected, rtol=1e-6, atol=1e-7)
    together = _make(settings, initial)
    together.update(rate, *map(tf.constant, gradients))
    np.testing.assert_allclose(
        together.snapshot(), parameters.snapshot(), rtol=1e-6)

  @parameterized.parameters(1e-6, 0.5, 40.0, 1e30, 1e38, 3e38, 1e100)
  def test_any_norm_clips_to_itself(self, max_norm):
    """Also where 1 / max_norm has no place in float32."""
    for gradient in ([3., 4.], [0., 0.], [3e-9, 4e-9], [3e15, 4e15]):
      clipped, norm = optimizers.clip_gradient(
          tf.constant(gradient), max_norm)
      size = np.linalg.norm(gradient)
      np.testing.assert_allclose(norm, size, rtol=1e-6)
      np.testing.assert_allclose(
          clipped, np.multiply(gradient, max_norm / max(size, max_norm)),
          rtol=1e-6)
      if size < max_norm:
        np.testing.assert_array_equal(clipped, np.float32(gradient))


class ColumnsTest(parameterized.TestCase):

  @parameterized.parameters(((3, 4), 1.0), ((3, 3, 2, 4), 1.0), ((3, 4), 2.0))
  def test_columns_equal_a_loop_over_units(self, shape, limit):
    weight = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    # Columns of norm 0, just below, just above and far above the limit.
    norms = np.sqrt((weight**2).reshape(-1, 4).sum(0))
    weight *= limit * np.array([0, 0.999, 1.001, 7], np.float32) / norms
    clipped = optimizers.clip_columns(tf.constant(weight), limit).numpy()
    for unit in range(4):
      incoming = weight[..., unit]
      norm = np.linalg.norm(incoming.ravel())
      if unit < 2:  # Untouched, to the last bit.
        np.testing.assert_array_equal(clipped[..., unit], incoming)
      else:
        np.testing.assert_allclose(
            clipped[..., unit], limit * incoming / norm, rtol=1e-5)

  def test_columns_are_clipped_after_each_update(self):
    rng = np.random.default_rng(2)
    names = ['conv/w', 'linear/w', 'linear/b', 'film_nmn/gamma']
    shapes = [(3, 3, 2, 4), (5, 4), (4,), (5, 4)]
    initial = [rng.normal(scale=.3, size=s).astype(np.float32) for s in shapes]
    initial[1] *= 4
    initial[1][:, 0] = 0.1  # A column that stays short.
    initial[2] += 2
    initial[3] += 2
    layout = parameters_lib.Layout(names, shapes, tables=('gamma',))
    start = layout.join(dict(zip(names, initial))).numpy()
    gradient = tf.constant(rng.normal(size=layout.size).astype(np.float32))
    both = []
    for most in 1.0, None:
      parameters = _make((0.9, 1e-10, 1e9), start, layout, most)
      parameters.update(0.1, gradient)
      both.append(layout.split(parameters.snapshot()))
    for name in names:
      one, other = (parts[name] for parts in both)
      clipped = optimizers.clip_columns(other, 1.0)
      np.testing.assert_allclose(
          one, clipped if name.endswith('/w') else other, rtol=1e-6)
      self.assertFalse(np.array_equal(other, clipped), name)

  @parameterized.parameters(False, True)
  def test_weights_have_columns_and_tables_and_biases_have_none(self, limits):
    shapes = {'d/w': (2, 3), 'd/gamma/w': (2, 3), 'd/kernel': (3, 3, 2, 4),
              'd/b': (3,), 'd/embeddings': (5, 3), 'd/gamma': (5, 3),
              'd/beta': (5, 3)}
    layout = parameters_lib.Layout(
        list(shapes), list(shapes.values()), ('gamma', 'beta', 'embeddings'))
    self.assertEqual(
        [optimizers.has_columns(layout, name, limits) for name in shapes],
        [True, True, True, False, False, limits, limits])


class SharedTest(parameterized.TestCase):

  def _gradient(self, seed):
    return tf.constant(draw(np.random.default_rng(seed)))

  def test_snapshot_keeps_its_values(self):
    parameters = _make(_DISCRIMINATOR)
    snapshot = parameters.snapshot()
    before = snapshot.numpy().copy()
    loaded = _make(_DISCRIMINATOR).state()
    for change in (lambda: parameters.update(_RATE, self._gradient(1)),
                   lambda: parameters.load(
                       {name: value + 1 for name, value in loaded.items()})):
      change()
      np.testing.assert_array_equal(snapshot, before)
      self.assertFalse(np.array_equal(before, parameters.snapshot()))

  @parameterized.parameters(
      (_POLICY, None), (_DISCRIMINATOR, None), (_DISCRIMINATOR, 1.0))
  def test_state_round_trip_goes_on_the_same(self, settings, max_column_norm):
    parameters = _make(settings, max_column_norm=max_column_norm)
    for seed in range(3):
      parameters.update(_RATE, self._gradient(seed))
    state = parameters.state()
    self.assertEqual(
        {name: value.shape for name, value in state.items()},
        {name + slot: shape
         for name, shape in zip(LAYOUT.names, LAYOUT.shapes)
         for slot in ('', '/mean_square')})
    kept = {name: value.copy() for name, value in state.items()}
    restored = _make(settings, np.zeros([LAYOUT.size], np.float32),
                     max_column_norm=max_column_norm)
    restored.load(state)
    for seed in range(3, 6):
      for each in (parameters, restored):
        each.update(_RATE, self._gradient(seed))
    expected, actual = parameters.state(), restored.state()
    self.assertEqual(list(expected), list(actual))
    for name, value in expected.items():
      np.testing.assert_array_equal(actual[name], value, name)
      np.testing.assert_array_equal(state[name], kept[name], name)
      self.assertFalse(np.array_equal(value, kept[name]), name)

  @parameterized.parameters(np.nan, np.inf)
  def test_a_gradient_that_is_not_finite_changes_nothing(self, wrong):
    rng = np.random.default_rng(0)
    initial, good = draw(rng), draw(rng)
    bad = draw(rng)
    bad[13] = wrong
    one, other = (_make(_DISCRIMINATOR, initial) for _ in range(2))
    norms = one.update(_RATE, *map(tf.constant, (bad, good, bad))).numpy()
    expected = other.update(_RATE, good).numpy()
    np.testing.assert_array_equal(np.isfinite(norms), [False, True, False])
    self.assertEqual(norms[1], expected[0])
    for name, value in other.state().items():
      np.testing.assert_array_equal(one.state()[name], value, name)

  def test_threads_lose_no_update_and_see_no_part_of_one(self):
    """Columns get the same updates, so that all their numbers are equal.

    Once they have their largest norm, it is exceeded before they are clipped.
    """
    names = [f'{i}/w' for i in range(24)]
    layout = parameters_lib.Layout(names, [[5000, 1]] * len(names))
    alone, parameters = (
        _make(_POLICY, np.zeros([layout.size], np.float32), layout,
              max_column_norm=1.0)
        for _ in range(2))
    gradient = tf.ones([layout.size])
    parameters.update(_RATE, gradient)
    done = threading.Event()

    def apply():
      for _ in range(80):
        parameters.update(_RATE, gradient)

    def snapshot():
      return parameters.snapshot().numpy()

    def state():
      values = parameters.state()
      return np.stack([values[name] for name in names])

    seen, torn = {snapshot: set(), state: set()}, []

    def look(take):
      while not done.is_set():
        values = take()
        number = float(values.flat[0])
        if np.any(values != number) or abs(number) * 5000**0.5 > 1 + 1e-5:
          torn.append(take)
        seen[take].add(number)

    lookers = _start(lambda: look(snapshot), lambda: look(state))
    for thread in _start(*[apply] * 3):
      thread.join()
    done.set()
    for thread in lookers:
      thread.join()
    self.assertEmpty(torn)
    for values in seen.values():  # Some were taken between updates.
      self.assertGreater(len(values), 2)
    for _ in range(241):
      alone.update(_RATE, gradient)
    for name, value in alone.state().items():
      np.testing.assert_array_equal(parameters.state()[name], value, name)
    self.assertAlmostEqual(
        np.linalg.norm(parameters.state()[names[0]]), 1, places=4)
