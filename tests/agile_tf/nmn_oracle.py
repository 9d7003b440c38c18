"""Appendix G, term by term: slow NumPy and plain TensorFlow oracles.

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


def stem(image, p):
  """h_stem of one image; `p` has parameters by their short names."""
  h = _relu(convolve(image, p['stem/patches/w'], 8, same=False) +
            p['stem/patches/b'])
  return _relu(convolve(h, p['stem/neighbours/w'], same=False) +
               p['stem/neighbours/b'])


def _film_nmn(h_stem, tree, tokens, p):
  return nmn(h_stem, tree, tokens,
             *(p[f'film_nmn/{name}'] for name in ('w', 'gamma', 'beta')))


def policy(image, tree, tokens, p):
  """Logits [actions], baseline [] and reward prediction's logits [2]."""
  h_stem = stem(image, p)
  h_nmn = _film_nmn(h_stem, tree, tokens, p)
  h_merge = _relu(
      convolve(np.concatenate([h_nmn, h_stem], -1), p['merge/convolution/w']) +
      p['merge/convolution/b'])
  h_maxpool = h_merge.max((0, 1))
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (
      hidden @ p['logits/w'] + p['logits/b'],
      (hidden @ p['baseline/w'] + p['baseline/b'])[0],
      h_maxpool @ p['reward_prediction/w'] + p['reward_prediction/b'])


def discriminator(image, tree, tokens, p):
  """The logit [] of D."""
  h_maxpool = _film_nmn(stem(image, p), tree, tokens, p).max((0, 1))
  hidden = _relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (hidden @ p['logit/w'])[0]
