"""Tests for convolutions: every way to compute them gives the same."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from agile_tf.agent import worlds
from agile_tf.fast import convolutions

_INPUTS, _OUTPUTS = 3, 4  # Channels of an operand, and of the result.


def _plain(operands, kernel, padding):
  """The formula in float64: zeros are zeros, and nothing is shared."""
  there = next(x for x in operands if x is not None)
  x = [tf.zeros_like(there) if x is None else x for x in operands]
  x = tf.transpose(tf.concat(x, -1), [2, 0, 1, 3])
  return tf.transpose(
      tf.nn.conv2d(x, kernel, 1, padding), [1, 2, 0, 3])


def _assert_close(actual, expected, message=''):
  largest = np.abs(expected).max()
  np.testing.assert_allclose(
      actual, expected, rtol=0, atol=1e-4 * largest, err_msg=message)
  assert largest > 0.1, message


def _variants():
  """Size of the features, rows a worker, workers, padding, what is there."""
  for size, padding in (
      ((5, 5), 'SAME'), ((7, 7), 'VALID'), ((4, 4), 'SAME'), ((3, 6), 'SAME')):
    for rows, workers in ((16, 1), (6, 3), (1, 1), (2, 2)):
      for used in ((True, True), (True, False), (False, True)):
        yield dict(size=size, padding=padding, rows=rows, workers=workers,
                   used=used)


class ConvolutionsTest(parameterized.TestCase):

  def test_tiles_are_patches_of_images(self):
    rng = np.random.default_rng(0)
    table = rng.uniform(size=[5, 8, 8, 3]).astype(np.float32)
    indices = rng.integers(5, size=[4, 2, 3]).astype(np.int32)
    images = table[indices].transpose(0, 1, 3, 2, 4, 5).reshape(4, 16, 24, 3)
    kernel = tf.constant(rng.normal(size=[8, 8, 3, 6]).astype(np.float32))
    expected, actual = [], []
    for found, x in ((expected, tf.constant(images)), (
        actual, worlds.Tiled(tf.constant(indices), table))):
      with tf.GradientTape() as tape:
        tape.watch(kernel)
        y = convolutions.Convolver().patches(x, kernel)
        loss = tf.reduce_sum(y**2)
      found += [y, tape.gradient(loss, kernel)]
    for a, b in zip(actual, expected):
      _assert_close(a, b)

  @parameterized.parameters(*_variants())
  def test_outputs_and_gradients_are_the_formulas(
      self, size, padding, rows, workers, used):
    rng = np.random.default_rng(0)
    count = workers * rows
    kernel = rng.normal(size=[3, 3, 2 * _INPUTS, _OUTPUTS])
    features = [
        rng.normal(size=[*size, count, _INPUTS]) for _ in range(sum(used))]

    def operands(parts):
      parts = iter(parts)
      return [next(parts) if use else None for use in used]

    # Each worker has a kernel of its own for its rows.
    sources = list(map(tf.constant, (np.stack([kernel] * workers), *features)))
    with tf.GradientTape() as tape:
      tape.watch(sources)
      expected = tf.concat([
          _plain(operands(x[:, :, w * rows:(w + 1) * rows]
                          for x in sources[1:]), sources[0][w], padding)
          for w in range(workers)], 2)
      weights = rng.normal(size=expected.shape)
      loss = tf.reduce_sum(expected * weights)
    gradients = tape.gradient(loss, sources)

    for stacked in {workers > 1, True}:
      for known_count in {0, rows // 2, rows}:
        known = []
        if known_count:
          split = tf.reshape(
              expected, [*expected.shape[:2], workers, rows, _OUTPUTS])
          known = [tf.cast(split[:, :, :, :known_count], tf.float32)]
        k, *inputs = (tf.cast(x, tf.float32) for x in sources)
        if not stacked:
          k = k[0]
        tape = tf.GradientTape()
        convolve = convolutions.Convolver(
            [k], convolutions.transformed([k]), known, tape)
        with tape:
          tape.watch([k, *inputs])
          output = convolve(operands(inputs), k, padding)
          loss = tf.reduce_sum(output * tf.cast(weights, tf.float32))
        _assert_close(output, expected)
        self.assertIs(convolve.results[0], output)
        of_kernel, *of_features = convolve.gradients(
            [k, *inputs], [loss], [tf.ones([])])
        _assert_close(
            of_kernel, gradients[0] if stacked else gradients[0][0], 'kernel')
        for actual, other in zip(of_features, gradients[1:], strict=True):
          _assert_close(actual, other, 'features')

  def test_operands_are_transformed_once(self):
    """A kernel and features that are used often are transformed once."""
    rng = np.random.default_rng(0)
    x, y = (tf.constant(rng.normal(size=[5, 5, 16, 4]), tf.float32)
            for _ in range(2))
    kernel = tf.constant(rng.normal(size=[3, 3, 8, 4]), tf.float32)

    def transforms(operands):
      def compute():
        convolve = convolutions.Convolver(
            [kernel], convolutions.transformed([kernel]))
        return [convolve(each, kernel) for each in operands]

      graph = tf.function(compute, autograph=False).get_concrete_function()
      shapes = [(op.type, op.inputs[0].shape.as_list())
                for op in graph.graph.get_operations() if op.inputs]
      return (shapes.count(('MatMul', [49, 9])),
              shapes.count(('BatchMatMulV2', [5, 7, 5])))

    self.assertEqual(transforms([[x, None]]), (1, 1))
    self.assertEqual(transforms([[x, None], [y, x], [None, x]]), (1, 2))
