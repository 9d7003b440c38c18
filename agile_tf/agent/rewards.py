"""The policy's reward: from the discriminator D or from the ground truth."""

import numpy as np
import tensorflow as tf

from agile_tf.agent import functional
from agile_tf.agent import optimizers
from agile_tf.agent import rollouts
from agile_tf.agent import signatures
from agile_tf.agent import worlds

# AGILE uses 'decision'; the paper mentions the others. `modelled` defines them.
FORMS = ('decision', 'probability', 'log', 'gail')

# The largest absolute value of a reward with a logarithm.
_LOG_LIMIT = 10.0


def decisions(logits: tf.Tensor) -> tf.Tensor:
  """Returns whether D accepts states as goal states, D(c, s) > 0.5.

  Args:
    logits: float32 [...], the logits of D(c, s).

  Returns:
    bool [...].
  """
  return logits > 0


def modelled(logits: tf.Tensor, form: str, scale: float) -> tf.Tensor:
  """Returns the reward that D gives, scale * f(D(c, s)).

    form         f(D)
    decision     [D > 0.5]     AGILE's (section 2)
    probability  D
    log          log D         at least -10
    gail         -log(1 - D)   at most 10 (appendix B)

  Args:
    logits: float32 [...], the logits of D(c, s).
    form: One of `FORMS`.
    scale: The factor of the reward.

  Returns:
    float32 [...]. No gradient flows through it.

  Raises:
    ValueError: if there is no such form.
  """
  logits = tf.stop_gradient(logits)
  if form == 'decision':
    reward = tf.cast(decisions(logits), tf.float32)
  elif form == 'probability':
    reward = tf.sigmoid(logits)
  elif form == 'log':
    reward = tf.maximum(tf.math.log_sigmoid(logits), -_LOG_LIMIT)
  elif form == 'gail':
    reward = tf.minimum(tf.nn.softplus(logits), _LOG_LIMIT)
  else:
    raise ValueError(
        f'The form of the reward is {form!r}: expected one of '
        f'{", ".join(FORMS)}.')
  return scale * reward


def _logits(discriminator: functional.Network, world: worlds.World,
            phi: tf.Tensor, observations: tf.Tensor,
            codes: tf.Tensor) -> tf.Tensor:
  """Computes D's logits of s_1 ... s_T, float32 [T, W]."""
  states = observations[1:]
  length, width = states.shape[:2]
  images = world.images(tf.reshape(states, [-1, *states.shape[2:]]))
  logits = discriminator(phi, images, tf.tile(codes, [length, 1]))
  return tf.reshape(logits, [length, width])


def decisions_program(discriminator: functional.Network, world: worlds.World
                     ) -> signatures.Decide:
  """Compiles a program of D's decisions alone, for playing without learning."""
  @tf.function(autograph=False, jit_compile=True)
  def decide(phi, observations, codes):
    return decisions(_logits(discriminator, world, phi, observations, codes))

  return decide


def modelled_program(discriminator: functional.Network, world: worlds.World,
                     form: str, scale: float) -> signatures.ModelReward:
  """Compiles line 6 of Algorithm 2: D's rewards and its decisions.

  Args:
    discriminator: D.
    world: The world of the observations.
    form: One of `FORMS`.
    scale: The factor of the reward.
  """
  @tf.function(autograph=False, jit_compile=True)
  def model_reward(phi, observations, codes):
    logits = _logits(discriminator, world, phi, observations, codes)
    return modelled(logits, form, scale), decisions(logits)

  return model_reward


class GroundTruth:
  """The A3C baselines' reward: the environment's reward, scaled."""

  def __init__(self, scale: float):
    """Takes the scale, which is the reward of a goal state."""
    self._scale = scale

  def __call__(self, rollout: rollouts.Rollout) -> rollouts.Reward:
    """Returns the reward of a rollout."""
    return rollouts.Reward(
        np.float32(self._scale) * rollout.true_rewards,
        rollout.true_rewards > 0)


class Modelled:
  """AGILE's reward: from D, with the newest phi."""

  def __init__(self, discriminator: optimizers.SharedParameters,
               program: signatures.ModelReward):
    """Takes phi, and a program from `modelled_program`."""
    self._discriminator = discriminator
    self._program = program

  def __call__(self, rollout: rollouts.Rollout) -> rollouts.Reward:
    """Returns the reward of a rollout."""
    values, decided = self._program(
        self._discriminator.snapshot(), rollout.observations, rollout.codes)
    return rollouts.Reward(values.numpy(), decided.numpy())
