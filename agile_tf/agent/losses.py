"""Returns and losses: equations 1 and 2, A3C and reward prediction.

Every loss function returns one value for each example, float32 [...], where
`...` stands for any batch dimensions. `programs` weights them and takes their
sums and means. R is the length of a rollout, as in Algorithms 1 and 2.
"""

from typing import NamedTuple

import tensorflow as tf


def returns(rewards: tf.Tensor, discounts: tf.Tensor, values: tf.Tensor,
            td_lambda: float = 1.0) -> tf.Tensor:
  """Computes the returns that the policy is trained on, of steps 0 to R - 1.

    return_t = r_t + discount_t * (
        (1 - lambda) * V(s_{t+1}) + lambda * return_{t+1})
    return_R = V(s_R)

  With lambda = 1 they are A3C's n-step returns. No gradient flows through them.

  Args:
    rewards: float32 [R, ...], r_t is the reward of the state that a_t leads to.
    discounts: float32 [R, ...], gamma times the environment's discount, which
      is 0 where an episode terminates.
    values: float32 [R, ...], V(s_1) ... V(s_R).
    td_lambda: lambda, between 0 and 1.

  Returns:
    float32 [R, ...].
  """
  def step(next_return, inputs):
    reward, discount, value = inputs
    return reward + discount * (
        (1 - td_lambda) * value + td_lambda * next_return)

  inputs = tuple(map(tf.stop_gradient, (rewards, discounts, values)))
  last_value = inputs[2][-1]  # V(s_R)
  return tf.scan(step, inputs, last_value, reverse=True)


class ActorCritic(NamedTuple):
  """The three terms of A3C's loss, float32 [...]."""
  policy: tf.Tensor  # -log pi(a | c, s) * advantage
  entropy: tf.Tensor  # The entropy of pi, in nats; the loss subtracts it.
  baseline: tf.Tensor  # 0.5 * (return - V)^2


def actor_critic(logits: tf.Tensor, baseline: tf.Tensor, actions: tf.Tensor,
                 targets: tf.Tensor) -> ActorCritic:
  """Computes A3C's loss from V(s), the `baseline`, and returns, the `targets`.

  No gradient flows to `targets`. The policy's term has none for the baseline
  either: its advantage, `targets - baseline`, counts as a constant.
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
  """Computes the cross-entropy of predicting which states counted as goals.

  `logits` are float32 [..., 2]: first that the state did not count as a goal
  state, then that it did. `positive`, bool [...], says which of these is true.
  """
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=tf.cast(positive, tf.int32), logits=logits)


def discriminator(logits: tf.Tensor, is_goal: tf.Tensor) -> tf.Tensor:
  """Computes the discriminator's cross-entropy, the terms of equation 2.

  They are -log D(c, s) for a goal example and -log(1 - D(c, s)) for a negative,
  such as a pair from B.
  """
  return tf.nn.sigmoid_cross_entropy_with_logits(
      labels=tf.cast(is_goal, tf.float32), logits=logits)


def lowest_rated(logits: tf.Tensor, count: int) -> tf.Tensor:
  """Returns the indices of the `count` lowest logits, int32 [count].

  The other pairs drawn from B, the share 1 - rho that D rates highest, may be
  goal states and are dropped: the paper calls them rejected (Algorithm 1, line
  9).
  """
  return tf.math.top_k(-logits, count, sorted=False).indices
