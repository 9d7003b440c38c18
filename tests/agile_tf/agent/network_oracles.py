"""Appendix H, term by term: a slow oracle, in NumPy or in plain TensorFlow.

It knows nothing of slots, codes or batches: an instruction is its tree, an
image is one image, and every module convolves the whole W_m with the
concatenation of two operands, zeros where there is one. Arrays give arrays.
Tensors give tensors, for TensorFlow's own gradients.
"""

import numpy as np
import tensorflow as tf


def _relu(x):
  return tf.nn.relu(x) if tf.is_tensor(x) else np.maximum(x, 0)


def _tanh(x):
  return tf.tanh(x) if tf.is_tensor(x) else np.tanh(x)


def _sigmoid(x):
  return tf.sigmoid(x) if tf.is_tensor(x) else 1 / (1 + np.exp(-x))


def _concatenate(parts):
  concatenate = tf.concat if any(map(tf.is_tensor, parts)) else np.concatenate
  return concatenate(parts, -1)


def convolve(x, w, stride=1, same=True):
  """Cross-correlates an image [H, W, C] with a kernel [k, k, C, D]."""
  if tf.is_tensor(w):
    return tf.nn.conv2d(
        tf.convert_to_tensor(x)[None], w, stride, 'SAME' if same else 'VALID'
    )[0]
  size = w.shape[0]
  if same:
    margin = (size - 1) // 2
    x = np.pad(x, [(margin, margin)] * 2 + [(0, 0)])
  height, width = ((n - size) // stride + 1 for n in x.shape[:2])
  return sum(
      x[i:i + stride * height:stride, j:j + stride * width:stride] @ w[i, j]
      for i in range(size) for j in range(size))


def nmn(h, tree, tokens, w, gamma, beta):
  """Evaluates a tree on h_stem [h, w, 64]; () is the scene."""
  if not tree:
    return h
  left = nmn(h, tree[1] if len(tree) > 1 else (), tokens, w, gamma, beta)
  right = np.zeros(h.shape, h.dtype.name)
  if len(tree) > 2:
    right = nmn(h, tree[2], tokens, w, gamma, beta)
  x = tokens.index(tree[0])
  return _relu(
      (1 + gamma[x]) * convolve(_concatenate([left, right]), w) + beta[x])


def _stem(image, p):
  """h_stem of one image; `p` has parameters by their short names."""
  h = _relu(convolve(image, p['stem/patches/w'], 8, same=False) +
            p['stem/patches/b'])
  return _relu(convolve(h, p['stem/neighbours/w'], same=False) +
               p['stem/neighbours/b'])


def _nmn_features(image, tree, tokens, p):
  """h_merge where there is a merge layer, else h_nmn."""
  h_stem = _stem(image, p)
  h_nmn = nmn(h_stem, tree, tokens,
              *(p[f'film_nmn/{name}'] for name in ('w', 'gamma', 'beta')))
  if 'merge/convolution/w' not in p:
    return h_nmn
  return _relu(
      convolve(_concatenate([h_nmn, h_stem]), p['merge/convolution/w']) +
      p['merge/convolution/b'])


def preorder(tree):
  """A tree's tokens in the order of the text."""
  return [tree[0]] + [
      token for operand in tree[1:] if operand for token in preorder(operand)]


def _lstm_features(image, tree, tokens, p):
  """h_5 of the FiLM-LSTM."""
  h = cell = np.zeros([1, 100])
  for token in preorder(tree):
    x = p['instruction_lstm/embeddings'][tokens.index(token)]
    gates = (_concatenate([x[None], h]) @ p['instruction_lstm/w'] +
             p['instruction_lstm/b'])
    i, j, f, o = (gates[:, 100 * k:100 * (k + 1)] for k in range(4))
    cell = _sigmoid(f + 1) * cell + _sigmoid(i) * _tanh(j)
    h = _sigmoid(o) * _tanh(cell)
  gamma, beta = (h @ p[f'{name}/w'] + p[f'{name}/b']
                 for name in ('gamma', 'beta'))
  first = 0

  def film(x):
    nonlocal first
    these = slice(first, first + x.shape[-1])
    first += x.shape[-1]
    return (1 + gamma[0, these]) * x + beta[0, these]

  h1 = _relu(film(convolve(image, p['layer_1/w'], 8, same=False)))
  h2 = _relu(film(convolve(h1, p['layer_2/w'], same=False)))
  h3 = _relu(film(convolve(h2, p['layer_3/w'])))
  h4 = _relu(film(convolve(h3, p['layer_4/w'])))
  return _relu(film(convolve(h4, p['layer_5/w'])) + h3)


def _maxpool(model, image, tree, tokens, p):
  """h_maxpool [1, 64]."""
  features = {'nmn': _nmn_features, 'lstm': _lstm_features}[model]
  h = features(image, tree, tokens, {
      name.removeprefix('features/'): value for name, value in p.items()})
  return (tf.reduce_max if tf.is_tensor(h) else np.max)(h, (0, 1))[None]


def policy(model, image, tree, tokens, p):
  """Logits [actions], baseline [] and reward prediction's logits [2]."""
  h_maxpool = _maxpool(model, image, tree, tokens, p)
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (
      (hidden @ p['logits/w'] + p['logits/b'])[0],
      (hidden @ p['baseline/w'] + p['baseline/b'])[0, 0],
      (h_maxpool @ p['reward_prediction/w'] + p['reward_prediction/b'])[0])


def discriminator(model, image, tree, tokens, p):
  """The logit [] of D."""
  h_maxpool = _maxpool(model, image, tree, tokens, p)
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (hidden @ p['logit/w'])[0, 0]
