"""The FiLM-NMN: from an image and an instruction to features (appendix G)."""

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

from agile_tf import instructions

CHANNELS = 64


class Stem(snt.Module):
  """The convnet that looks at the image before the instruction is known.

  8x8 convolution with stride 8, 16 channels, then 3x3, 64 channels, both
  VALID with bias and ReLU: GridLU's 56x56x3 becomes 7x7x16 and 5x5x64.
  """

  def __init__(self, name: str = 'stem'):
    super().__init__(name=name)
    self._patches = snt.Conv2D(16, 8, stride=8, padding='VALID', name='patches')
    self._neighbours = snt.Conv2D(
        CHANNELS, 3, padding='VALID', name='neighbours')

  def __call__(self, images: tf.Tensor) -> tf.Tensor:
    """Computes h_stem.

    Args:
      images: float32 [B, H, W, 3] in [0, 1].

    Returns:
      float32 [B, H / 8 - 2, W / 8 - 2, 64].
    """
    return tf.nn.relu(self._neighbours(tf.nn.relu(self._patches(images))))


class FilmNmn(snt.Module):
  """A neural module network whose modules differ in their FiLM vectors alone.

    m_x(h_l, h_r) = ReLU((1 + gamma_x) * (W_m conv [h_l; h_r]) + beta_x)

  W_m is 3x3, 2 * 64 -> 64, SAME, without bias, and shared by all modules. A
  module with one operand multiplies W_m's second half with zeros; that half
  is left out instead, and modules that take the scene share its convolution.
  Both are exact.

  gamma and beta are tables with a row a token, truncated normal with
  sigma = 1 / sqrt(number of tokens), which is what the embedding layer of the
  paper's time did.
  """

  def __init__(self, grammar: instructions.Grammar, name: str = 'film_nmn'):
    super().__init__(name=name)
    self._slots = grammar.slots
    num_tokens = len(grammar.tokens)
    kernel = snt.initializers.TruncatedNormal(
        stddev=(3 * 3 * 2 * CHANNELS)**-0.5)
    film = snt.initializers.TruncatedNormal(stddev=num_tokens**-0.5)
    self._w = tf.Variable(
        kernel([3, 3, 2 * CHANNELS, CHANNELS], tf.float32), name='w')
    self._gamma = tf.Variable(
        film([num_tokens, CHANNELS], tf.float32), name='gamma')
    self._beta = tf.Variable(
        film([num_tokens, CHANNELS], tf.float32), name='beta')

  def __call__(self, h_stem: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_nmn, the output of each instruction's root module.

    Args:
      h_stem: float32 [B, h, w, 64].
      codes: int32 [B, slots], rows of `Grammar.encode`.

    Returns:
      float32 [B, h, w, 64].
    """
    w = tf.convert_to_tensor(self._w)
    w_left, w_right = w[:, :, :CHANNELS], w[:, :, CHANNELS:]
    # Selecting a row by a product keeps the gradient a product too.
    tokens = tf.one_hot(codes - 1, self._gamma.shape[0])  # [B, slots, tokens]
    gamma = tf.tensordot(tokens, self._gamma, 1)[:, :, None, None]
    beta = tf.tensordot(tokens, self._beta, 1)[:, :, None, None]
    codes = codes[:, :, None, None, None]
    leaf = _convolve(h_stem, w_left)
    outputs: list[tf.Tensor] = []
    for i, slot in enumerate(self._slots):
      if slot.right < 0:
        x = leaf if slot.left < 0 else _convolve(outputs[slot.left], w_left)
      elif slot.left < 0:
        x = leaf + _convolve(outputs[slot.right], w_right)
      else:
        x = _convolve(
            tf.concat([outputs[slot.left], outputs[slot.right]], -1), w)
      x = tf.nn.relu((1 + gamma[:, i]) * x + beta[:, i])
      code = codes[:, i]
      x = tf.where(code == instructions.SCENE, h_stem, x)
      outputs.append(tf.where(code == instructions.NOTHING, 0.0, x))
    return outputs[-1]


def _convolve(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
  return tf.nn.conv2d(x, w, strides=1, padding='SAME')


class Merge(snt.Module):
  """The policy's extra layer: ReLU(W_merge conv [h_nmn; h_stem] + b_merge)."""

  def __init__(self, name: str = 'merge'):
    super().__init__(name=name)
    self._convolution = snt.Conv2D(CHANNELS, 3, name='convolution')

  def __call__(self, features: Sequence[tf.Tensor]) -> tf.Tensor:
    """Args: two float32 [B, h, w, 64]. Returns: float32 [B, h, w, 64]."""
    return tf.nn.relu(self._convolution(tf.concat(list(features), -1)))
