"""The convolutions of both networks, and how they are computed.

The networks say what is convolved with what, and `Convolver` computes it.
Features are space-major, [h, w, B, channels]. A row is an example of the batch,
as in `rows`, and not a line of an image.

Minimal filtering. A 3x3 convolution that gives a 5x5 image takes 225 products
for each pair of channels. By Toom-Cook's algorithm (Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2016) it takes 49:

  y = A^T ((G w G^T) * (B^T x B)) A

This is Toom-Cook's product of polynomials, transposed. G evaluates the kernel
at 7 points along each axis. B^T is the transpose of interpolation, and
transforms the image. A^T is the transpose of evaluation, and gives the result.
In the space-major layout the 49 products of all channels are a batch of 49
matrix products, and so are those of the gradient. Images of another size, and
single ones, are convolved as usual. So are VALID convolutions: as long as the
stem's biases are zero, as they are at first, black pixels must give exactly
zero there, because with a rounding error the ReLU would pass a gradient.

Gradients of kernels. A convolution by minimal filtering hands no gradient to
its kernel. Instead it takes a dummy input of zeros, as if these were added to
its 49 products: so their gradient is that of the products.
`Convolver.gradients` multiplies it with the transformed inputs, in one product
for all uses of a kernel.

Reusing results. The gradient of a rollout needs what the network computed when
it acted, from the same parameters; the gradient of the discriminator needs what
it computed when it rated the same states. So a `Convolver` keeps its results,
and another can take them from there. Results and gradients are the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import worlds

# Minimal filtering is used for 3x3 kernels, 5x5 results, and two or more rows.
_KERNEL = 3
_IMAGE = 5
_MIN_ROWS = 2
_POINTS = _KERNEL + _IMAGE - 1


def _toom_cook() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns A^T [5, 7], G [7, 3] and B^T [7, 7], float64.

  Evaluation is at the points and at infinity. B^T is the inverse of the
  transposed Vandermonde matrix, with each row divided by its largest number.
  The row of G is multiplied by this number, so the result is the same.
  """
  points = np.array([0, 1, -1, 2, -2, 0.5])

  def powers(count: int) -> np.ndarray:
    return np.concatenate(
        [points[:, None]**np.arange(count), np.eye(count)[-1:]])

  # The exact numbers are multiples of 1/360, so rounding removes the error of
  # the inversion. Adding 0 turns -0 into 0.
  inverse = np.round(360 * np.linalg.inv(powers(_POINTS))) / 360 + 0.0
  scale = np.abs(inverse).max(axis=0)[:, None]
  return powers(_IMAGE).T, powers(_KERNEL) * scale, inverse.T / scale


_A_T, _G, _B_T = _toom_cook()
# The border that SAME adds is zero, and is left out.
_B_T = _B_T[:, 1:-1]


def _apply_both(matrix: np.ndarray, x: tf.Tensor) -> tf.Tensor:
  """Multiplies both axes of space with a matrix: [m, m, ...] to [n, n, ...]."""
  n, m = matrix.shape
  factors = tf.constant(matrix, tf.float32)
  columns = tf.matmul(
      tf.tile(factors[None], [m, 1, 1]), tf.reshape(x, [m, m, -1]))
  both = factors @ tf.reshape(columns, [m, -1])
  return tf.reshape(both, [n, n, *x.shape[2:]])


def transformed(parameters: Iterable[tf.Tensor]) -> list[tf.Tensor | None]:
  """Returns G w G^T for each parameter w that is a 3x3 kernel.

  For other parameters it returns None.
  """
  return [
      _transformed(part) if part.shape.rank >= 4 and
      part.shape[-4:-2] == [_KERNEL, _KERNEL] else None for part in parameters]


def _transformed(kernel: tf.Tensor) -> tf.Tensor:
  """Returns G w G^T, [7, 7, in, out], of a kernel w.

  The kernel is [3, 3, in, out], or has a leading axis of W equal ones.
  """
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
  blocks: list[slice]  # Each operand's block of the kernel's inputs.
  # B^T x B of each operand x, [49, B, in / number of operands].
  inputs: list[tf.Tensor]
  # The dummy input, float32 [49, B, out]: zeros that a tape watches. Their
  # gradient is that of the convolution's 49 products.
  dummy: tf.Tensor


class Convolver:
  """Convolves for one network with one snapshot of its parameters.

  Kernels are [size, size, in, out], or have a leading axis of W equal ones, one
  for each worker (see `agile_tf.fast.rows`).
  """

  def __init__(self, parameters: Sequence[tf.Tensor] = (),
               transformed_kernels: Sequence[tf.Tensor | None] = (),
               known: Sequence[tf.Tensor] = (),
               tape: tf.GradientTape | None = None):
    """Prepares for one pass, which a tape may record for `gradients`.

    Args:
      parameters: All parameters of the network, its kernels among them.
      transformed_kernels: What `transformed` returned for these parameters.
      known: The `results` of a convolver with the same parameters for the first
        N rows of each worker, [h, w, W, N, out] each, in the order of its
        calls, which must be the same here. They are not computed again.
      tape: Records the pass.
    """
    # Each convolution's output before bias or FiLM, float32 [h, w, B, out].
    self.results: list[tf.Tensor] = []
    self._uses: list[Use] = []
    self._tape = tape
    self._transformed_kernels = dict(
        zip([each.ref() for each in parameters], transformed_kernels))
    self._known = iter(known)
    self._transformed_features: dict[Any, tf.Tensor] = {}

  def patches(self, images: tf.Tensor | worlds.Tiled, kernel: tf.Tensor
             ) -> tf.Tensor:
    """Convolves images with a stride as large as the kernel, VALID.

    Images are [B, H, W, in], not space-major. The result is
    [H / size, W / size, B, out]. Tiles are as large as the kernel.
    """
    if isinstance(images, worlds.Tiled):
      # Each tile is convolved once; a product with one-hot vectors looks it up.
      table = images.table.reshape(len(images.table), -1)
      patches = tf.one_hot(images.indices, len(table))
    else:
      table = None
      size, _, inputs, _ = kernel.shape[-4:]
      height, width = (n // size for n in images.shape[1:3])
      in_patches = tf.reshape(
          images[:, :height * size, :width * size],
          [-1, height, size, width, size, inputs])
      patches = tf.reshape(
          tf.transpose(in_patches, [0, 1, 3, 2, 4, 5]),
          [-1, height, width, size * size * inputs])
    return self._keep(_product(patches, kernel, next(self._known, None), table))

  def __call__(self, operands: Sequence[tf.Tensor | None], kernel: tf.Tensor,
               padding: str = 'SAME') -> tf.Tensor:
    """Convolves the concatenation of the operands' channels.

    Each operand is [h, w, B, in / number of operands]. None stands for zeros,
    which cost nothing. The padding is 'SAME' or 'VALID'.
    """
    known = next(self._known, None)
    block_width = kernel.shape[-2] // len(operands)
    features, blocks = [], []
    for i, operand in enumerate(operands):
      if operand is not None:
        features.append(operand)
        # The operand is multiplied with this block of the kernel's inputs.
        blocks.append(slice(i * block_width, (i + 1) * block_width))
    height, width, count = features[0].shape[:3]
    if (padding == 'SAME' and (height, width) == (_IMAGE, _IMAGE) and
        kernel.shape[-4:-2] == (_KERNEL, _KERNEL) and
        (count or 0) >= _MIN_ROWS):
      return self._keep(self._filtered(features, blocks, kernel, known))
    return self._keep(_general(features, blocks, kernel, padding, known))

  def gradients(self, parameters: Sequence[tf.Tensor],
                outputs: Sequence[tf.Tensor], upstreams: Sequence[tf.Tensor]
               ) -> list[tf.Tensor]:
    """Computes parameters' gradients from those of outputs, the `upstreams`.

    All uses of a kernel's block share one batched product for its gradient.
    """
    assert self._tape is not None
    gradients, of_products = self._tape.gradient(
        outputs, (parameters, [use.dummy for use in self._uses]),
        output_gradients=upstreams,
        unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # The values are the argument `uses` of `_kernel_gradient`, for each kernel.
    uses_of: dict[Any, dict[int, list[Any]]] = {}
    for use, upstream in zip(self._uses, of_products):
      of_blocks = uses_of.setdefault(use.kernel.ref(), {})
      for block, inputs in zip(use.blocks, use.inputs):
        of_blocks.setdefault(block.start, []).append((inputs, upstream))
    return [
        gradient if part.ref() not in uses_of else
        gradient + _kernel_gradient(part, uses_of[part.ref()])
        for part, gradient in zip(parameters, gradients)]

  def _keep(self, result: tf.Tensor) -> tf.Tensor:
    self.results.append(result)
    return result

  def _filtered(self, features, blocks, kernel, known):
    """Convolves 5x5 features by minimal filtering.

    `known`, [5, 5, W, N, out], has the results of each worker's first N rows.
    """
    transformed_kernel = self._transformed_kernels[kernel.ref()]
    count, outputs = features[0].shape[2], kernel.shape[-1]
    parts = [
        tf.reshape(transformed_kernel[:, :, block], [_POINTS**2, -1, outputs])
        for block in blocks]

    def multiply(inputs):
      products = tf.concat(inputs, -1) @ tf.concat(parts, 1)
      return _apply_both(_A_T, tf.reshape(
          products, [_POINTS, _POINTS, inputs[0].shape[1], outputs]))

    @tf.custom_gradient
    def convolve(dummy, *inputs):
      del dummy  # Only its gradient is used, by `gradients`.
      result = _complete(known, multiply, inputs)

      def gradient(upstream):
        upstream = tf.reshape(
            _apply_both(_A_T.T, upstream), [_POINTS**2, count, outputs])
        return upstream, *(
            tf.matmul(upstream, part, transpose_b=True) for part in parts)

      return result, gradient

    inputs = [
        tf.reshape(self._transform(x), [_POINTS**2, count, x.shape[-1]])
        for x in features]
    dummy = tf.zeros([_POINTS**2, count, outputs])
    if self._tape is not None:
      self._tape.watch(dummy)
      self._uses.append(Use(kernel, blocks, inputs, dummy))
    return convolve(dummy, *inputs)

  def _transform(self, x: tf.Tensor) -> tf.Tensor:
    """Returns B^T x B of features x, computed once for all kernels."""
    if x.ref() not in self._transformed_features:
      self._transformed_features[x.ref()] = _apply_both(_B_T, x)
    return self._transformed_features[x.ref()]


def _complete(known: tf.Tensor | None,
              convolve: Callable[[Sequence[tf.Tensor]], tf.Tensor],
              rows: Sequence[tf.Tensor]) -> tf.Tensor:
  """Convolves rows, except for those whose results are known.

  Args:
    known: The results of each worker's first N rows, [h, w, W, N, out], or
      None.
    convolve: Returns the results [h, w, B, out] of any number B of rows.
    rows: What `convolve` takes: arrays with three axes, of which the second is
      that of the B rows.

  Returns:
    The results, [h, w, B, out].
  """
  if known is None:
    return convolve(rows)
  height, width, workers, num_known, outputs = known.shape
  count = rows[0].shape[1]
  result = known
  if num_known * workers < count:
    unknown = []
    for x in rows:
      by_worker = tf.reshape(x, [x.shape[0], workers, -1, x.shape[-1]])
      unknown.append(tf.reshape(
          by_worker[:, :, num_known:], [x.shape[0], -1, x.shape[-1]]))
    rest = tf.reshape(
        convolve(unknown), [height, width, workers, -1, outputs])
    result = tf.concat([known, rest], 3)
  return tf.reshape(result, [height, width, count, outputs])


def _general(features, blocks, kernel, padding, known):
  """Convolves features of any size, as `_filtered` does those of 5x5."""
  size = kernel.shape[-3]
  x = tf.transpose(tf.concat(features, -1), [2, 0, 1, 3])
  if padding == 'SAME':
    border = [(size - 1) // 2, size // 2]
    x = tf.pad(x, [[0, 0], border, border, [0, 0]])
  height, width = (n - size + 1 for n in x.shape[1:3])
  patches = tf.concat(
      [x[:, i:i + height, j:j + width] for i in range(size)
       for j in range(size)], -1)
  num_used = sum(block.stop - block.start for block in blocks)
  if num_used < kernel.shape[-2]:  # Some operands are zeros.
    kernel = tf.concat([kernel[..., block, :] for block in blocks], -2)
  return _product(patches, kernel, known)


def _product(patches: tf.Tensor, kernel: tf.Tensor, known: tf.Tensor | None,
             table: np.ndarray | None = None) -> tf.Tensor:
  """Multiplies patches [B, h, w, n] with a kernel: [h, w, B, out].

  A patch has the n numbers that the kernel meets in one place. If there is a
  `table` of n different patches, each patch has n weights over them (one-hot)
  instead. `known` is as in `_filtered`.
  """
  _, height, width, _ = patches.shape
  workers, outputs = _workers(kernel), kernel.shape[-1]

  @tf.custom_gradient
  def multiply(patches, kernel):
    matrix = tf.reshape(_first(kernel), [-1, outputs])
    if table is not None:
      matrix = tf.constant(table) @ matrix

    def convolve(parts):
      part = tf.reshape(parts[0], [-1, patches.shape[-1]]) @ matrix
      return tf.transpose(
          tf.reshape(part, [-1, height, width, outputs]), [1, 2, 0, 3])

    # All patches of a row are together, as `_complete` needs it.
    by_row = tf.reshape(
        patches, [1, -1, height * width * patches.shape[-1]])
    result = _complete(known, convolve, [by_row])

    def gradient(upstream):
      upstream = tf.reshape(
          tf.transpose(upstream, [2, 0, 1, 3]), [workers, -1, outputs])
      by_worker = tf.reshape(patches, [workers, -1, patches.shape[-1]])
      d_matrix = tf.matmul(by_worker, upstream, transpose_a=True)
      if table is not None:
        d_matrix = tf.matmul(
            tf.tile(tf.constant(table)[None], [workers, 1, 1]), d_matrix,
            transpose_a=True)
      d_patches = tf.reshape(
          tf.matmul(upstream, matrix, transpose_b=True), patches.shape)
      return d_patches, tf.reshape(d_matrix, kernel.shape)

    return result, gradient

  return multiply(patches, kernel)


def _workers(kernel: tf.Tensor) -> int:
  """Returns the number of workers that need a gradient of their own."""
  return kernel.shape[0] if kernel.shape.rank == 5 else 1


def _kernel_gradient(kernel: tf.Tensor, uses: dict[int, list[Any]]
                    ) -> tf.Tensor:
  """Computes one kernel's gradient from the uses of its blocks.

  Args:
    kernel: The kernel.
    uses: By the first of a block's inputs, a pair for each use of the block:
      its transformed inputs [49, B, block], and the gradient of the products
      [49, B, out].

  Returns:
    The gradient, with the shape of the kernel.
  """
  workers = _workers(kernel)
  parts = {}  # The gradients of the blocks, by the first of a block's inputs.
  for start, pairs in uses.items():
    x, upstream = (
        tf.concat([
            tf.reshape(each, [_POINTS**2, workers, -1, each.shape[-1]])
            for each in side], 2) for side in zip(*pairs))
    width, outputs = x.shape[-1], upstream.shape[-1]
    part = _apply_both(_G.T, tf.reshape(
        tf.matmul(x, upstream, transpose_a=True),
        [_POINTS, _POINTS, workers, width * outputs]))
    parts[start] = tf.reshape(
        tf.transpose(part, [2, 0, 1, 3]),
        [workers, _KERNEL, _KERNEL, width, outputs])
  # All blocks have the same shape. One without a use has a gradient of zero.
  some_part = next(iter(parts.values()))
  zeros, block_width = tf.zeros_like(some_part), some_part.shape[-2]
  gradient = tf.concat(
      [parts.get(start, zeros)
       for start in range(0, kernel.shape[-2], block_width)], -2)
  return tf.reshape(gradient, kernel.shape)
