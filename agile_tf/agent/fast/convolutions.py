"""The convolutions of both networks, and how they are computed.

Modules say what is convolved with what; how that is computed stays behind
`Convolver`. Features are space-major, [h, w, B, channels].

Minimal filtering. A 3x3 convolution that gives a 5x5 image takes 225 products
for each pair of channels. By Toom-Cook's algorithm (Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2016) it takes 49:

  y = A^T ((G w G^T) * (B^T x B)) A

B^T x B evaluates the image at 7 x 7 points, G w G^T the kernel, and A^T
interpolates. In the space-major layout the 49 products of all channels are a
batch of 49 matrix products, and so are those of the gradient. Images of another
size, and small batches, are convolved as usual. So are VALID convolutions: in
the stem, black pixels must give exactly zero, because with a rounding error the
ReLU would pass a gradient there.

Reusing results. The gradient of a rollout needs what the network computed when
it acted, from the same parameters; the gradient of the discriminator needs what
it computed when it rated the same states. So a `Convolver` keeps its results,
and another can take them from there. Results and gradients are the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_KERNEL = 3  # Minimal filtering is for kernels of this size
_IMAGE = 5  # and for results of this size,
_POINTS = _KERNEL + _IMAGE - 1
# and pays from this many rows on.
_MIN_ROWS = 5


def _toom_cook() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns A^T [5, 7], G [7, 3] and B^T [7, 7], float64.

  Evaluation is at the points and at infinity. B^T is the inverse of the
  transposed Vandermonde matrix; scaling its rows moves numbers to G.
  """
  points = np.array([0, 1, -1, 2, -2, 0.5])

  def powers(count: int) -> np.ndarray:
    return np.concatenate(
        [points[:, None]**np.arange(count), np.eye(count)[-1:]])

  # Multiples of 1/360. Adding 0 makes -0 to 0.
  inverse = np.round(360 * np.linalg.inv(powers(_POINTS))) / 360 + 0.0
  scale = np.abs(inverse).max(axis=0)[:, None]
  return powers(_IMAGE).T, powers(_KERNEL) * scale, inverse.T / scale


_A, _G, _B = _toom_cook()
# The border that SAME adds is zero, and is left out.
_B = _B[:, 1:-1]


def _apply_both(matrix: np.ndarray, x: tf.Tensor) -> tf.Tensor:
  """Multiplies both axes of space with a matrix: [m, m, ...] to [n, n, ...]."""
  n, m = matrix.shape
  factors = tf.constant(matrix, tf.float32)
  rows = tf.reshape(factors @ tf.reshape(x, [m, -1]), [n, m, -1])
  both = tf.matmul(tf.tile(factors[None], [n, 1, 1]), rows)
  return tf.reshape(both, [n, n, *x.shape[2:]])


@tf.custom_gradient
def _evaluate_image(x: tf.Tensor) -> tf.Tensor:
  """Evaluates features [5, 5, ...] at the points, [7, 7, ...]."""
  return _apply_both(_B, x), lambda dy: _apply_both(_B.T, dy)


def evaluate(parameters: Iterable[tf.Tensor]) -> list[tf.Tensor | None]:
  """Evaluates those parameters that are kernels of minimal filtering."""
  return [
      _evaluate(part) if part.shape.rank >= 4 and
      part.shape[-4:-2] == [_KERNEL, _KERNEL] else None for part in parameters]


def _evaluate(kernel: tf.Tensor) -> tf.Tensor:
  """Evaluates a kernel [(W,) 3, 3, in, out] at the points, [7, 7, in, out]."""
  kernel = tf.stop_gradient(_first(kernel))
  flat = tf.constant(np.kron(_G, _G), tf.float32) @ tf.reshape(
      kernel, [_KERNEL**2, -1])
  return tf.reshape(flat, [_POINTS, _POINTS, *kernel.shape[2:]])


def _first(kernel: tf.Tensor) -> tf.Tensor:
  """Returns the first of equal kernels."""
  return kernel[0] if kernel.shape.rank == 5 else kernel


class Use(NamedTuple):
  """A convolution by minimal filtering."""
  kernel: tf.Tensor
  blocks: list[slice]  # Of the kernel's inputs, one for each operand.
  points: list[tf.Tensor]  # float32 [49, B, in / N], the operands.
  # float32 [49, B, out]: zeros, which a tape watches. Their gradient is that of
  # the convolution's 49 products.
  products: tf.Tensor


class Convolver:
  """Convolves for one network with one snapshot of its parameters.

  Kernels are [size, size, in, out], or have a leading axis of W equal ones, one
  for each worker (see `agile_tf.agent.fast.rows`).
  """

  def __init__(self, kernels: Sequence[tf.Tensor] = (),
               evaluated: Sequence[tf.Tensor | None] = (),
               known: Sequence[tf.Tensor] = (),
               tape: tf.GradientTape | None = None):
    """Prepares for one pass, which a tape may record for `gradients`.

    `evaluated` is what `evaluate` made of some kernels. `known` has `results`
    of a convolver with the same parameters, [h, w, W, N, out] each, of the
    first N rows of each worker.
    """
    # Of each convolution, before bias or FiLM: float32 [h, w, B, out].
    self.results: list[tf.Tensor] = []
    self._uses: list[Use] = []
    self._tape = tape
    self._evaluated = dict(zip([each.ref() for each in kernels], evaluated))
    self._known = list(known)
    self._points: dict[Any, tf.Tensor] = {}

  def patches(self, images: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Convolves images with a stride as large as the kernel, VALID.

    From [B, H, W, in], not space-major, to [H / size, W / size, B, out].
    """
    size, _, inputs, outputs = kernel.shape[-4:]
    height, width = (n // size for n in images.shape[1:3])
    patches = tf.reshape(
        images[:, :height * size, :width * size],
        [-1, height, size, width, size, inputs])
    patches = tf.transpose(patches, [0, 1, 3, 2, 4, 5])
    known = self._next_known()
    workers = _workers(kernel)
    groups = workers if known is None else known.shape[2]
    # A group's patches are the rows of one matrix.
    patches = tf.reshape(patches, [groups, -1, size * size * inputs])
    matrix = tf.reshape(_first(kernel), [-1, outputs])
    split = [groups, -1, height, width, outputs]

    @tf.custom_gradient
    def multiply(patches, kernel):
      if known is None:
        result = tf.matmul(patches, matrix)
      else:
        count = known.shape[3]
        first = tf.transpose(known, [2, 3, 0, 1, 4])
        rest = patches[:, count * height * width:] @ matrix
        result = tf.concat([first, tf.reshape(rest, split)], 1)

      def gradient(upstream):
        upstream = tf.reshape(upstream, [workers, -1, outputs])
        return None, tf.reshape(
            tf.matmul(tf.reshape(patches, [workers, -1, patches.shape[-1]]),
                      upstream, transpose_a=True), kernel.shape)

      return tf.reshape(result, [-1, height, width, outputs]), gradient

    return self._keep(tf.transpose(multiply(patches, kernel), [1, 2, 0, 3]))

  def __call__(self, operands: Sequence[tf.Tensor | None], kernel: tf.Tensor,
               padding: str = 'SAME') -> tf.Tensor:
    """Convolves the concatenation of N features, [h, w, B, in / N] each.

    None stands for zeros, which cost nothing. The padding is 'SAME' or 'VALID'.
    """
    known = self._next_known()
    width = kernel.shape[-2] // len(operands)
    features = [x for x in operands if x is not None]
    # Their places among the kernel's inputs.
    blocks = [slice(i * width, (i + 1) * width)
              for i, x in enumerate(operands) if x is not None]
    if _filters(features[0], kernel, padding):
      return self._keep(self._filtered(features, blocks, kernel, known))
    return self._keep(_general(features, blocks, kernel, padding, known))

  def gradients(self, parameters: Sequence[tf.Tensor],
                outputs: Sequence[tf.Tensor], upstreams: Sequence[tf.Tensor]
               ) -> list[tf.Tensor]:
    """Computes parameters' gradients from those of outputs, the `upstreams`.

    All uses of a kernel share one batched product for its gradient.
    """
    assert self._tape is not None
    gradients, of_products = self._tape.gradient(
        outputs, (parameters, [use.products for use in self._uses]),
        output_gradients=upstreams,
        unconnected_gradients=tf.UnconnectedGradients.ZERO)
    met: dict[Any, dict[int, list[Any]]] = {}
    for use, upstream in zip(self._uses, of_products):
      blocks = met.setdefault(use.kernel.ref(), {})
      for block, points in zip(use.blocks, use.points):
        blocks.setdefault(block.start, []).append((points, upstream))
    return [
        gradient if part.ref() not in met else
        gradient + _kernel_gradient(part, met[part.ref()])
        for part, gradient in zip(parameters, gradients)]

  def _next_known(self) -> tf.Tensor | None:
    return self._known.pop(0) if self._known else None

  def _keep(self, result: tf.Tensor) -> tf.Tensor:
    self.results.append(result)
    return result

  def _filtered(self, features, blocks, kernel, known):
    """Convolves 5x5 features by minimal filtering.

    `known`, [5, 5, groups, K, out], has the first K rows of each group.
    """
    evaluated = self._evaluated.get(kernel.ref())
    if evaluated is None:
      evaluated = _evaluate(kernel)
    count, outputs = features[0].shape[2], kernel.shape[-1]
    parts = [
        tf.reshape(evaluated[:, :, block], [_POINTS**2, -1, outputs])
        for block in blocks]

    def multiply(points):
      both = tf.concat(points, -1) @ tf.concat(parts, 1)
      return _apply_both(_A, tf.reshape(
          both, [_POINTS, _POINTS, points[0].shape[1], outputs]))

    @tf.custom_gradient
    def convolve(products, *points):
      del products  # They are there for their gradient.

      def others(first, groups):
        return multiply([
            tf.reshape(
                tf.reshape(
                    x, [_POINTS**2, groups, count // groups, x.shape[-1]])[
                        :, :, first:],
                [_POINTS**2, count - first * groups, x.shape[-1]])
            for x in points])

      result = (multiply(points) if known is None
                else _complete(known, count, others))

      def gradient(upstream):
        upstream = tf.reshape(
            _apply_both(_A.T, upstream), [_POINTS**2, count, outputs])
        return upstream, *(
            tf.matmul(upstream, part, transpose_b=True) for part in parts)

      return result, gradient

    points = [
        tf.reshape(self._at_points(x), [_POINTS**2, count, x.shape[-1]])
        for x in features]
    products = tf.zeros([_POINTS**2, count, outputs])
    if self._tape is not None:
      self._tape.watch(products)
      self._uses.append(Use(kernel, blocks, points, products))
    return convolve(products, *points)

  def _at_points(self, x: tf.Tensor) -> tf.Tensor:
    """Evaluates features once for all kernels."""
    if x.ref() not in self._points:
      self._points[x.ref()] = _evaluate_image(x)
    return self._points[x.ref()]


def _filters(x: tf.Tensor, kernel: tf.Tensor, padding: str) -> bool:
  """Whether minimal filtering can be used, and pays."""
  return (
      padding == 'SAME' and x.shape[:2] == (_IMAGE, _IMAGE) and
      kernel.shape[-4:-2] == (_KERNEL, _KERNEL) and
      x.shape[2] is not None and x.shape[2] >= _MIN_ROWS)


def _complete(known: tf.Tensor, count: int,
              others: Callable[[int, int], tf.Tensor]) -> tf.Tensor:
  """Joins the known K first rows of each group with all `others`.

  These are computed from K and the number of groups.
  """
  height, width, groups, first, outputs = known.shape
  result = known
  if first * groups < count:
    rest = tf.reshape(
        others(first, groups), [height, width, groups, -1, outputs])
    result = tf.concat([known, rest], 3)
  return tf.reshape(result, [height, width, count, outputs])


def _general(features, blocks, kernel, padding, known):
  """Convolves features of any size, as `_filtered` does those of 5x5."""
  x = tf.transpose(tf.concat(features, -1), [2, 0, 1, 3])
  workers = _workers(kernel)

  def shared(kernel):
    return tf.concat([_first(kernel)[:, :, block] for block in blocks], 2)

  def convolve(x, kernel):
    return tf.transpose(
        tf.nn.conv2d(x, shared(kernel), 1, padding), [1, 2, 0, 3])

  if known is None and workers == 1:
    return convolve(x, kernel)

  @tf.custom_gradient
  def reuse(x, kernel):
    def others(first, groups):
      rest = tf.reshape(x, [groups, -1, *x.shape[1:]])[:, first:]
      return convolve(tf.reshape(rest, [-1, *x.shape[1:]]), kernel)

    result = (convolve(x, kernel) if known is None
              else _complete(known, x.shape[0], others))

    def gradient(upstream):
      upstream = tf.transpose(upstream, [2, 0, 1, 3])
      options: dict[str, Any] = dict(strides=[1] * 4, padding=padding)
      used = shared(kernel)
      d_x = tf.raw_ops.Conv2DBackpropInput(
          input_sizes=x.shape, filter=used, out_backprop=upstream, **options)
      rows = x.shape[0] // workers
      d_used = tf.stack([
          tf.raw_ops.Conv2DBackpropFilter(
              input=x[w * rows:(w + 1) * rows], filter_sizes=used.shape,
              out_backprop=upstream[w * rows:(w + 1) * rows], **options)
          for w in range(workers)])
      d_parts = tf.split(d_used, len(blocks), -2)
      return d_x, _blocks(d_parts, blocks, kernel)

    return result, gradient

  return reuse(x, kernel)


def _workers(kernel: tf.Tensor) -> int:
  """Returns the number of workers that need a gradient of their own."""
  return kernel.shape[0] if kernel.shape.rank == 5 else 1


def _kernel_gradient(kernel: tf.Tensor, blocks: dict[int, list[Any]]
                    ) -> tf.Tensor:
  """Computes one kernel's gradient from what each of its blocks meets."""
  workers = _workers(kernel)
  parts, places = [], []
  for start, pairs in blocks.items():
    x, upstream = (
        tf.concat([
            tf.reshape(each, [_POINTS**2, workers, -1, each.shape[-1]])
            for each in side], 2) for side in zip(*pairs))
    inputs, outputs = x.shape[-1], upstream.shape[-1]
    products = tf.reshape(
        tf.matmul(x, upstream, transpose_a=True),
        [_POINTS, _POINTS, workers, inputs * outputs])
    # Two plain sums in a row are fused, and faster here than products.
    lines = [_combine(column, products) for column in _G.T]
    part = tf.stack([
        tf.stack([_combine(column, line) for column in _G.T], 1)
        for line in lines], 1)
    parts.append(tf.reshape(
        part, [workers, _KERNEL, _KERNEL, inputs, outputs]))
    places.append(slice(start, start + inputs))
  return _blocks(parts, places, kernel)


def _combine(factors: np.ndarray, parts: tf.Tensor) -> tf.Tensor:
  """Returns a linear combination of parts, [n, ...] to [...]."""
  return sum(float(factor) * parts[i]
             for i, factor in enumerate(factors) if factor)


def _blocks(parts: Iterable[tf.Tensor], blocks: Sequence[slice],
            kernel: tf.Tensor) -> tf.Tensor:
  """Joins a kernel's gradient from its blocks'; elsewhere it is zero."""
  size = kernel.shape[-2]
  places = {block.start: part for part, block in zip(parts, blocks)}
  width = blocks[0].stop - blocks[0].start
  zeros = tf.zeros_like(next(iter(places.values())))
  result = tf.concat(
      [places.get(start, zeros) for start in range(0, size, width)], -2)
  return tf.reshape(result, kernel.shape)
