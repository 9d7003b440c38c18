"""Appendix H, term by term: a slow oracle in plain TensorFlow.

It knows nothing of slots, codes or batches: an instruction is its tree, an
image is one image, and every module convolves the whole W_m with the
concatenation of two operands, zeros where there is one. All numbers are
float64. TensorFlow differentiates it, to check gradients too.
"""

import numpy as np
import tensorflow as tf

# Trees by text. They differ in arity, in depth and in who takes the scene.
TREES = {
    'unary leaf': ('a',),
    'unary': ('b', ('a',)),
    'scene right': ('c', ('a',), ()),
    'scene left': ('c', (), ('a',)),
    'scene twice': ('c', (), ()),
    'binary below unary': ('b', ('c', ('a',), ('b',))),
    'deep right': ('c', ('b',), ('b', ('a',))),
    'just the scene': (),
}


def variables(network, parameters):
  """The parameters [P] of a network by their short names, in float64."""
  return {name.partition('/')[2]: tf.cast(value, tf.float64)
          for name, value in network.layout.split(parameters).items()}


def parameters(network, seed):
  """Larger than the initial ones, with biases that are not zeros."""
  rng = np.random.default_rng(seed)
  initial = network.initial(seed)
  return tf.constant(np.where(
      initial == 0, rng.normal(scale=0.2, size=initial.shape),
      1.5 * initial).astype(np.float32))


def large(network, seed):
  """As `parameters`, but instructions make a large difference.

  Reward prediction's logits stay small. Where its softmax is saturated, its
  gradient is the difference of two numbers near 1.
  """
  rng = np.random.default_rng(seed)
  values = network.layout.split(parameters(network, seed))
  for name in values:
    if name.endswith(('film_nmn/gamma', 'film_nmn/beta', 'embeddings')):
      values[name] = tf.constant(
          rng.normal(size=values[name].shape), tf.float32)
    elif name.endswith(('/gamma/w', '/beta/w')):  # Of the FiLM-LSTM.
      values[name] = tf.constant(
          rng.normal(scale=0.3, size=values[name].shape), tf.float32)
    elif name.endswith('reward_prediction/w'):
      values[name] *= 0.2
  return network.layout.join(values)


def _convolve(x, w, stride=1, padding='SAME'):
  """Cross-correlates an image [H, W, C] with a kernel [k, k, C, D]."""
  return tf.nn.conv2d(x[None], w, stride, padding)[0]


def numbered(tree, tokens):
  """A tree with each token's number, int32 []; () is the scene."""
  return tree and (tf.constant(tokens.index(tree[0])),
                   *(numbered(operand, tokens) for operand in tree[1:]))


def nmn(h, tree, w, gamma, beta):
  """Evaluates a numbered tree on h_stem [h, w, 64]."""
  if not tree:
    return h
  left = nmn(h, tree[1] if len(tree) > 1 else (), w, gamma, beta)
  right = tf.zeros_like(h)
  if len(tree) > 2:
    right = nmn(h, tree[2], w, gamma, beta)
  x = tree[0]
  return tf.nn.relu(
      (1 + gamma[x]) * _convolve(tf.concat([left, right], -1), w) + beta[x])


def _stem(image, p):
  """h_stem of one image; `p` has parameters by their short names."""
  h = tf.nn.relu(
      _convolve(image, p['stem/patches/w'], 8, 'VALID') + p['stem/patches/b'])
  return tf.nn.relu(_convolve(h, p['stem/neighbours/w'], padding='VALID') +
                    p['stem/neighbours/b'])


def _nmn_features(image, tree, p):
  """h_merge where there is a merge layer, else h_nmn."""
  h_stem = _stem(image, p)
  h_nmn = nmn(h_stem, tree,
              *(p[f'film_nmn/{name}'] for name in ('w', 'gamma', 'beta')))
  if 'merge/convolution/w' not in p:
    return h_nmn
  return tf.nn.relu(
      _convolve(tf.concat([h_nmn, h_stem], -1), p['merge/convolution/w']) +
      p['merge/convolution/b'])


def _preorder(tree):
  """A tree's tokens in the order of the text."""
  return [tree[0]] + [
      token for operand in tree[1:] if operand for token in _preorder(operand)]


def _lstm_features(image, tree, p):
  """h_5 of the FiLM-LSTM."""
  h = cell = tf.zeros([1, 100], tf.float64)
  for token in _preorder(tree):
    x = p['instruction_lstm/embeddings'][token]
    gates = (tf.concat([x[None], h], -1) @ p['instruction_lstm/w'] +
             p['instruction_lstm/b'])
    i, j, f, o = (gates[:, 100 * k:100 * (k + 1)] for k in range(4))
    cell = tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(j)
    h = tf.sigmoid(o) * tf.tanh(cell)
  gamma, beta = (h @ p[f'{name}/w'] + p[f'{name}/b']
                 for name in ('gamma', 'beta'))
  first = 0

  def film(x):
    nonlocal first
    these = slice(first, first + x.shape[-1])
    first += x.shape[-1]
    return (1 + gamma[0, these]) * x + beta[0, these]

  h1 = tf.nn.relu(film(_convolve(image, p['layer_1/w'], 8, 'VALID')))
  h2 = tf.nn.relu(film(_convolve(h1, p['layer_2/w'], padding='VALID')))
  h3 = tf.nn.relu(film(_convolve(h2, p['layer_3/w'])))
  h4 = tf.nn.relu(film(_convolve(h3, p['layer_4/w'])))
  return tf.nn.relu(film(_convolve(h4, p['layer_5/w'])) + h3)


def _maxpool(model, image, tree, p):
  """h_maxpool [1, 64]."""
  features = {'nmn': _nmn_features, 'lstm': _lstm_features}[model]
  h = features(image, tree, {
      name.removeprefix('features/'): value for name, value in p.items()})
  return tf.reduce_max(h, (0, 1))[None]


@tf.function(autograph=False)
def policy(model, image, tree, p):
  """Logits [actions], baseline [] and reward prediction's logits [2]."""
  h_maxpool = _maxpool(model, image, tree, p)
  hidden = tf.nn.relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (
      (hidden @ p['logits/w'] + p['logits/b'])[0],
      (hidden @ p['baseline/w'] + p['baseline/b'])[0, 0],
      (h_maxpool @ p['reward_prediction/w'] + p['reward_prediction/b'])[0])


@tf.function(autograph=False)
def discriminator(model, image, tree, p):
  """The logit [] of D."""
  h_maxpool = _maxpool(model, image, tree, p)
  hidden = tf.nn.relu(h_maxpool @ p['hidden/w'] + p['hidden/b'])
  return (hidden @ p['logit/w'])[0, 0]


def apply(oracle, model, images, trees, tokens, p):
  """What `policy` or `discriminator` says of images [B, H, W, C] in [0, 1]."""
  outputs = [oracle(model, image, numbered(tree, tokens), p) for image, tree in
             zip(tf.unstack(tf.cast(images, tf.float64)), trees)]
  return tf.nest.map_structure(lambda *x: tf.stack(x), *outputs)
