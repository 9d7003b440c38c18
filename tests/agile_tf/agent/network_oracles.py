"""Appendix H, term by term: slow NumPy and plain TensorFlow oracles.

Neither knows of slots, codes or batches: an instruction is its tree, an image
is one image, and every module convolves the whole W_m with the concatenation
of two operands, zeros where there is one.
"""

import numpy as np
import tensorflow as tf


def _relu(x):
  return np.maximum(x, 0)


def convolve(x, w, stride=1, same=True):
  """Cross-correlates an image [H, W, C] with a kernel [k, k, C, D]."""
  size = w.shape[0]
  if same:
    margin = (size - 1) // 2
    x = np.pad(x, [(margin, margin)] * 2 + [(0, 0)])
  height, width = ((n - size) // stride + 1 for n in x.shape[:2])
  result = np.zeros([height, width, w.shape[3]])
  for i in range(height):
    for j in range(width):
      for y in range(size):
        for z in range(size):
          result[i, j] += x[i * stride + y, j * stride + z] @ w[y, z]
  return result


def nmn(h, tree, tokens, w, gamma, beta):
  """Evaluates a tree on h_stem [h, w, 64]; () is the scene."""
  if not tree:
    return h
  left = nmn(h, tree[1] if len(tree) > 1 else (), tokens, w, gamma, beta)
  right = np.zeros_like(h)
  if len(tree) > 2:
    right = nmn(h, tree[2], tokens, w, gamma, beta)
  x = tokens.index(tree[0])
  return _relu(
      (1 + gamma[x]) * convolve(np.concatenate([left, right], -1), w) + beta[x])


def nmn_tensorflow(h, tree, tokens, w, gamma, beta):
  """As `nmn`, on h_stem [1, h, w, 64], with TensorFlow's gradients."""
  if not tree:
    return h
  left = nmn_tensorflow(
      h, tree[1] if len(tree) > 1 else (), tokens, w, gamma, beta)
  right = tf.zeros_like(h)
  if len(tree) > 2:
    right = nmn_tensorflow(h, tree[2], tokens, w, gamma, beta)
  x = tokens.index(tree[0])
  convolved = tf.nn.conv2d(tf.concat([left, right], -1), w, 1, 'SAME')
  return tf.nn.relu((1 + gamma[x]) * convolved + beta[x])


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
      convolve(np.concatenate([h_nmn, h_stem], -1), p['merge/convolution/w']) +
      p['merge/convolution/b'])


def preorder(tree):
  """A tree's tokens in the order of the text."""
  return [tree[0]] + [
      token for operand in tree[1:] if operand for token in preorder(operand)]


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _lstm_features(image, tree, tokens, p):
  """h_5 of the FiLM-LSTM."""
  h, cell = np.zeros(100), np.zeros(100)
  for token in preorder(tree):
    x = p['instruction_lstm/embeddings'][tokens.index(token)]
    gates = (np.concatenate([x, h]) @ p['instruction_lstm/w'] +
             p['instruction_lstm/b'])
    i, j, f, o = gates.reshape(4, 100)
    cell = _sigmoid(f + 1) * cell + _sigmoid(i) * np.tanh(j)
    h = _sigmoid(o) * np.tanh(cell)
  gamma, beta = (h @ p[f'{name}/w'] + p[f'{name}/b']
                 for name in ('gamma', 'beta'))
  first = 0

  def film(x):
    nonlocal first
    these = slice(first, first + x.shape[-1])
    first += x.shape[-1]
    return (1 + gamma[these]) * x + beta[these]

  h1 = _relu(film(convolve(image, p['layer_1/w'], 8, same=False)))
  h2 = _relu(film(convolve(h1, p['layer_2/w'], same=False)))
  h3 = _relu(film(convolve(h2, p['layer_3/w'])))
  h4 = _relu(film(convolve(h3, p['layer_4/w'])))
  return _relu(film(convolve(h4, p['layer_5/w'])) + h3)


def _maxpool(model, image, tree, tokens, p):
  features = {'nmn': _nmn_features, 'lstm': _lstm_features}[model]
  return features(image, tree, tokens, {
      name.removeprefix('features/'): value for name, value in p.items()
  }).max((0, 1))


def policy(model, image, tree, tokens, p):
  """Logits [actions], baseline [] and reward prediction's logits [2]."""
  h_maxpool = _maxpool(model, image, tree, tokens, p)
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (
      hidden @ p['logits/w'] + p['logits/b'],
      (hidden @ p['baseline/w'] + p['baseline/b'])[0],
      h_maxpool @ p['reward_prediction/w'] + p['reward_prediction/b'])


def discriminator(model, image, tree, tokens, p):
  """The logit [] of D."""
  h_maxpool = _maxpool(model, image, tree, tokens, p)
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (hidden @ p['logit/w'])[0]
