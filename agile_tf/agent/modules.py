"""From an image and an instruction to features (appendix H).

`NmnFeatures` mirrors the tree of the instruction, and `LstmFeatures` reads it
as a sequence of tokens. Both take images, float32 [B, H, W, 3] in [0, 1], and
instructions of any grammar, int32 [B, slots] (`Grammar.encode`). Features are
space-major, float32 [h, w, B, channels]; how they are convolved stays behind
`convolve`, an `agile_tf.agent.fast.convolutions.Convolver`.
"""

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from agile_tf.agent import instructions
from agile_tf.agent.fast import convolutions
from agile_tf.agent.fast import rows

CHANNELS = 64  # Of all features.
LSTM_UNITS = 100

_PATCH_CHANNELS, _PATCH_SIZE = 16, 8
# The FiLM-LSTM's layers after the first: channels and padding.
_LSTM_LAYERS = (
    (32, 'VALID'), (CHANNELS, 'SAME'), (CHANNELS, 'SAME'), (CHANNELS, 'SAME'))


class Initialization(NamedTuple):
  """How weights start: truncated normal, with sigma = gain / sqrt(fan_in).

  The defaults are the paper's (appendix H).
  """
  gain: float = 1.0  # Of the layers before a ReLU; 1 for others.
  logits_gain: float = 1.0  # Of the policy's last layer.
  module_inputs: int = 2 * CHANNELS  # What counts as W_m's input channels.


def _normal(shape: list[int], fan_in: int, gain: float = 1.0) -> tf.Tensor:
  """Draws from a truncated normal with sigma = gain / sqrt(fan_in)."""
  return snt.initializers.TruncatedNormal(
      stddev=gain * fan_in**-0.5)(shape, tf.float32)


def _token_table(num_tokens: int, width: int, name: str) -> tf.Variable:
  """Makes a row for each token; its fan_in is the number of tokens.

  So did Sonnet's embedding layer until November 2018.
  """
  return tf.Variable(_normal([num_tokens, width], num_tokens), name=name)


def _kernel(inputs: int, channels: int, size: int, gain: float,
            name: str = 'w', counted: int | None = None) -> tf.Variable:
  """Makes a kernel, float32 [size, size, inputs, channels].

  Fan_in counts `counted` of its input channels; by default all.
  """
  return tf.Variable(
      _normal([size, size, inputs, channels],
              size * size * (counted or inputs), gain), name=name)


class Linear(snt.Module):
  """A layer x w + b; sigma of w is gain / sqrt(fan_in), b starts at zeros."""

  def __init__(self, inputs: int, units: int, with_bias: bool = True,
               gain: float = 1.0, name: str = 'linear'):
    super().__init__(name=name)
    self._w = tf.Variable(_normal([inputs, units], inputs, gain), name='w')
    self._b = tf.Variable(tf.zeros([units]), name='b') if with_bias else None

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    x = rows.product(x, tf.convert_to_tensor(self._w))
    if self._b is None:
      return x
    return rows.add(x, tf.convert_to_tensor(self._b))


class Convolution(snt.Module):
  """A kernel and a bias; sigma of the kernel is gain / sqrt(fan_in)."""

  def __init__(self, inputs: int, channels: int, size: int, gain: float,
               name: str = 'convolution'):
    super().__init__(name=name)
    self._w = _kernel(inputs, channels, size, gain)
    self._b = tf.Variable(tf.zeros([channels]), name='b')

  def parameters(self) -> tuple[tf.Tensor, tf.Tensor]:
    """The kernel [size, size, inputs, channels] and the bias [channels]."""
    return tf.convert_to_tensor(self._w), tf.convert_to_tensor(self._b)


class Stem(snt.Module):
  """The convnet that looks at the image before the instruction is known.

  8x8 convolution with stride 8, 16 channels, then 3x3, 64 channels, both
  VALID with bias and ReLU: GridLU's 56x56x3 becomes 7x7x16 and 5x5x64.
  """

  def __init__(self, gain: float):
    super().__init__()
    self._patches = Convolution(
        3, _PATCH_CHANNELS, _PATCH_SIZE, gain, name='patches')
    self._neighbours = Convolution(
        _PATCH_CHANNELS, CHANNELS, 3, gain, name='neighbours')

  def __call__(self, images: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    """Computes h_stem, float32 [H / 8 - 2, W / 8 - 2, B, 64]."""
    kernel, bias = self._patches.parameters()
    patches = tf.nn.relu(rows.add(convolve.patches(images, kernel), bias))
    kernel, bias = self._neighbours.parameters()
    return tf.nn.relu(rows.add(convolve([patches], kernel, 'VALID'), bias))


class FilmNmn(snt.Module):
  """A neural module network whose modules differ in their FiLM vectors alone.

    m_x(h_l, h_r) = ReLU((1 + gamma_x) * (W_m conv [h_l; h_r]) + beta_x)

  W_m is 3x3, 2 * 64 -> 64, SAME, without bias, and shared by all modules. A
  module with one operand multiplies W_m's second half with zeros; that half
  is left out instead. The modules of the lowest level, which all take the
  scene, share its convolution. Both are exact. gamma and beta are tables with a
  row for each token.
  """

  def __init__(self, grammar: instructions.Grammar,
               initialization: Initialization):
    super().__init__()
    self._slots = grammar.slots
    self._num_tokens = num_tokens = len(grammar.tokens)
    self._w = _kernel(
        2 * CHANNELS, CHANNELS, 3, initialization.gain,
        counted=initialization.module_inputs)
    self._gamma = _token_table(num_tokens, CHANNELS, 'gamma')
    self._beta = _token_table(num_tokens, CHANNELS, 'beta')

  def __call__(self, h_stem: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    """Computes h_nmn, the output of each instruction's root module."""
    w = tf.convert_to_tensor(self._w)
    # Selecting a row by a product keeps the gradient a product too.
    tokens = tf.one_hot(codes - 1, self._num_tokens)  # [B, slots, tokens]
    gammas, betas = (
        [rows.product(token, tf.convert_to_tensor(table))
         for token in tf.unstack(tokens, axis=1)]
        for table in (self._gamma, self._beta))
    leaf = convolve([h_stem, None], w)
    outputs: list[tf.Tensor] = []
    for i, slot in enumerate(self._slots):
      if slot.right < 0:
        x = leaf if slot.left < 0 else convolve([outputs[slot.left], None], w)
      elif slot.left < 0:
        x = leaf + convolve([None, outputs[slot.right]], w)
      else:
        x = convolve([outputs[slot.left], outputs[slot.right]], w)
      x = tf.nn.relu(rows.film(x, gammas[i], betas[i]))
      code = codes[:, i, None]
      x = tf.where(code == instructions.SCENE, h_stem, x)
      outputs.append(tf.where(code == instructions.NOTHING, 0.0, x))
    return outputs[-1]


class Merge(snt.Module):
  """The policy's extra layer: ReLU(W_merge conv [h_nmn; h_stem] + b_merge)."""

  def __init__(self, gain: float):
    super().__init__()
    self._convolution = Convolution(2 * CHANNELS, CHANNELS, 3, gain)

  def __call__(self, h_nmn: tf.Tensor, h_stem: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    kernel, bias = self._convolution.parameters()
    return tf.nn.relu(rows.add(convolve([h_nmn, h_stem], kernel), bias))


class NmnFeatures(snt.Module):
  """The stem, the FiLM-NMN on it, and in the policy the merge layer."""

  def __init__(self, grammar: instructions.Grammar, merges: bool,
               initialization: Initialization):
    super().__init__(name='features')
    self._stem = Stem(initialization.gain)
    self._nmn = FilmNmn(grammar, initialization)
    self._merge = Merge(initialization.gain) if merges else None

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    """Computes h_nmn or h_merge, float32 [H / 8 - 2, W / 8 - 2, B, 64]."""
    h_stem = self._stem(images, convolve)
    h_nmn = self._nmn(h_stem, codes, convolve)
    if self._merge is None:
      return h_nmn
    return self._merge(h_nmn, h_stem, convolve)


class InstructionLstm(snt.Module):
  """An LSTM that reads an instruction's tokens in pre-order.

  The tree's brackets and SCENE are left out. A slot without a token leaves the
  state as it is. A token is embedded in round(6 V^0.25) numbers, where V is the
  size of the vocabulary: the default of Sonnet's Embed layer.

    i, j, f, o = [x; h] w + b
    c <- sigmoid(f + 1) c + sigmoid(i) tanh(j)
    h <- sigmoid(o) tanh(c)

  One matrix holds the weights of all gates for input and state, as Sonnet 1 had
  it, so that a unit's incoming weights are one column.
  """

  def __init__(self, grammar: instructions.Grammar):
    super().__init__()
    self._order = grammar.preorder
    self._num_tokens = num_tokens = len(grammar.tokens)
    width = round(6 * num_tokens**0.25)
    inputs = width + LSTM_UNITS
    self._embeddings = _token_table(num_tokens, width, 'embeddings')
    self._w = tf.Variable(_normal([inputs, 4 * LSTM_UNITS], inputs), name='w')
    self._b = tf.Variable(tf.zeros([4 * LSTM_UNITS]), name='b')

  def __call__(self, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_LSTM, the state after the last token, float32 [B, 100]."""
    tokens = tf.one_hot(codes - 1, self._num_tokens)
    embedded = rows.product(tokens, tf.convert_to_tensor(self._embeddings))
    w, b = (tf.convert_to_tensor(x) for x in (self._w, self._b))
    h = cell = tf.zeros([tf.shape(codes)[0], LSTM_UNITS])
    for slot in self._order:
      gates = rows.add(
          rows.product(tf.concat([embedded[:, slot], h], -1), w), b)
      i, j, f, o = tf.split(gates, 4, -1)
      is_token = codes[:, slot, None] > 0
      cell = tf.where(
          is_token, tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(j), cell)
      h = tf.where(is_token, tf.sigmoid(o) * tf.tanh(cell), h)
    return h


class LstmFeatures(snt.Module):
  """A convnet whose five layers an LSTM's view of the instruction conditions.

    h_k = ReLU((1 + gamma_k) * (W_k conv h_(k-1)) + beta_k)

  gamma_k and beta_k are linear in h_LSTM, h_0 is the image, and h_3 is added to
  layer 5 before its ReLU. W_k has no bias of its own.
  """

  def __init__(self, grammar: instructions.Grammar,
               initialization: Initialization):
    super().__init__(name='features')
    self._lstm = InstructionLstm(grammar)
    channels = [_PATCH_CHANNELS] + [n for n, _ in _LSTM_LAYERS]
    sizes = [_PATCH_SIZE] + [3] * len(_LSTM_LAYERS)
    self._kernels = [
        _kernel(inputs, outputs, size, initialization.gain, f'layer_{layer}/w')
        for layer, (inputs, outputs, size) in enumerate(
            zip([3] + channels, channels, sizes), 1)]
    self._channels = channels
    self._gamma = Linear(LSTM_UNITS, sum(channels), name='gamma')
    self._beta = Linear(LSTM_UNITS, sum(channels), name='beta')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    """Computes h_5, float32 [H / 8 - 2, W / 8 - 2, B, 64]."""
    h_lstm = self._lstm(codes)
    gammas, betas = (
        tf.split(film(h_lstm), self._channels, -1)
        for film in (self._gamma, self._beta))
    patches, *kernels = (tf.convert_to_tensor(w) for w in self._kernels)
    x = convolve.patches(images, patches)
    h = {1: tf.nn.relu(rows.film(x, gammas[0], betas[0]))}
    for k, (kernel, (_, padding)) in enumerate(zip(kernels, _LSTM_LAYERS), 2):
      x = convolve([h[k - 1]], kernel, padding)
      x = rows.film(x, gammas[k - 1], betas[k - 1])
      h[k] = tf.nn.relu(x + h[3] if k == 5 else x)
    return h[5]
