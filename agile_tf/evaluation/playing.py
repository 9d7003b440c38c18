"""Episodes of a trained run, for programs that measure or show them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from absl import flags
import numpy as np
import tensorflow as tf

from agile_tf.agent import gradients as gradients_lib
from agile_tf.agent import rollouts
from agile_tf.evaluation import trained as trained_lib

_BATCH = 64  # Episodes that are played at the same time.


class Episode(NamedTuple):
  """A played episode."""
  instruction: str
  final: np.ndarray  # uint8, the final state as the world observes it
  rewarded: np.ndarray | None  # bool [n], the reward model's decisions
  truth: np.ndarray | None  # bool [n], by the ground truth or the checker
  start: np.ndarray | None = None  # uint8, the first state

  @property
  def success(self) -> bool:
    """Whether the final state is a goal state; False if nobody knows."""
    return self.truth is not None and bool(self.truth[-1])


def interval(successes: int, count: int) -> tuple[float, float]:
  """Returns Wilson's 95 % confidence interval of a rate.

  Args:
    successes: How many of them.
    count: Of how many, at least 1.
  """
  z = 1.959964
  rate = successes / count
  center = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
  half = z / (1 + z**2 / count) * np.sqrt(
      rate * (1 - rate) / count + z**2 / (4 * count**2))
  return max(0.0, center - half), min(1.0, center + half)


def between(ends: Sequence[float]) -> str:
  """Formats an interval of a rate for people."""
  low, high = ends
  return f'{100 * low:.1f} to {100 * high:.1f} %'


class Player:
  """Plays episodes with networks of one kind, whatever their parameters."""

  def __init__(self, trained: trained_lib.Trained):
    """Takes the world, the networks and the configuration of `trained`."""
    self._world, self._config = trained.world, trained.config
    self._make_actor: Callable[..., Any] = rollouts.CompiledActor
    make_program = rollouts.play_program
    if self._world.compiled is None:
      self._make_actor = rollouts.EnvironmentActor
      make_program = rollouts.act_program
    self._act = make_program(trained.policy, self._world)
    self._decide = gradients_lib.modelled_rewards_program(
        trained.discriminator, self._world, self._config.reward_form,
        self._config.reward_scale)

  def play(self, theta: tf.Tensor, phi: tf.Tensor | None,
           count: int, seed: int, greedy: bool) -> Iterable[Episode]:
    """Plays episodes.

    Args:
      theta: The policy's parameters.
      phi: The discriminator's; None to ask no reward model.
      count: How many episodes.
      seed: Decides instances and actions.
      greedy: Whether to take the likeliest action and not to sample.

    Yields:
      `count` episodes; each row of the batch plays its share, so that short
      episodes are no likelier than long ones.
    """
    world = self._world
    width = min(count, _BATCH)
    seeds = np.random.SeedSequence(seed).spawn(2 * width)
    environments = [
        world.make_environment(int(s.generate_state(1)[0]))
        for s in seeds[:width]]
    rngs = [np.random.default_rng(s) for s in seeds[width:]]
    actor = self._make_actor(
        world, self._act, environments, rngs, self._config.rollout_length,
        [False] * width, greedy)
    parts: list[list[tuple]] = [[] for _ in range(width)]
    starts: dict[int, np.ndarray] = {}
    missing = [count // width + (w < count % width) for w in range(width)]
    while any(missing):
      rollout = actor.play(theta)
      rewarded = None
      if phi is not None:
        _, decisions = self._decide(phi, rollout.observations, rollout.codes)
        rewarded = decisions.numpy()
      truth = rollouts.truth(world, rollout)
      for w in range(width):
        steps = int(rollout.mask[:, w].sum())
        starts.setdefault(w, rollout.observations[0, w])
        parts[w].append(tuple(
            None if values is None else values[:steps, w]
            for values in (rewarded, truth)))
        if rollout.ended[w] and missing[w]:
          judged, truths = (
              None if values[0] is None else np.concatenate(values)
              for values in zip(*parts[w]))
          yield Episode(
              rollout.instructions[w], rollout.observations[steps, w], judged,
              truths, starts[w])
          missing[w] -= 1
        if rollout.ended[w]:
          parts[w] = []
          del starts[w]


def play(trained: trained_lib.Trained, count: int, seed: int,
         greedy: bool) -> Iterable[Episode]:
  """Plays episodes of a run; see `Player.play`."""
  return Player(trained).play(
      trained.theta, trained.phi, count, seed, greedy)


def define_flags(episodes: int) -> None:
  """Defines the flags of programs that play a run's episodes and report.

  Args:
    episodes: How many they play by default.
  """
  flags.DEFINE_string(
      'run_dir', None, "The run's directory.", required=True)
  flags.DEFINE_integer(
      'episodes', episodes, 'How many episodes to play.', lower_bound=1)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')
  flags.DEFINE_integer(
      'seed', 1_000_003, 'Decides instances and actions.', lower_bound=0)
  flags.DEFINE_bool(
      'greedy', False, 'Take the likeliest action instead of sampling.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')
