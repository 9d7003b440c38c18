"""The policy and the discriminator (appendix H)."""

from collections.abc import Sequence
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from agile_tf.agent import instructions
from agile_tf.agent import modules
from agile_tf.agent.fast import convolutions
from agile_tf.agent.fast import functional

HIDDEN_UNITS = 100

MODELS = ('nmn', 'lstm')

_PAPER = modules.Initialization()


class PolicyOutput(NamedTuple):
  """What the policy network says about B pairs of image and instruction."""
  logits: tf.Tensor  # float32 [B, actions]
  baseline: tf.Tensor  # float32 [B]
  reward_logits: tf.Tensor  # float32 [B, 2], of a zero and a positive reward.


def _features(model: str, grammar: instructions.Grammar, merges: bool,
              initialization: modules.Initialization) -> snt.Module:
  """Makes the part of a network that sees and reads."""
  if model == 'nmn':
    return modules.NmnFeatures(grammar, merges, initialization)
  if model == 'lstm':
    return modules.LstmFeatures(grammar, initialization)
  raise ValueError(f'Model {model!r}: expected one of {", ".join(MODELS)}.')


class PolicyNetwork(snt.Module):
  """pi(c, s) with the heads of the baseline and of reward prediction.

  The baseline's head takes the input of the softmax layer, the reward
  prediction's takes the output of the max-pooling. The losses of both heads
  also train the shared layers.
  """

  def __init__(self, model: str, grammar: instructions.Grammar,
               num_actions: int, initialization: modules.Initialization):
    super().__init__(name='policy')
    self._features = _features(
        model, grammar, merges=True, initialization=initialization)
    self._hidden = modules.Linear(
        modules.CHANNELS, HIDDEN_UNITS, gain=initialization.gain, name='hidden')
    self._logits = modules.Linear(
        HIDDEN_UNITS, num_actions, gain=initialization.logits_gain,
        name='logits')
    self._baseline = modules.Linear(HIDDEN_UNITS, 1, name='baseline')
    self._reward_prediction = modules.Linear(
        modules.CHANNELS, 2, name='reward_prediction')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolver) -> PolicyOutput:
    h_maxpool = tf.reduce_max(self._features(images, codes, convolve), [0, 1])
    hidden = tf.nn.relu(self._hidden(h_maxpool))
    return PolicyOutput(
        logits=self._logits(hidden),
        baseline=tf.squeeze(self._baseline(hidden), -1),
        reward_logits=self._reward_prediction(h_maxpool))


class Discriminator(snt.Module):
  """D(c, s), the reward model, as logits [B]. Its last layer has no bias."""

  def __init__(self, model: str, grammar: instructions.Grammar,
               initialization: modules.Initialization):
    super().__init__()
    self._features = _features(
        model, grammar, merges=False, initialization=initialization)
    self._hidden = modules.Linear(
        modules.CHANNELS, HIDDEN_UNITS, gain=initialization.gain, name='hidden')
    self._logit = modules.Linear(
        HIDDEN_UNITS, 1, with_bias=False, name='logit')

  def __call__(self, images: tf.Tensor, codes: tf.Tensor,
               convolve: convolutions.Convolver) -> tf.Tensor:
    h_maxpool = tf.reduce_max(self._features(images, codes, convolve), [0, 1])
    return tf.squeeze(self._logit(tf.nn.relu(self._hidden(h_maxpool))), -1)


def make(model: str, grammar: instructions.Grammar, image_shape: Sequence[int],
         num_actions: int, initialization: modules.Initialization = _PAPER
        ) -> tuple[functional.Network, functional.Network]:
  """Makes pi and D, functions of parameters, images [B, H, W, 3] and codes."""
  num_slots = len(grammar.slots)
  return (
      functional.Network(
          lambda: PolicyNetwork(model, grammar, num_actions, initialization),
          image_shape, num_slots),
      functional.Network(
          lambda: Discriminator(model, grammar, initialization),
          image_shape, num_slots))
