"""The policy and the discriminator (appendix H), as functions of parameters.

Networks are written as Sonnet modules, and used as pure functions of a vector
of parameters: one traced program then serves every thread, each with its own
snapshot of the shared variables.
"""

from collections.abc import Sequence
import threading
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from agile_tf.agent import convolutions
from agile_tf.agent import instructions
from agile_tf.agent import modules
from agile_tf.agent import parameters as parameters_lib

HIDDEN_UNITS = 100

MODELS = ('nmn', 'lstm')


class PolicyOutput(NamedTuple):
  """What the policy network says about B pairs of image and instruction."""
  logits: tf.Tensor  # float32 [B, actions]
  baseline: tf.Tensor  # float32 [B]
  reward_logits: tf.Tensor  # float32 [B, 2], of a zero and a positive reward.


def _features(model: str, grammar: instructions.Grammar,
              merges: bool) -> snt.Module:
  """Makes the part of a network that sees and reads."""
  if model == 'nmn':
    return modules.NmnFeatures(grammar, merges)
  if model == 'lstm':
    return modules.LstmFeatures(grammar)
  raise ValueError(f'Model {model!r}: expected one of {", ".join(MODELS)}.')


class PolicyNetwork(snt.Module):
  """pi(c, s) with the heads of the baseline and of reward prediction.

  The baseline's head takes the input of the softmax layer, the reward
  prediction's takes the output of the max-pooling. Gradients of both reach
  the rest of the network.
  """

  def __init__(self, model: str, grammar: instructions.Grammar,
               num_actions: int, name: str = 'policy'):
    super().__init__(name=name)
    self._features = _features(model, grammar, merges=True)
    self._hidden = snt.Linear(HIDDEN_UNITS, name='hidden')
    self._logits = snt.Linear(num_actions, name='logits')
    self._baseline = snt.Linear(1, name='baseline')
    self._reward_prediction = snt.Linear(2, name='reward_prediction')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolve) -> PolicyOutput:
    """Computes the policy.

    Args:
      images: float32 [B, H, W, 3] in [0, 1].
      codes: int32 [B, slots], encoded instructions.
      convolve: See `agile_tf.agent.convolutions`.
    """
    h_maxpool = tf.reduce_max(self._features(images, codes, convolve), [1, 2])
    hidden = tf.nn.relu(self._hidden(h_maxpool))
    return PolicyOutput(
        logits=self._logits(hidden),
        baseline=tf.squeeze(self._baseline(hidden), -1),
        reward_logits=self._reward_prediction(h_maxpool))


class Discriminator(snt.Module):
  """D(c, s), the reward model, as a logit. Its last layer has no bias."""

  def __init__(self, model: str, grammar: instructions.Grammar,
               name: str = 'discriminator'):
    super().__init__(name=name)
    self._features = _features(model, grammar, merges=False)
    self._hidden = snt.Linear(HIDDEN_UNITS, name='hidden')
    self._logit = snt.Linear(1, with_bias=False, name='logit')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolve) -> tf.Tensor:
    """Computes the logit of D(c, s).

    Args:
      images: float32 [B, H, W, 3] in [0, 1].
      codes: int32 [B, slots], encoded instructions.
      convolve: See `agile_tf.agent.convolutions`.

    Returns:
      float32 [B].
    """
    h_maxpool = tf.reduce_max(self._features(images, codes, convolve), [1, 2])
    return tf.squeeze(self._logit(tf.nn.relu(self._hidden(h_maxpool))), -1)


class Network:
  """A Sonnet network as a pure function of its parameters.

  Attributes:
    layout: Of the vector of its parameters.
  """

  def __init__(self, module: type[snt.Module], model: str,
               grammar: instructions.Grammar, image_shape: Sequence[int],
               **kwargs):
    """Wraps a module.

    Args:
      module: `PolicyNetwork` or `Discriminator`.
      model: 'nmn' or 'lstm'.
      grammar: The instructions that it will read.
      image_shape: [H, W, 3].
      **kwargs: The module's other arguments.
    """
    self._make = lambda: module(model=model, grammar=grammar, **kwargs)
    # Applying sets the values of Sonnet's stand-in variables for a while; two
    # threads that trace programs at the same time must take turns.
    self._lock = threading.Lock()
    self._example = (
        tf.zeros([1, *image_shape]),
        tf.zeros([1, len(grammar.slots)], tf.int32), convolutions.convolve)
    self._transformed, parameters = self._build()
    self._variables = tuple(parameters)
    self.layout = parameters_lib.Layout(
        [variable.deref().name.removesuffix(':0') for variable in parameters],
        [value.shape for value in parameters.values()])

  def _build(self) -> tuple[Any, dict[Any, tf.Tensor]]:
    with snt.functional.variables():
      transformed = snt.functional.transform(self._make())
    return transformed, transformed.init(*self._example)

  def initial(self, seed: int) -> np.ndarray:
    """Draws initial parameters as the paper's appendix H says.

    Args:
      seed: The same seed gives the same parameters.

    Returns:
      float32 [P].
    """
    tf.random.set_seed(seed)
    _, parameters = self._build()
    return self.layout.join(
        dict(zip(self.layout.names, parameters.values()))).numpy()

  def __call__(self, parameters: tf.Tensor, images: tf.Tensor,
               codes: tf.Tensor,
               convolve: convolutions.Convolve = convolutions.convolve) -> Any:
    """Applies the network with these parameters.

    Args:
      parameters: float32 [P]. It may be watched by a gradient tape.
      images: float32 [B, H, W, 3] in [0, 1].
      codes: int32 [B, slots].
      convolve: See `agile_tf.agent.convolutions`.
    """
    parts = self.layout.split(parameters).values()
    with self._lock:
      return self._transformed.apply(
          dict(zip(self._variables, parts)), images, codes, convolve)
