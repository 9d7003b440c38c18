"""The policy and the discriminator, as appendix H has them.

Both take images, float32 [B, H, W, 3] in [0, 1], and instructions of any
grammar, int32 [B, slots] (`Grammar.encode`); B is the size of a batch. The
FiLM-NMN mirrors the tree of the instruction, and the FiLM-LSTM reads it as a
sequence of tokens.

Every bias starts at zero. Every weight starts from a normal distribution that
is truncated at two sigma. As in the paper, sigma is by default
1 / sqrt(fan_in), as Sonnet has it; `Initialization` can change this.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from agile_tf.agent import functional
from agile_tf.agent import image_sizes
from agile_tf.agent import instructions
from agile_tf.agent import worlds

MODELS = ('nmn', 'lstm')

CHANNELS = 64  # Those of h_stem, of h_nmn and of every module.
HIDDEN_UNITS = 100
LSTM_UNITS = 100


class Initialization(NamedTuple):
  """Weights start truncated normal, with sigma = gain / sqrt(fan_in).

  The defaults are the paper's.
  """
  gain: float = 1.0  # The gain of each layer before a ReLU.
  logits_gain: float = 1.0  # The gain of the policy's last layer.
  module_inputs: int = 2 * CHANNELS  # W_m's input channels, for its fan_in.


PAPER = Initialization()
# This is the initialisation of He et al., 2015, which the paper does not use.
# Weights before a ReLU have the variance 2 / fan_in. The fan_in of W_m counts
# 64 channels, those that a module with one operand sees. A standard normal
# truncated at 2 has the deviation 0.88, by which we divide. Features get so
# large that, with a gain of 1 in its last layer, an untrained policy would walk
# to one wall, and D would recognise its states by the agent's place. A small
# gain makes the first policy uniform.
HE = Initialization(
    gain=2**0.5 / 0.87962566, logits_gain=0.01, module_inputs=CHANNELS)


class _Normal(snt.initializers.Initializer):
  """Draws weights [..., units]; fan_in is the number of a unit's inputs."""

  def __init__(self, gain: float = 1.0):
    self._gain = gain

  def __call__(self, shape, dtype):
    sigma = self._gain * int(np.prod(shape[:-1]))**-0.5
    return snt.initializers.TruncatedNormal(stddev=sigma)(shape, dtype)


def _weights(shape: list[int], name: str, gain: float = 1.0) -> tf.Variable:
  """Makes weights [..., units], which `_Normal` draws."""
  return tf.Variable(_Normal(gain)(shape, tf.float32), name=name)


def _rows(table: tf.Variable, codes: tf.Tensor) -> tf.Tensor:
  """Returns the row of each code in a table of tokens.

  Codes are int32 [...]. One that is no token gets a row without a meaning.
  """
  return tf.gather(table, tf.maximum(codes - 1, 0))


class Stem(snt.Module):
  """The convnet that looks at the image alone, without the instruction.

  GridLU's 56x56x3 becomes 7x7x16 and then 5x5x64.
  """

  def __init__(self, gain: float):
    super().__init__()
    self._patches = snt.Conv2D(
        16, image_sizes.PATCH, stride=image_sizes.PATCH, padding='VALID',
        w_init=_Normal(gain), name='patches')
    self._neighbours = snt.Conv2D(
        CHANNELS, 3, padding='VALID', w_init=_Normal(gain), name='neighbours')

  def __call__(self, images: tf.Tensor) -> tf.Tensor:
    """Computes h_stem, float32 [B, H / 8 - 2, W / 8 - 2, 64]."""
    return tf.nn.relu(self._neighbours(tf.nn.relu(self._patches(images))))


class FilmNmn(snt.Module):
  """A neural module network whose modules differ in their FiLM vectors alone.

    m_x(h_l, h_r) = ReLU((1 + gamma_x) * (W_m conv [h_l; h_r]) + beta_x)

  W_m is 3x3, 2 * 64 -> 64, without bias, and shared by all modules. A module
  with one operand has zeros as its second. gamma and beta are tables with a row
  for each token. Their fan_in is the number of tokens, as it was in Sonnet's
  embedding layer until November 2018.
  """

  def __init__(self, grammar: instructions.Grammar,
               initialization: Initialization):
    super().__init__()
    self._slots = grammar.slots
    self._num_tokens = len(grammar.tokens)
    self._initialization = initialization

  @snt.once
  def _initialize(self) -> None:
    initialization = self._initialization
    # `_Normal` divides by the root of 9 * 2 * CHANNELS, which the second factor
    # turns into 9 * `module_inputs`.
    gain = initialization.gain * (
        2 * CHANNELS / initialization.module_inputs)**0.5
    self._w = _weights([3, 3, 2 * CHANNELS, CHANNELS], 'w', gain)
    self._gamma, self._beta = (
        _weights([self._num_tokens, CHANNELS], name)
        for name in ('gamma', 'beta'))

  def __call__(self, h_stem: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_nmn, the output of each instruction's root module."""
    self._initialize()
    outputs: list[tf.Tensor] = []
    for slot, code in zip(self._slots, tf.unstack(codes, axis=1)):
      left = h_stem if slot.left < 0 else outputs[slot.left]
      right = tf.zeros_like(h_stem) if slot.right < 0 else outputs[slot.right]
      x = tf.nn.conv2d(tf.concat([left, right], -1), self._w, 1, 'SAME')
      gamma, beta = (_rows(table, code)[:, None, None]
                     for table in (self._gamma, self._beta))
      h = tf.nn.relu((1 + gamma) * x + beta)
      code = code[:, None, None, None]
      h = tf.where(code == instructions.SCENE, h_stem, h)
      outputs.append(tf.where(code == instructions.NOTHING, 0.0, h))
    return outputs[-1]


class Merge(snt.Module):
  """The policy's extra layer: ReLU(W_merge conv [h_nmn; h_stem] + b_merge)."""

  def __init__(self, gain: float):
    super().__init__()
    self._convolution = snt.Conv2D(
        CHANNELS, 3, w_init=_Normal(gain), name='convolution')

  def __call__(self, h_nmn: tf.Tensor, h_stem: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(self._convolution(tf.concat([h_nmn, h_stem], -1)))


class NmnFeatures(snt.Module):
  """The stem, the FiLM-NMN on it, and in the policy the merge layer."""

  def __init__(self, grammar: instructions.Grammar, merges: bool,
               initialization: Initialization = PAPER,
               make_stem: Callable[[], snt.Module] | None = None):
    """Makes the modules.

    `make_stem` makes another stem, a module from images to features, float32
    [B, h, w, 64].
    """
    super().__init__(name='features')
    self._stem = make_stem() if make_stem else Stem(initialization.gain)
    self._nmn = FilmNmn(grammar, initialization)
    self._merge = Merge(initialization.gain) if merges else None

  def __call__(self, images: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_nmn or h_merge, float32 [B, h, w, 64], as large as h_stem."""
    h_stem = self._stem(images)
    h_nmn = self._nmn(h_stem, codes)
    return h_nmn if self._merge is None else self._merge(h_nmn, h_stem)


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
    self._num_tokens = len(grammar.tokens)

  @snt.once
  def _initialize(self) -> None:
    width = round(6 * self._num_tokens**0.25)
    self._embeddings = _weights([self._num_tokens, width], 'embeddings')
    self._w = _weights([width + LSTM_UNITS, 4 * LSTM_UNITS], 'w')
    self._b = tf.Variable(tf.zeros([4 * LSTM_UNITS]), name='b')

  def __call__(self, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_LSTM, the state after the last token, float32 [B, 100]."""
    self._initialize()
    h = c = tf.zeros([tf.shape(codes)[0], LSTM_UNITS])
    for slot in self._order:
      code = codes[:, slot]
      x = _rows(self._embeddings, code)
      gates = tf.concat([x, h], -1) @ self._w + self._b
      i, j, f, o = tf.split(gates, 4, -1)
      is_token = code[:, None] > 0
      c = tf.where(
          is_token, tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(j), c)
      h = tf.where(is_token, tf.sigmoid(o) * tf.tanh(c), h)
    return h


class _Layer(NamedTuple):
  """A convolution of the FiLM-LSTM."""
  channels: int
  size: int
  stride: int
  padding: str


LSTM_LAYERS = (
    _Layer(16, image_sizes.PATCH, image_sizes.PATCH, 'VALID'),
    _Layer(32, 3, 1, 'VALID'),
    *3 * [_Layer(CHANNELS, 3, 1, 'SAME')])


class LstmFeatures(snt.Module):
  """A convnet of five layers, each modulated by what an LSTM has read.

    h_k = ReLU((1 + gamma_k) * (W_k conv h_(k-1)) + beta_k)

  gamma_k and beta_k are linear in h_LSTM, h_0 is the image, and h_3 is added to
  layer 5 before its ReLU. W_k has no bias of its own.
  """

  def __init__(self, grammar: instructions.Grammar,
               initialization: Initialization):
    super().__init__(name='features')
    self._lstm = InstructionLstm(grammar)
    self._gain = initialization.gain
    self._channels = [layer.channels for layer in LSTM_LAYERS]
    width = sum(self._channels)
    self._gamma = snt.Linear(width, name='gamma')
    self._beta = snt.Linear(width, name='beta')

  @snt.once
  def _initialize(self) -> None:
    inputs = [3, *self._channels]
    self._kernels = [
        _weights([layer.size, layer.size, inputs[k - 1], layer.channels],
                 f'layer_{k}/w', self._gain)
        for k, layer in enumerate(LSTM_LAYERS, 1)]

  def __call__(self, images: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Computes h_5, float32 [B, H / 8 - 2, W / 8 - 2, 64]."""
    h_lstm = self._lstm(codes)
    self._initialize()
    gammas, betas = (
        tf.split(film(h_lstm)[:, None, None], self._channels, -1)
        for film in (self._gamma, self._beta))
    h = [images]
    for k, (w, layer, gamma, beta) in enumerate(
        zip(self._kernels, LSTM_LAYERS, gammas, betas), 1):
      x = tf.nn.conv2d(h[k - 1], w, layer.stride, layer.padding)
      x = (1 + gamma) * x + beta
      if k == 5:
        x += h[3]
      h.append(tf.nn.relu(x))
    return h[5]


class PolicyOutput(NamedTuple):
  """The policy network's output for B pairs of image and instruction."""
  logits: tf.Tensor  # float32 [B, actions]
  baseline: tf.Tensor  # float32 [B]
  # float32 [B, 2]: that the state does not count as a goal, and that it does.
  reward_logits: tf.Tensor


class PolicyNetwork(snt.Module):
  """pi(c, s) with the heads of the baseline and of reward prediction.

  The baseline's head takes the input of the softmax layer, and that of reward
  prediction takes the output of the max-pooling. The losses of both heads also
  train the shared layers.
  """

  def __init__(self, make_features: Callable[[], snt.Module],
               num_actions: int, initialization: Initialization = PAPER):
    """`make_features` makes the part that sees and reads: see `NmnFeatures`."""
    super().__init__(name='policy')
    self._features = make_features()
    self._hidden = snt.Linear(
        HIDDEN_UNITS, w_init=_Normal(initialization.gain), name='hidden')
    self._logits = snt.Linear(
        num_actions, w_init=_Normal(initialization.logits_gain), name='logits')
    self._baseline = snt.Linear(1, name='baseline')
    self._reward_prediction = snt.Linear(2, name='reward_prediction')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor) -> PolicyOutput:
    h_maxpool = tf.reduce_max(self._features(images, codes), [1, 2])
    hidden = tf.nn.relu(self._hidden(h_maxpool))
    return PolicyOutput(
        logits=self._logits(hidden),
        baseline=tf.squeeze(self._baseline(hidden), -1),
        reward_logits=self._reward_prediction(h_maxpool))


class Discriminator(snt.Module):
  """D(c, s), the reward model, as logits [B]. Its last layer has no bias."""

  def __init__(self, make_features: Callable[[], snt.Module],
               initialization: Initialization = PAPER):
    """`make_features` makes the part that sees and reads: see `NmnFeatures`."""
    super().__init__()
    self._features = make_features()
    self._hidden = snt.Linear(
        HIDDEN_UNITS, w_init=_Normal(initialization.gain), name='hidden')
    self._logit = snt.Linear(1, with_bias=False, name='logit')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    h_maxpool = tf.reduce_max(self._features(images, codes), [1, 2])
    return tf.squeeze(self._logit(tf.nn.relu(self._hidden(h_maxpool))), -1)


class Pair(NamedTuple):
  """The policy and the discriminator; a user's function returns such a pair.

  Both modules are called with images, float32 [B, H, W, 3] in [0, 1], and
  instructions, int32 [B, slots].
  """
  policy: snt.Module  # It returns a `PolicyOutput`.
  discriminator: snt.Module  # It returns logits, float32 [B].
  # The last parts of the names of tables, whose rows are looked up. A limit on
  # column norms leaves them alone.
  tables: tuple[str, ...] = ('embeddings',)
  # The paths of the discriminator's modules, such as 'features', whose
  # parameters the policy may take over for its own modules of the same path.
  lent: tuple[str, ...] = ()


def paper(model: str, world: worlds.World,
          initialization: Initialization = PAPER) -> Pair:
  """Makes the modules of appendix H for a world."""
  def features(merges: bool) -> snt.Module:
    if model == 'nmn':
      return NmnFeatures(world.grammar, merges, initialization)
    if model == 'lstm':
      return LstmFeatures(world.grammar, initialization)
    raise ValueError(f'Model {model!r}: expected one of {", ".join(MODELS)}.')

  return Pair(
      PolicyNetwork(
          lambda: features(merges=True), world.num_actions, initialization),
      Discriminator(lambda: features(merges=False), initialization),
      tables=('gamma', 'beta', 'embeddings'), lent=('features',))


def functions(make_modules: Callable[[], Pair], world: worlds.World
             ) -> tuple[functional.Network, functional.Network]:
  """Makes pi and D, as functions of their parameters, from pairs of modules."""
  # Only the names in this pair are used. Each network makes modules of its own.
  named = make_modules()
  return (
      functional.ModuleNetwork(
          lambda: make_modules().policy, world, named.tables, named.lent),
      functional.ModuleNetwork(
          lambda: make_modules().discriminator, world, named.tables,
          named.lent))


def make(model: str, world: worlds.World,
         initialization: Initialization = PAPER
        ) -> tuple[functional.Network, functional.Network]:
  """Makes the paper's pi and D for a world's images and instructions."""
  return functions(lambda: paper(model, world, initialization), world)
