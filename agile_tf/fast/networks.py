"""The policy and the discriminator as functions of named parameters.

They are the networks of `agile_tf.agent.networks`, which has their formulas,
with the same parameters. Four differences make them fast:

  - One pass serves W workers and yet gives each a gradient of its own (`rows`).
  - 3x3 convolutions are computed by minimal filtering, and the activations of
    an agent that acted are not computed again (`convolutions`).
  - A module with one operand leaves out W_m's second half instead of
    multiplying it with zeros. The modules of the lowest level, which all take
    the scene, share its convolution. Neither changes the result.
  - If images are made of tiles, each tile is convolved once.

Features are space-major, float32 [h, w, B, channels]. A function's `p` are the
parameters by name; they are shared by all workers, or have a leading axis of W
copies.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from agile_tf.agent import functional
from agile_tf.agent import instructions
from agile_tf.agent import networks
from agile_tf.agent import worlds
from agile_tf.fast import convolutions
from agile_tf.fast import rows

_Images: TypeAlias = tf.Tensor | worlds.Tiled
_Parameters: TypeAlias = Mapping[str, tf.Tensor]
# Takes images, codes, parameters and a convolver; returns a network's output.
_Compute: TypeAlias = Callable[
    [_Images, tf.Tensor, _Parameters, convolutions.Convolver],
    functional.Output]


def _linear(x: tf.Tensor, p: _Parameters, name: str) -> tf.Tensor:
  """Applies a linear layer with a bias."""
  return rows.add(rows.product(x, p[f'{name}/w']), p[f'{name}/b'])


def _tokens(grammar: instructions.Grammar, codes: tf.Tensor) -> tf.Tensor:
  """Returns one-hot rows, float32 [B, slots, tokens].

  Selecting a row by a product keeps the gradient a product too.
  """
  return tf.one_hot(codes - 1, len(grammar.tokens))


def _stem(images: _Images, p: _Parameters, convolve: convolutions.Convolver
         ) -> tf.Tensor:
  """Computes h_stem."""
  patches = tf.nn.relu(rows.add(
      convolve.patches(images, p['stem/patches/w']), p['stem/patches/b']))
  return tf.nn.relu(rows.add(
      convolve([patches], p['stem/neighbours/w'], 'VALID'),
      p['stem/neighbours/b']))


def _film_nmn(grammar: instructions.Grammar, h_stem: tf.Tensor,
              codes: tf.Tensor, p: _Parameters,
              convolve: convolutions.Convolver) -> tf.Tensor:
  """Computes h_nmn."""
  w = p['film_nmn/w']
  tokens = _tokens(grammar, codes)
  gammas, betas = (
      [rows.product(token, p[f'film_nmn/{name}'])
       for token in tf.unstack(tokens, axis=1)] for name in ('gamma', 'beta'))
  # A convolution of [left; right] is the sum of one of [left; 0] and one of
  # [0; right]. So all modules whose left operand is the scene share `of_scene`.
  of_scene = convolve([h_stem, None], w)
  outputs: list[tf.Tensor] = []
  for i, slot in enumerate(grammar.slots):
    if slot.right < 0:
      x = (of_scene if slot.left < 0 else
           convolve([outputs[slot.left], None], w))
    elif slot.left < 0:
      x = of_scene + convolve([None, outputs[slot.right]], w)
    else:
      x = convolve([outputs[slot.left], outputs[slot.right]], w)
    x = tf.nn.relu(rows.film(x, gammas[i], betas[i]))
    code = codes[:, i, None]
    x = tf.where(code == instructions.SCENE, h_stem, x)
    outputs.append(tf.where(code == instructions.NOTHING, 0.0, x))
  return outputs[-1]


def _nmn_features(grammar: instructions.Grammar, images: _Images,
                  codes: tf.Tensor, p: _Parameters,
                  convolve: convolutions.Convolver) -> tf.Tensor:
  """Computes h_merge where there is a merge layer, else h_nmn."""
  h_stem = _stem(images, p, convolve)
  h_nmn = _film_nmn(grammar, h_stem, codes, p, convolve)
  if 'merge/convolution/w' not in p:
    return h_nmn
  return tf.nn.relu(rows.add(
      convolve([h_nmn, h_stem], p['merge/convolution/w']),
      p['merge/convolution/b']))


def _instruction_lstm(grammar: instructions.Grammar, codes: tf.Tensor,
                      p: _Parameters) -> tf.Tensor:
  """Computes h_LSTM, float32 [B, 100]."""
  embedded = rows.product(
      _tokens(grammar, codes), p['instruction_lstm/embeddings'])
  h = cell = tf.zeros([tf.shape(codes)[0], networks.LSTM_UNITS])
  for slot in grammar.preorder:
    gates = _linear(
        tf.concat([embedded[:, slot], h], -1), p, 'instruction_lstm')
    i, j, f, o = tf.split(gates, 4, -1)
    is_token = codes[:, slot, None] > 0
    cell = tf.where(
        is_token, tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(j), cell)
    h = tf.where(is_token, tf.sigmoid(o) * tf.tanh(cell), h)
  return h


def _lstm_features(grammar: instructions.Grammar, images: _Images,
                   codes: tf.Tensor, p: _Parameters,
                   convolve: convolutions.Convolver) -> tf.Tensor:
  """Computes h_5, as `networks.LstmFeatures` does."""
  h_lstm = _instruction_lstm(grammar, codes, p)
  layers = networks.LSTM_LAYERS
  gammas, betas = (
      tf.split(_linear(h_lstm, p, name),
               [layer.channels for layer in layers], -1)
      for name in ('gamma', 'beta'))
  x = convolve.patches(images, p['layer_1/w'])
  h = {1: tf.nn.relu(rows.film(x, gammas[0], betas[0]))}
  for k, layer in enumerate(layers[1:], 2):
    x = convolve([h[k - 1]], p[f'layer_{k}/w'], layer.padding)
    x = rows.film(x, gammas[k - 1], betas[k - 1])
    if k == 5:
      x += h[3]
    h[k] = tf.nn.relu(x)
  return h[5]


_FEATURES = {'nmn': _nmn_features, 'lstm': _lstm_features}


def _policy(model: str, grammar: instructions.Grammar) -> _Compute:
  def compute(images, codes, p, convolve):
    h_maxpool = tf.reduce_max(
        _FEATURES[model](grammar, images, codes, p, convolve), [0, 1])
    hidden = tf.nn.relu(_linear(h_maxpool, p, 'hidden'))
    return networks.PolicyOutput(
        logits=_linear(hidden, p, 'logits'),
        baseline=tf.squeeze(_linear(hidden, p, 'baseline'), -1),
        reward_logits=_linear(h_maxpool, p, 'reward_prediction'))

  return compute


def _discriminator(model: str, grammar: instructions.Grammar) -> _Compute:
  def compute(images, codes, p, convolve):
    h_maxpool = tf.reduce_max(
        _FEATURES[model](grammar, images, codes, p, convolve), [0, 1])
    hidden = tf.nn.relu(_linear(h_maxpool, p, 'hidden'))
    return tf.squeeze(rows.product(hidden, p['logit/w']), -1)

  return compute


class FastNetwork:
  """A `functional.Network` that computes fast what another one computes.

  Both have the same parameters.
  """

  def __init__(self, plain: functional.Network, compute: _Compute,
               world: worlds.World):
    """`compute` computes what `plain` does for images of this world."""
    self.layout = plain.layout
    self.initial = plain.initial
    self.apply = plain.apply
    self._compute = compute
    self._world = world

  def at(self, parameters: tf.Tensor
        ) -> Callable[[tf.Tensor, tf.Tensor],
                      tuple[functional.Output, functional.Activations]]:
    p = self._named(parameters)
    # Kernels are transformed once, not at each call.
    parts = tuple(p.values())
    transformed_kernels = convolutions.transformed(parts)

    def output_of(observations, codes):
      convolver = convolutions.Convolver(parts, transformed_kernels)
      output = self._compute(self._images(observations), codes, p, convolver)
      return output, tuple(
          tf.transpose(x, [2, 0, 1, 3]) for x in convolver.results)

    return output_of

  def gradient(self, parameters: tf.Tensor, observations: tf.Tensor,
               codes: tf.Tensor,
               loss: Callable[[functional.Output], tuple[tf.Tensor, Any]],
               activations: functional.Activations = ()
              ) -> tuple[tf.Tensor, Any]:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      value, extras = loss(
          self._by_worker(parameters, observations, codes, activations))
    return tape.gradient(value, parameters), extras

  def gradients(self, parameters: tf.Tensor, observations: tf.Tensor,
                codes: tf.Tensor,
                loss: Callable[[functional.Output], tuple[tf.Tensor, Any]],
                activations: functional.Activations = ()
               ) -> tuple[list[tf.Tensor], Any]:
    width = codes.shape[0]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      # Each worker has a copy, and so a gradient of its own.
      copies = (
          tf.tile(parameters[None], [width, 1]) if width > 1 else parameters)
      tape.watch(copies)
      worker_losses, extras = loss(
          self._by_worker(copies, observations, codes, activations))
    return tf.unstack(tf.reshape(
        tape.gradient(worker_losses, copies), [width, -1])), extras

  def _named(self, parameters: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the parameters by their names within the network."""
    return {
        name.partition('/')[2].removeprefix('features/'): value
        for name, value in self.layout.split(parameters).items()}

  def _images(self, observations: tf.Tensor) -> _Images:
    """Returns the images of observations, of tiles if the world has them."""
    tiled = self._world.tiles(observations)
    return self._world.images(observations) if tiled is None else tiled

  def _by_worker(self, parameters: tf.Tensor, observations: tf.Tensor,
                 codes: tf.Tensor, activations: functional.Activations
                ) -> functional.Output:
    """Returns the output, [W, N, ...], for examples [W, N, ...].

    The parameters are [P], or [W, P] with a copy for each worker. Gradients
    reach them alone: none flows to the inputs.
    """
    known = [tf.transpose(x, [2, 3, 0, 1, 4]) for x in activations]
    images = self._images(
        tf.reshape(observations, [-1, *observations.shape[2:]]))
    flat = tf.reshape(codes, [-1, codes.shape[-1]])
    named = self._named(parameters)
    transformed_kernels = convolutions.transformed(named.values())

    @tf.custom_gradient
    def compute(*parts):
      tape = tf.GradientTape(watch_accessed_variables=False)
      convolver = convolutions.Convolver(
          parts, transformed_kernels, known, tape)
      with tape:
        tape.watch(parts)
        output = self._compute(
            images, flat, dict(zip(named, parts)), convolver)

      def gradient(*upstreams):
        return convolver.gradients(parts, tf.nest.flatten(output), upstreams)

      return output, gradient

    return tf.nest.map_structure(
        lambda x: tf.reshape(x, [*codes.shape[:2], *x.shape[1:]]),
        compute(*named.values()))


def accelerate(pi: functional.Network, d: functional.Network, model: str,
               world: worlds.World
              ) -> tuple[functional.Network, functional.Network]:
  """Makes the pi and D of `networks.make` fast."""
  return (FastNetwork(pi, _policy(model, world.grammar), world),
          FastNetwork(d, _discriminator(model, world.grammar), world))
