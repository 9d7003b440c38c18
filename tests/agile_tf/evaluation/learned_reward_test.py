"""Tests for the reward model as a Gymnasium environment's reward."""

from absl.testing import absltest
import gymnasium
import numpy as np

import agile_tf
from gridlu import gym as gridlu_gym
from gridlu import rendering
from tests.agile_tf import tiny


class _Model:
  """Gives the probabilities that it is told to, and keeps what it saw."""

  def __init__(self, probabilities):
    self.probabilities = iter(probabilities)

  def __call__(self, images, instructions):
    self.seen = images, instructions
    return np.array([next(self.probabilities)], np.float32)


class LearnedRewardTest(absltest.TestCase):

  def test_rewards_are_decisions_on_the_state_after_the_action(self):
    model = _Model([0.2, 0.5, 0.51, 1.0] * 10)
    environment = gymnasium.wrappers.FlattenObservation(
        agile_tf.LearnedReward(gymnasium.wrappers.TransformReward(
            gridlu_gym.TokenInstruction(gymnasium.make(
                'GridLU-Relations-v0', solved_starts=True)),
            lambda reward: reward - 0.1), model))
    plain = gymnasium.make('GridLU-Relations-v0', solved_starts=True)
    true_rewards = []
    for seed, reward in enumerate([0.0, 0.0, 1.0, 1.0] * 10):
      environment.reset(seed=seed)
      plain.reset(seed=seed)
      _, decided, terminated, truncated, info = environment.step(seed % 4)
      observation, *expected = plain.step(seed % 4)
      self.assertEqual((decided, type(decided)), (reward, float))
      self.assertEqual(
          [info['true_reward'], terminated, truncated], expected[:3])
      true_rewards.append(info['true_reward'])
      images, texts = model.seen
      np.testing.assert_array_equal(images, observation['image'][None])
      self.assertEqual(texts, [observation['instruction']])
    self.assertLen(set(true_rewards), 2)

  def test_a_runs_reward_model(self):
    run_dir = tiny.save_for(type(self))
    environment = agile_tf.LearnedReward(
        gymnasium.make('GridLU-Relations-v0'), run_dir)
    environment.reset(seed=0)
    _, reward, *_ = environment.step(0)
    board = environment.unwrapped
    probability, = agile_tf.load_reward_model(run_dir)(
        rendering.render(board.state)[None], [str(board.instruction)])
    self.assertEqual(reward, probability > 0.5)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(
        environment.spec.to_json()))
    again.reset(seed=0)
    self.assertEqual(again.step(0)[1], reward)

  def test_there_may_be_no_true_reward(self):
    for rewarded in None, True:
      environment = agile_tf.LearnedReward(
          gymnasium.make('GridLU-Arrangements-v0', rewarded=rewarded),
          _Model([1.0]))
      environment.reset(seed=0)
      self.assertEqual('true_reward' in environment.step(0)[-1], bool(rewarded))
    with self.assertRaisesRegex(ValueError, 'no GridLU environment'):
      agile_tf.LearnedReward(gymnasium.make('CartPole-v1'), _Model([]))
