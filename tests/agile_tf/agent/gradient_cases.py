"""Rollouts and parameters for tests of gradients, and their comparison."""

import numpy as np
import tensorflow as tf

from agile_tf.agent import rollouts

DISCOUNT, ENTROPY, BASELINE, PREDICTION = 0.9, 0.05, 0.7, 1.3


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


def rollout(rng, observations):
  """Four workers: a whole rollout, two ends before T, and none at all.

  Worker 1's episode is terminated after two steps, and what follows means
  nothing. Worker 2's is truncated after three; its last state stays. Worker 3
  sits out. Worker 0 goes on.

  Args:
    rng: draws actions, of 3, and rewards.
    observations: [T + 1, 4, ...], T at least 3.

  Returns:
    By name, what `as_rollout` takes, and rewards.
  """
  length = len(observations) - 1
  observations = observations.copy()
  rewards = rng.uniform(size=[length, 4]).astype(np.float32)
  discounts = np.ones([length, 4], np.float32)
  mask = np.ones([length, 4], np.float32)
  discounts[1, 1], mask[2:, 1] = 0, 0
  discounts[2:, 1] = 5
  discounts[2, 2], mask[3:, 2], rewards[3:, 2] = 0.5, 0, 0
  observations[4:, 2] = observations[3, 2]
  mask[:, 3] = 0
  return dict(
      observations=observations,
      actions=rng.integers(3, size=[length, 4]).astype(np.int32),
      rewards=rewards, discounts=discounts, mask=mask)


def as_rollout(parts, codes, results=()):
  """What the programs take, of such a rollout."""
  return rollouts.Rollout(
      parts['observations'], codes, parts['actions'],
      np.zeros_like(parts['rewards']), parts['discounts'], parts['mask'],
      np.zeros([len(codes)], bool), (), results)


def assert_close(network, actual, expected, rtol, atol, who):
  """Compares gradients, each parameter's by its own largest number."""
  expected = network.layout.split(expected)
  for name, one in network.layout.split(actual).items():
    other = expected[name].numpy()
    np.testing.assert_allclose(
        one, other, rtol=rtol, atol=atol + 1e-4 * np.abs(other).max(),
        err_msg=f'{who}, {name}')
