"""Rollouts: T steps of W workers, acted from one snapshot of the policy.

What index t means. An episode of n actions has n + 1 states s_0 ... s_n. The
action a_t is chosen in s_t and leads to s_{t+1}, and everything that is said
of step t (its reward, the pair in B, reward prediction's sample, the
discriminator's decision) is said of s_{t+1}. The first state of an episode is
acted from and never judged. A rollout has T actions and the T + 1 states
around them; the next one begins with this one's last state. A rollout ends
with its episode; steps after that, if T has not passed yet, are masked.

Both actors draw their noise from their workers' own generators, so that they
do the same with the same seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
import tensorflow as tf

from agile_tf.agent import convolutions
from agile_tf.agent import networks
from agile_tf.agent import worlds


class Rollout(NamedTuple):
  """T steps of W workers."""
  observations: np.ndarray  # uint8 [T + 1, W, ...], s_0 ... s_T
  codes: np.ndarray  # int32 [W, slots], the encoded instructions
  actions: np.ndarray  # int32 [T, W]
  true_rewards: np.ndarray  # float32 [T, W], the environment's
  discounts: np.ndarray  # float32 [T, W], the environment's; 1 where masked
  mask: np.ndarray  # float32 [T, W], 1 for steps that were played
  ended: np.ndarray  # bool [W], whether the episode ended with this rollout
  instructions: tuple[str, ...]  # W of them
  # What the policy's convolutions gave at s_0 ... s_{T-1}, float32 [T, W, ...]
  # each, for the gradient to reuse; empty if nobody kept them.
  results: tuple[tf.Tensor, ...] = ()

  @property
  def steps(self) -> int:
    """How many environment steps were played."""
    return int(self.mask.sum())

  @property
  def active(self) -> np.ndarray:
    """The workers that played, int [at most W]."""
    return np.flatnonzero(self.mask.any(axis=0))

  def successes(self, truth: np.ndarray) -> np.ndarray:
    """Whether the episodes that ended here ended in a goal state, bool [n].

    Args:
      truth: bool [T, W], which of s_1 ... s_T are goal states.
    """
    ended = np.flatnonzero(self.ended)
    last = self.mask[:, ended].sum(axis=0).astype(int) - 1
    return truth[last, ended]

  def judged(self, values: np.ndarray) -> np.ndarray:
    """Selects the played steps of [T, W, ...] as [steps, ...]."""
    return values[self.mask > 0]

  def pairs(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns codes int32 [steps, slots] and observations [steps, ...]."""
    length = len(self.actions)
    codes = np.repeat(self.codes[None], length, axis=0)
    return self.judged(codes), self.judged(self.observations[1:])


def truth(world: worlds.World, rollout: Rollout) -> np.ndarray | None:
  """Returns which of s_1 ... s_T are goal states, for metrics and evaluation.

  Returns:
    bool [T, W], by the ground truth or else by the world's checker; None if it
    has neither. What stands in masked steps means nothing.
  """
  if world.has_ground_truth:
    return rollout.true_rewards > 0
  if world.checker is not None:
    return world.checker(rollout.instructions, rollout.observations[1:])
  return None


class Actor(Protocol):
  """Plays the episodes of W workers."""

  def play(self, theta: tf.Tensor) -> Rollout:
    """Plays one rollout of each worker with these policy parameters."""
    ...

  def state(self) -> list[Any]:
    """Returns the workers' episodes and generators, for JSON."""
    ...

  def load(self, state: list[Any]) -> None:
    """Restores what `state` returned."""
    ...


def noise(rngs: Sequence[np.random.Generator], length: int,
          num_actions: int, greedy: bool) -> np.ndarray:
  """Draws Gumbel noise: argmax(logits + noise) is a sample of the policy.

  Returns:
    float32 [T, W, actions], each worker's from its own generator; zeros if
    `greedy`, so that the likeliest action is taken.
  """
  if greedy:
    return np.zeros([length, len(rngs), num_actions], np.float32)
  return np.stack(
      [rng.gumbel(size=[length, num_actions]).astype(np.float32)
       for rng in rngs], axis=1)


def act_program(policy: networks.Network, world: worlds.World
               ) -> Callable[..., tf.Tensor]:
  """Compiles one step of acting.

  Returns:
    A function of theta, observations uint8 [W, ...], codes int32 [W, slots]
    and noise float32 [W, actions] that returns actions int32 [W].
  """
  @tf.function(autograph=False, jit_compile=True)
  def act(theta, observations, codes, gumbel):
    logits = policy(theta, world.images(observations), codes).logits
    return tf.argmax(logits + gumbel, axis=-1, output_type=tf.int32)

  return act


def play_program(policy: networks.Network, world: worlds.World
                ) -> Callable[..., tuple[Any, ...]]:
  """Compiles a whole rollout in a world that has its rules in TensorFlow.

  Returns:
    A function of theta, observations uint8 [W, ...], codes int32 [W, slots],
    truth codes int32 [W, K], noise float32 [T, W, actions] and mask bool
    [T, W] that returns observations uint8 [T + 1, W, ...], actions int32
    [T, W], whether s_1 ... s_T are goal states, bool [T, W] (all False if the
    world gives no reward), and `results` as in `Rollout`. Where the mask is
    False a state stays as it is.
  """
  rules = world.compiled
  if rules is None:
    raise ValueError('This world has no rules in TensorFlow to compile.')

  @tf.function(autograph=False, jit_compile=True)
  def play(theta, observations, codes, truth_codes, gumbel, mask):
    def step(carry, inputs):
      state, *_ = carry
      gumbel_t, alive = inputs
      recorder = convolutions.Recorder()
      logits = policy(theta, world.images(state), codes, recorder).logits
      actions = tf.argmax(logits + gumbel_t, axis=-1, output_type=tf.int32)
      following = tf.where(
          alive[:, None], rules.step(state, actions), state)
      return following, actions, recorder.results

    # Of what is carried only the state is read; the rest has the right shape.
    _, *shapes = step((observations,), (gumbel[0], mask[0]))
    start = observations, *tf.nest.map_structure(tf.zeros_like, shapes)
    states, actions, results = tf.scan(step, (gumbel, mask), start)
    satisfied = (
        tf.zeros(actions.shape, tf.bool) if rules.satisfied is None
        else rules.satisfied(truth_codes, states))
    return (tf.concat([observations[None], states], 0), actions, satisfied,
            tuple(results))

  return play


class CompiledActor:
  """Plays whole rollouts inside one compiled program.

  The workers' environments draw the training instances, with their own seeds,
  and are not stepped.
  """

  def __init__(self, world: worlds.World,
               play: Callable[..., tuple[Any, ...]],
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Prepares W workers.

    Args:
      world: What the environments are; it has `compiled` rules.
      play: From `play_program`.
      environments: One a worker.
      rngs: One a worker, for the choice of actions.
      rollout_length: T.
      delayed: W times, whether the worker sits out the first rollout, so that
        a batch does not see the same half of all episodes.
      greedy: Whether the likeliest action is taken and none is sampled.
    """
    assert world.compiled is not None
    width = len(rngs)
    self._world = world
    self._rules = world.compiled
    self._play = play
    self._environments = list(environments)
    self._rngs = list(rngs)
    self._length = rollout_length
    self._delayed = np.array(delayed)
    self._greedy = greedy
    self._steps_left = np.zeros([width], np.int32)
    self._observations = np.zeros([width, *world.observation_shape], np.uint8)
    self._instructions = [''] * width

  def play(self, theta: tf.Tensor) -> Rollout:
    """See `Actor`."""
    rules, length = self._rules, self._length
    for w in np.flatnonzero(self._steps_left == 0):
      timestep = self._environments[w].reset()
      self._instructions[w] = timestep.observation['instruction']
      self._observations[w] = self._world.observe(
          self._environments[w], timestep)
      self._steps_left[w] = rules.episode_length
    played = np.where(
        self._delayed, 0, np.minimum(length, self._steps_left))
    mask = np.arange(length)[:, None] < played
    codes = self._world.grammar.encode(self._instructions)
    *played_out, results = self._play(
        theta, self._observations, codes,
        rules.truth_codes(self._instructions),
        noise(self._rngs, length, self._world.num_actions, self._greedy),
        mask)
    observations, actions, satisfied = (x.numpy() for x in played_out)
    self._observations = observations[-1].copy()
    self._steps_left = self._steps_left - played
    ended = self._steps_left == 0
    self._delayed = np.zeros_like(self._delayed)
    last = np.arange(length)[:, None] == played - 1
    return Rollout(
        observations, codes, actions,
        true_rewards=np.where(mask, satisfied, False).astype(np.float32),
        discounts=np.where(
            last & ended, rules.final_discount, 1.0).astype(np.float32),
        mask=mask.astype(np.float32), ended=ended,
        instructions=tuple(self._instructions), results=results)

  def state(self) -> list[Any]:
    """See `Actor`."""
    return [{
        'generator': rng.bit_generator.state,
        'environment': environment.get_state(),  # type: ignore[attr-defined]
        'observation': self._observations[w].tolist(),
        'steps_left': int(self._steps_left[w]),
        'instruction': self._instructions[w],
        'delayed': bool(self._delayed[w]),
    } for w, (rng, environment) in enumerate(
        zip(self._rngs, self._environments))]

  def load(self, state: list[Any]) -> None:
    """See `Actor`."""
    for w, row in enumerate(state):
      self._rngs[w].bit_generator.state = row['generator']
      self._environments[w].set_state(  # type: ignore[attr-defined]
          row['environment'])
      self._observations[w] = row['observation']
      self._steps_left[w] = row['steps_left']
      self._instructions[w] = row['instruction']
      self._delayed[w] = row['delayed']


class EnvironmentActor:
  """Steps dm_env environments in Python, any of them."""

  def __init__(self, world: worlds.World, act: Callable[..., tf.Tensor],
               environments: Sequence[dm_env.Environment],
               rngs: Sequence[np.random.Generator], rollout_length: int,
               delayed: Sequence[bool], greedy: bool = False):
    """Prepares W workers.

    Args:
      world: What the environments are.
      act: From `act_program`.
      environments: One a worker.
      rngs: One a worker, for the choice of actions.
      rollout_length: T.
      delayed: As for `CompiledActor`.
      greedy: As for `CompiledActor`.
    """
    self._world = world
    self._act = act
    self._environments = list(environments)
    self._rngs = list(rngs)
    self._length = rollout_length
    self._delayed = np.array(delayed)
    self._greedy = greedy
    self._timesteps: list[dm_env.TimeStep | None] = [None] * len(rngs)

  def play(self, theta: tf.Tensor) -> Rollout:
    """See `Actor`."""
    world = self._world
    length, width = self._length, len(self._environments)
    gumbel = noise(self._rngs, length, world.num_actions, self._greedy)
    timesteps = [
        environment.reset() if timestep is None or timestep.last() else timestep
        for environment, timestep in zip(self._environments, self._timesteps)]
    instructions = tuple(
        str(timestep.observation['instruction']) for timestep in timesteps)
    codes = world.grammar.encode(instructions)
    observations = np.zeros(
        [length + 1, width, *world.observation_shape], np.uint8)
    observations[0] = self._observe(timesteps)
    actions = np.zeros([length, width], np.int32)
    rewards = np.zeros([length, width], np.float32)
    discounts = np.ones([length, width], np.float32)
    mask = np.zeros([length, width], np.float32)
    for t in range(length):
      actions[t] = self._act(theta, observations[t], codes, gumbel[t])
      for w, environment in enumerate(self._environments):
        if timesteps[w].last() or self._delayed[w]:
          continue
        timesteps[w] = environment.step(actions[t, w])
        rewards[t, w] = timesteps[w].reward or 0.0
        discounts[t, w] = timesteps[w].discount
        mask[t, w] = 1
      observations[t + 1] = self._observe(timesteps)
    self._timesteps = list(timesteps)
    self._delayed = np.zeros_like(self._delayed)
    return Rollout(
        observations, codes, actions, rewards, discounts, mask,
        np.array([timestep.last() for timestep in timesteps]), instructions)

  def _observe(self, timesteps: Sequence[dm_env.TimeStep]) -> np.ndarray:
    return np.stack([
        self._world.observe(environment, timestep)
        for environment, timestep in zip(self._environments, timesteps)])

  def state(self) -> list[Any]:
    """See `Actor`; environments that cannot be saved begin a new episode."""
    rows = []
    for environment, rng, timestep, delayed in zip(
        self._environments, self._rngs, self._timesteps, self._delayed):
      saved, in_episode = None, False
      # Before its first episode an environment need not have a state.
      if timestep is not None and hasattr(environment, 'get_state'):
        saved, in_episode = environment.get_state(), not timestep.last()
      rows.append({
          'generator': rng.bit_generator.state,
          'environment': saved,
          'in_episode': in_episode,
          'delayed': bool(delayed),
      })
    return rows

  def load(self, state: list[Any]) -> None:
    """See `Actor`."""
    for w, row in enumerate(state):
      self._rngs[w].bit_generator.state = row['generator']
      self._timesteps[w] = None
      if row['environment'] is not None:
        timestep = self._environments[w].set_state(  # type: ignore
            row['environment'])
        if row['in_episode']:
          self._timesteps[w] = timestep
      self._delayed[w] = row['delayed']
