"""Measures what a run has learned, on episodes of its own.

  python -m agile_tf.evaluate --run_dir=runs/relations --episodes=1000

Success is that the final state of an episode is a goal state. Beside the
success rate stand its 95 % confidence interval (Wilson's), the share of the
episodes that could be solved at all in their length (see `gridlu.solver`), and
what the reward model says of every state that the policy reaches, against the
ground truth.
"""

from collections.abc import Callable, Iterable, Sequence
import json
import os
import sys
from typing import Any, NamedTuple

from absl import app
from absl import flags
import numpy as np
from PIL import Image
import tensorflow as tf
import tqdm

from agile_tf import checkpoints
from agile_tf import config as config_lib
from agile_tf import curves
from agile_tf import learning
from agile_tf import machine
from agile_tf import metrics
from agile_tf import rollouts
from agile_tf import trained as trained_lib
from agile_tf import worlds
from gridlu import language
from gridlu import rendering
from gridlu import solver
from gridlu import tasks
from gridlu import world as board

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
    self._decide = learning.modelled_rewards_program(
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


def _groups(episode: Episode) -> list[str]:
  """The rows of the table that an episode counts for."""
  text = episode.instruction
  root = text.split('(', 1)[0]
  if root == text:  # Not in a language of terms.
    return ['all']
  if root in language.ARRANGEMENTS and episode.start is not None:
    count = int(np.count_nonzero(board.unpack(episode.start).blocks))
    return ['all', f'{count} blocks', root]
  if root in language.RELATIONS:
    return ['all', 'go to' if 'AGENT' in text else 'bring to', root]
  return ['all', root]


def solvable(episodes: Sequence[Episode], config: config_lib.Config
            ) -> np.ndarray | None:
  """Returns which episodes could have succeeded, by exact search.

  Args:
    episodes: Played ones.
    config: Of the run: its world, episode length and physics.

  Returns:
    bool [episodes], None for a world other than GridLU. An instance on which
    the search was given up (see `gridlu.solver`) counts as solvable.
  """
  if config.world not in tasks.TASKS:
    return None
  states = board.unpack(np.array([episode.start for episode in episodes]))
  steps = solver.shortest(
      [episode.instruction for episode in episodes], states,
      board.PHYSICS[config.physics], max_steps=config.episode_length)
  return steps != solver.UNSOLVABLE


def summarize(episodes: Sequence[Episode], possible: np.ndarray | None = None
             ) -> dict[str, Any]:
  """Counts successes and the reward model's errors.

  Args:
    episodes: Played ones.
    possible: bool [episodes], which could have succeeded, if that is known.

  Returns:
    'success': by group (all; kind of instruction, or number of blocks; relation
    or word) the episodes, the rate, its interval and the share that was
    'solvable'; 'reward_model': accuracy, false positives and false negatives
    as shares of all decisions, if both sides are known; and
    'modelled_success', the share of final states that the reward model
    accepts, and its 'modelled_interval', if there is one.
  """
  report: dict[str, Any] = {'episodes': len(episodes)}
  truth = [
      episode.truth for episode in episodes if episode.truth is not None]
  if truth:
    groups: dict[str, list[bool]] = {}
    ceilings: dict[str, list[bool]] = {}
    for i, episode in enumerate(episodes):
      for group in _groups(episode):
        groups.setdefault(group, []).append(episode.success)
        if possible is not None:
          ceilings.setdefault(group, []).append(bool(possible[i]))
    order = ['all', 'go to', 'bring to', '4 blocks', '8 blocks']
    report['success'] = {
        group: {
            'episodes': len(groups[group]),
            'rate': float(np.mean(groups[group])),
            'interval': interval(sum(groups[group]), len(groups[group])),
            'solvable': (
                float(np.mean(ceilings[group])) if ceilings else None),
        } for group in sorted(
            groups, key=lambda g: (order.index(g) if g in order else 9, g))}
  rewarded = [
      episode.rewarded for episode in episodes
      if episode.rewarded is not None]
  if rewarded:
    accepted = [bool(r[-1]) for r in rewarded]
    report['modelled_success'] = float(np.mean(accepted))
    report['modelled_interval'] = interval(sum(accepted), len(accepted))
    if truth:
      report['reward_model'] = metrics.decisions(
          np.concatenate(rewarded), np.concatenate(truth))
  return report


def table(report: dict[str, Any]) -> str:
  """Formats a summary for people."""
  lines = []
  if 'success' in report:
    lines.append(f'{"instructions":14} {"episodes":>8} {"success":>8}   95 % '
                 'interval       solvable')
    for group, row in report['success'].items():
      ceiling = (
          '' if row['solvable'] is None else f'{100 * row["solvable"]:5.1f} %')
      lines.append(
          f'{group:14} {row["episodes"]:8} {100 * row["rate"]:6.1f} %   '
          f'{between(row["interval"]):18} {ceiling}'.rstrip())
  if 'modelled_success' in report:
    lines.append('')
    lines.append('The reward model accepts '
                 f'{100 * report["modelled_success"]:.1f} % of final states '
                 f'({between(report["modelled_interval"])}).')
  if 'reward_model' in report:
    values = report['reward_model']
    lines.append(
        'On all states that the policy reached it is right in '
        f'{100 * values["reward_model_accuracy"]:.1f} %; false positives '
        f'{100 * values["false_positives"]:.1f} %, false negatives '
        f'{100 * values["false_negatives"]:.1f} %.')
  return '\n'.join(lines)


def picture(episodes: Sequence[Episode], world: worlds.World) -> np.ndarray:
  """Draws final states with their instructions, uint8 [H, W, 3]."""
  images = world.pixels(np.stack([episode.final for episode in episodes]))
  captions = []
  for episode in episodes:
    verdict = 'reached' if episode.success else 'not reached'
    if episode.truth is None:
      verdict = 'no ground truth'
    captions.append(f'{episode.instruction}: {verdict}')
  return rendering.contact_sheet(images, captions)


def define_play_flags(episodes: int) -> None:
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


def define_flags() -> None:
  """Defines the program's flags."""
  define_play_flags(episodes=1000)
  flags.DEFINE_bool(
      'held_out', False, 'Play the instructions that the run held out, in '
      'place of those that it trained on.')
  flags.DEFINE_string(
      'instructions', '', 'Play only instructions in whose text this regular '
      'expression is found.')
  flags.DEFINE_enum(
      'physics', None, tuple(board.PHYSICS),
      "Play under other physics than the run's.")
  flags.DEFINE_string(
      'picture', None, 'A PNG file for the final states of 24 episodes.')


def main(argv: Sequence[str]) -> None:
  """Evaluates a run."""
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {" ".join(argv[1:])}.')
  values = flags.FLAGS
  if values.picture:
    folder = os.path.dirname(os.path.abspath(values.picture))
    if not values.picture.lower().endswith('.png') or not os.access(
        folder, os.W_OK):
      sys.exit(f'Error: --picture={values.picture}: expected the name of a '
               '.png file in a directory that can be written.')
  machine.prepare(config_lib.Config())
  try:
    trained = trained_lib.load(
        values.run_dir, values.checkpoint, values.held_out,
        values.instructions, values.physics or '')
    best = None
    if os.path.exists(os.path.join(values.run_dir, 'metrics.csv')):
      best = curves.best(curves.read(values.run_dir))
  except (config_lib.ConfigError, checkpoints.CheckpointError,
          curves.CurveError, worlds.WorldError) as error:
    sys.exit(f'Error: {error}')
  episodes = list(tqdm.tqdm(
      play(trained, values.episodes, values.seed, values.greedy),
      total=values.episodes, unit=' episodes', disable=values.json,
      leave=False))
  report = {
      'run_dir': values.run_dir, 'steps': trained.steps,
      'greedy': values.greedy, 'seed': values.seed,
      'held_out': values.held_out, 'instructions': values.instructions,
      'physics': trained.config.physics,
      'best_logged': best and best._asdict(),
      **summarize(episodes, solvable(episodes, trained.config))}
  if values.picture:
    Image.fromarray(picture(episodes[:24], trained.world)).save(values.picture)
  if values.json:
    print(json.dumps(report, indent=2))
  else:
    print(f'{values.run_dir} at step {trained.steps}, '
          f'{"greedy" if values.greedy else "sampled"} actions')
    print(table(report))
    if best is not None:
      print(f'Best success rate in metrics.csv: {100 * best.rate:.1f} %, at '
            f'step {best.steps}.')


if __name__ == '__main__':
  define_flags()
  app.run(main)
