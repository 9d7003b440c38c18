"""The paper's networks (appendix H) in NumPy alone.

These lines need no TensorFlow. They serve programs that must not load it, and
whoever writes the networks down in another library. They read the parameters
of a checkpoint's `arrays.npz`. The array that is called
'discriminator:discriminator/hidden/w' there is the parameter 'hidden/w' here;
`shapes` lists all parameters.

N is the number of pairs of an image and an instruction. Images are float32
[N, H, W, 3] in [0, 1]. Features are float32 [N, h, w, channels], where h is
H / 8 - 2 and w is W / 8 - 2. Instructions are trees, such as
('NorthFrom', ('red', ('circle',)), ('AGENT',)); `agile_tf.agent.instructions`
describes them. In this example `tokens` are those with which the network was
trained, in the same order: in GridLU-Relations
`gridlu.tasks.find('relations').tokens`, else the `tokens` of the world's
`Grammar`. `images` are uint8 images divided by 255, and `trees` are what
`gridlu.language.tree`, or the world's `parse`, makes of their texts.

    with np.load('arrays.npz') as arrays:
      parameters = {name.removeprefix('discriminator:discriminator/'): array
                    for name, array in arrays.items()}
    logits = numpy_networks.discriminator(parameters, tokens, images, trees)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Tree = tuple
# A network's parameters by name. The names do not begin with the network's.
Parameters = Mapping[str, np.ndarray]

_UNITS = 100  # The LSTM and the layer before the last one have so many units.


class PolicyOutput(NamedTuple):
  """What the policy says about N images and instructions."""
  logits: np.ndarray  # float32 [N, actions]
  baseline: np.ndarray  # float32 [N]
  # float32 [N, 2]: that the state does not count as a goal, and that it does.
  reward_logits: np.ndarray


def discriminator(p: Parameters, tokens: Sequence[str], images: np.ndarray,
                  trees: Sequence[Tree]) -> np.ndarray:
  """Computes the logits of D(c, s), float32 [N]."""
  h_maxpool = _features(p, tokens, images, trees).max(axis=(1, 2))
  return (_relu(_linear(h_maxpool, p, 'hidden')) @ p['logit/w'])[:, 0]


def policy(p: Parameters, tokens: Sequence[str], images: np.ndarray,
           trees: Sequence[Tree]) -> PolicyOutput:
  """Computes what the policy's three heads say."""
  h_maxpool = _features(p, tokens, images, trees).max(axis=(1, 2))
  hidden = _relu(_linear(h_maxpool, p, 'hidden'))
  return PolicyOutput(
      logits=_linear(hidden, p, 'logits'),
      baseline=_linear(hidden, p, 'baseline')[:, 0],
      reward_logits=_linear(h_maxpool, p, 'reward_prediction'))


def _features(p: Parameters, tokens: Sequence[str], images: np.ndarray,
              trees: Sequence[Tree]) -> np.ndarray:
  """Computes the features of FiLM-NMN or FiLM-LSTM, whichever this is."""
  p = {name.removeprefix('features/'): value for name, value in p.items()}
  numbers = {token: i for i, token in enumerate(tokens)}
  trees = [_numbered(tree, numbers) for tree in trees]
  if 'layer_1/w' in p:
    return _lstm_features(p, images, trees)
  h_stem = _relu(_patches(images, p['stem/patches/w']) + p['stem/patches/b'])
  h_stem = _relu(_convolve(h_stem, p['stem/neighbours/w'], 'VALID') +
                 p['stem/neighbours/b'])
  h_nmn = _modules(p, h_stem, trees)
  if 'merge/convolution/w' not in p:  # Only the policy has it.
    return h_nmn
  both = np.concatenate([h_nmn, h_stem], axis=-1)
  return _relu(_convolve(both, p['merge/convolution/w'], 'SAME') +
               p['merge/convolution/b'])


def _modules(p: Parameters, h_stem: np.ndarray, trees: Sequence[Tree]
            ) -> np.ndarray:
  """Evaluates the root module of each tree on the scene of the same index.

    m_x(h_l, h_r) = ReLU((1 + gamma_x) * (W_m conv [h_l; h_r]) + beta_x)

  The operands h_l and h_r are what the subtrees evaluate to. The subtree () is
  the scene itself. A second operand that is missing would be zeros, so it adds
  nothing.
  """
  h = h_stem.copy()
  with_module = [i for i, tree in enumerate(trees) if tree]
  if not with_module:
    return h
  scenes, trees = h_stem[with_module], [trees[i] for i in with_module]
  left = _modules(p, scenes, [tree[1] if tree[1:] else () for tree in trees])
  w_left, w_right = np.split(p['film_nmn/w'], 2, axis=2)
  x = _convolve(left, w_left, 'SAME')
  pairs = [i for i, tree in enumerate(trees) if len(tree) == 3]
  if pairs:
    right = _modules(p, scenes[pairs], [trees[i][2] for i in pairs])
    x[pairs] += _convolve(right, w_right, 'SAME')
  roots = [tree[0] for tree in trees]
  h[with_module] = _film_relu(
      x, p['film_nmn/gamma'][roots], p['film_nmn/beta'][roots])
  return h


def _lstm_features(p: Parameters, images: np.ndarray, trees: Sequence[Tree]
                  ) -> np.ndarray:
  """Computes h_5: five convolutions, each modulated by h_LSTM.

    h_k = ReLU((1 + gamma_k) * (W_k conv h_(k-1)) + beta_k)

  h_3 is added to layer 5 before its ReLU.
  """
  h_lstm = _read(p, trees)
  kernels = [p[f'layer_{k}/w'] for k in range(1, 6)]
  ends = np.cumsum([kernel.shape[-1] for kernel in kernels])[:-1]
  gammas, betas = (np.split(_linear(h_lstm, p, name), ends, axis=-1)
                   for name in ('gamma', 'beta'))
  h_1 = _film_relu(_patches(images, kernels[0]), gammas[0], betas[0])
  h_2 = _film_relu(_convolve(h_1, kernels[1], 'VALID'), gammas[1], betas[1])
  h_3 = _film_relu(_convolve(h_2, kernels[2], 'SAME'), gammas[2], betas[2])
  h_4 = _film_relu(_convolve(h_3, kernels[3], 'SAME'), gammas[3], betas[3])
  return _film_relu(
      _convolve(h_4, kernels[4], 'SAME'), gammas[4], betas[4], h_3)


def _read(p: Parameters, trees: Sequence[Tree]) -> np.ndarray:
  """Computes h_LSTM, the state after the last token, float32 [N, 100]."""
  sequences = [_preorder(tree) for tree in trees]
  h, cell = np.zeros([2, len(sequences), _UNITS], np.float32)
  for k in range(max(map(len, sequences), default=0)):
    # The instructions that have a k-th token; the others have been read.
    reading = [i for i, sequence in enumerate(sequences) if len(sequence) > k]
    x = p['instruction_lstm/embeddings'][[sequences[i][k] for i in reading]]
    gates = _linear(
        np.concatenate([x, h[reading]], axis=-1), p, 'instruction_lstm')
    i, j, f, o = np.split(gates, 4, axis=-1)
    # Sonnet's LSTM adds 1 to f, so that at first it forgets little.
    cell[reading] = sigmoid(f + 1) * cell[reading] + sigmoid(i) * np.tanh(j)
    h[reading] = sigmoid(o) * np.tanh(cell[reading])
  return h


def _numbered(tree: Tree, numbers: Mapping[str, int]) -> Tree:
  """Returns a tree of the tokens' numbers; ValueError for an unknown token."""
  if not tree:
    return ()
  if tree[0] not in numbers:
    raise ValueError(f'An instruction has the token {tree[0]!r}; the network '
                     f'knows {", ".join(numbers)}.')
  return numbers[tree[0]], *(_numbered(part, numbers) for part in tree[1:])


def _preorder(tree: Tree) -> list[int]:
  """Returns the numbers of a tree's tokens in the order of the text.

  The scene, (), has none.
  """
  return [*tree[:1], *(x for part in tree[1:] for x in _preorder(part))]


def sigmoid(x: np.ndarray) -> np.ndarray:
  """Computes 1 / (1 + exp(-x)) without an overflow."""
  return np.exp(-np.logaddexp(0, -x))


def _relu(x: np.ndarray) -> np.ndarray:
  return np.maximum(x, 0)


def _linear(x: np.ndarray, p: Parameters, name: str) -> np.ndarray:
  return x @ p[f'{name}/w'] + p[f'{name}/b']


def _film_relu(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray,
               residual: np.ndarray | float = 0.0) -> np.ndarray:
  """Computes ReLU((1 + gamma) x + beta + residual).

  gamma and beta are float32 [N, channels].
  """
  return _relu(
      (1 + gamma)[:, None, None] * x + beta[:, None, None] + residual)


def _patches(images: np.ndarray, w: np.ndarray) -> np.ndarray:
  """Cross-correlates with a kernel [k, k, 3, channels] in strides of k."""
  k = len(w)
  n, height, width, colours = images.shape
  x = images[:, :height // k * k, :width // k * k].reshape(
      n, height // k, k, width // k, k, colours)
  return np.tensordot(x, w, ([2, 4, 5], [0, 1, 2]))


def _convolve(x: np.ndarray, w: np.ndarray, padding: str) -> np.ndarray:
  """Cross-correlates features with a kernel [3, 3, inputs, channels]."""
  if padding == 'SAME':
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
  windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], (1, 2))
  return np.tensordot(windows, w, ([4, 5, 3], [0, 1, 2]))


def shapes(model: str, network: str, num_tokens: int, num_actions: int
          ) -> dict[str, tuple[int, ...]]:
  """Returns the shape of each parameter by its name.

  Args:
    model: 'nmn' for FiLM-NMN or 'lstm' for FiLM-LSTM.
    network: 'discriminator' or 'policy'.
    num_tokens: The number of tokens of the instructions.
    num_actions: The number of actions.
  """
  if model == 'nmn':
    features = {
        'stem/patches/w': (8, 8, 3, 16), 'stem/patches/b': (16,),
        'stem/neighbours/w': (3, 3, 16, 64), 'stem/neighbours/b': (64,),
        'film_nmn/w': (3, 3, 128, 64), 'film_nmn/gamma': (num_tokens, 64),
        'film_nmn/beta': (num_tokens, 64)}
    if network == 'policy':
      features |= {'merge/convolution/w': (3, 3, 128, 64),
                   'merge/convolution/b': (64,)}
  else:
    # This is the width in which Sonnet embeds a token by default.
    embedded = round(6 * num_tokens**0.25)
    features = {
        'instruction_lstm/embeddings': (num_tokens, embedded),
        'instruction_lstm/w': (embedded + _UNITS, 4 * _UNITS),
        'instruction_lstm/b': (4 * _UNITS,),
        'layer_1/w': (8, 8, 3, 16), 'layer_2/w': (3, 3, 16, 32),
        'layer_3/w': (3, 3, 32, 64), 'layer_4/w': (3, 3, 64, 64),
        'layer_5/w': (3, 3, 64, 64)}
    # gamma and beta have a number for each channel of the five layers.
    channels = 16 + 32 + 64 + 64 + 64
    for name in 'gamma', 'beta':
      features |= {f'{name}/w': (_UNITS, channels), f'{name}/b': (channels,)}
  heads = {'hidden/w': (64, _UNITS), 'hidden/b': (_UNITS,)}
  if network == 'discriminator':
    heads['logit/w'] = (_UNITS, 1)
  else:
    for name, inputs, outputs in (
        ('logits', _UNITS, num_actions), ('baseline', _UNITS, 1),
        ('reward_prediction', 64, 2)):
      heads |= {f'{name}/w': (inputs, outputs), f'{name}/b': (outputs,)}
  return {
      f'features/{name}': shape for name, shape in features.items()} | heads
