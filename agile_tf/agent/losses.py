"""Returns and losses: equations 1 and 2, A3C and reward prediction.

Every loss function returns one value for each example. `gradients` weights
these and takes their sums and means. The functions are pure: they have no
variables and read no flags. T is the length of a rollout; `...` stands for any
batch dimensions.
"""

from typing import NamedTuple

import tensorflow as tf


def returns(rewards: tf.Tensor, discounts: tf.Tensor, values: tf.Tensor,
            td_lambda: float = 1.0) -> tf.Tensor:
  """Computes the returns that the policy is trained on, R_0 ... R_{T-1}.

    R_t = r_t + discount_t * ((1 - lambda) * V(s_{t+1}) + lambda * R_{t+1})
    R_T = V(s_T)

  With lambda = 1 these are A3C's n-step returns.

  Args:
    rewards: float32 [T, ...], r_t is the reward of the state that a_t leads to.
    discounts: float32 [T, ...], gamma, or 0 where the episode ends.
    values: float32 [T, ...], V(s_1) ... V(s_T).
    td_lambda: lambda, between 0 and 1.

  Returns:
    float32 [T, ...]. No gradient flows through it.
  """
  length = rewards.shape[0]
  if length is None:
    raise ValueError('returns() needs a static length of a rollout.')
  following = values[-1]
  results = []
  for t in reversed(range(length)):
    following = rewards[t] + discounts[t] * (
        (1 - td_lambda) * values[t] + td_lambda * following)
    results.append(following)
  return tf.stop_gradient(tf.stack(results[::-1]))


class ActorCritic(NamedTuple):
  """The three terms of A3C's loss, float32 [...]."""
  policy: tf.Tensor  # -log pi(a | c, s) * advantage
  entropy: tf.Tensor  # of pi, in nats; the loss subtracts it
  baseline: tf.Tensor  # 0.5 * (return - V)^2


def actor_critic(logits: tf.Tensor, baseline: tf.Tensor, actions: tf.Tensor,
                 targets: tf.Tensor) -> ActorCritic:
  """Computes A3C's loss.

  Args:
    logits: float32 [..., actions].
    baseline: float32 [...], V(s).
    actions: int32 [...].
    targets: float32 [...], the returns. No gradient of the policy's term flows
      through the advantage, `targets - baseline`.
  """
  log_pi = tf.nn.log_softmax(logits)
  chosen = tf.reduce_sum(
      log_pi * tf.one_hot(actions, logits.shape[-1]), axis=-1)
  advantages = tf.stop_gradient(targets - baseline)
  return ActorCritic(
      policy=-chosen * advantages,
      entropy=-tf.reduce_sum(tf.exp(log_pi) * log_pi, axis=-1),
      baseline=0.5 * tf.square(tf.stop_gradient(targets) - baseline))


def reward_prediction(logits: tf.Tensor, positive: tf.Tensor) -> tf.Tensor:
  """Computes the cross-entropy of predicting whether rewards are positive.

  Args:
    logits: float32 [..., 2], for a reward of zero and for a positive one.
    positive: bool [...], whether the reward is positive.

  Returns:
    float32 [...].
  """
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=tf.cast(positive, tf.int32), logits=logits)


def discriminator(logits: tf.Tensor, is_goal: tf.Tensor) -> tf.Tensor:
  """Computes the discriminator's cross-entropy, the terms of equation 2.

  Args:
    logits: float32 [...], the logits of D(c, s).
    is_goal: bool [...], whether the pair is a goal example (its term is -log D)
      or comes from the replay buffer B (-log(1 - D)).

  Returns:
    float32 [...].
  """
  return tf.nn.sigmoid_cross_entropy_with_logits(
      labels=tf.cast(is_goal, tf.float32), logits=logits)


def anticipated_negatives(logits: tf.Tensor, count: int) -> tf.Tensor:
  """Returns the indices of the pairs that are most likely true negatives.

  Of the pairs drawn from B, the share 1 - rho that D rates highest may be goal
  states and is rejected (Algorithm 1, line 9).

  Args:
    logits: float32 [N], D's logits.
    count: How many pairs to keep, at most N.

  Returns:
    int32 [count], the indices of the lowest logits.
  """
  return tf.math.top_k(-logits, count, sorted=False).indices
