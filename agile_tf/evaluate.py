"""Measures what a run has learned, on new episodes.

  python -m agile_tf.evaluate --run_dir=runs/relations --episodes=1000

An episode succeeds if its final state is a goal state. The report has the
success rate with its 95 % confidence interval (Wilson's), the share of episodes
that can be solved within the episode length (see `gridlu.solver`), and the
errors of the reward model on all states that the policy reached, by the ground
truth or the checker.
"""

from collections.abc import Iterator, Sequence
import json
from typing import Any, TYPE_CHECKING

from absl import flags
import numpy as np
from PIL import Image

from agile_tf import config as config_lib
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from gridlu import files
from gridlu import language
from gridlu import program
from gridlu import recording
from gridlu import rendering
from gridlu import solver
from gridlu import tasks
from gridlu import world as board

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.agent import worlds
  from agile_tf.evaluation import trained as trained_lib

_ANIMATED = 6  # The most episodes that an animation shows.
_FRAMES = 200  # The most frames of an animation: longer episodes skip some.


def _groups(episode: played.Episode) -> list[str]:
  """Returns the groups of the report that an episode belongs to."""
  try:
    instruction = language.parse(episode.instruction)
  except language.InstructionError:  # Not a GridLU instruction.
    root, bracket, _ = episode.instruction.partition('(')
    return ['all', root] if bracket else ['all']
  start = episode.states[0]
  is_board = start.shape == (board.PACKED_SIZE,)
  return ['all', *tasks.find(instruction.task).groups(
      instruction, board.unpack(start) if is_board else None)]


def solvable(episodes: Sequence[played.Episode], config: config_lib.Config
            ) -> np.ndarray | None:
  """Returns which episodes can be solved, by exact search, bool [episodes].

  None for a world other than GridLU. An episode on which the solver gives up
  (see `gridlu.solver`) does not count.
  """
  if config.world not in tasks.TASKS:
    return None
  states = board.unpack(np.array([episode.states[0] for episode in episodes]))
  steps = solver.shortest(
      [episode.instruction for episode in episodes], states,
      board.PHYSICS[config.physics], max_steps=config.episode_length)
  return steps >= 0


def summarize(episodes: Sequence[played.Episode],
              possible: np.ndarray | None = None) -> dict[str, Any]:
  """Returns the report on played episodes.

  `possible`, bool [episodes], says which can be solved, if that is known. Keys
  that cannot be computed are left out: 'success' has, for each group,
  `played.rate` and the share that is 'solvable'; 'modelled_success' is the
  share of final states that the reward model accepts, 'reward_model' the
  shares of its errors in all decisions.
  """
  report: dict[str, Any] = {'episodes': len(episodes)}
  truth = [
      episode.truth for episode in episodes if episode.truth is not None]
  if truth:
    first = ['all', *(group for task in tasks.TASKS.values()
                      for group in task.first_groups)]
    rows: dict[str, list[int]] = {group: [] for group in first}
    for i, episode in enumerate(episodes):
      for group in _groups(episode):
        rows.setdefault(group, []).append(i)
    report['success'] = {
        group: {
            **played.rate([episodes[i].success for i in rows[group]]),
            'solvable': (None if possible is None else
                         float(np.mean(possible[rows[group]]))),
        } for group in [*first, *sorted(rows.keys() - first)] if rows[group]}
  decisions = [
      episode.decisions for episode in episodes
      if episode.decisions is not None]
  if decisions:
    accepted = played.rate([bool(values[-1]) for values in decisions])
    report['modelled_success'] = accepted['rate']
    report['modelled_interval'] = accepted['interval']
    if truth:
      from agile_tf.training import metrics
      report['reward_model'] = metrics.decision_errors(
          np.concatenate(decisions), np.concatenate(truth))
  return report


def table(report: dict[str, Any]) -> str:
  """Returns the report of `summarize` as text for the terminal."""
  lines = []
  if 'success' in report:
    lines.append(f'{"instructions":14} {"episodes":>8} {"success":>8}   95 % '
                 'interval       solvable')
    for group, row in report['success'].items():
      ceiling = (
          '' if row['solvable'] is None else f'{100 * row["solvable"]:5.1f} %')
      lines.append(
          f'{group:14} {row["episodes"]:8} {100 * row["rate"]:6.1f} %   '
          f'{played.between(row["interval"]):18} {ceiling}'.rstrip())
  if 'modelled_success' in report:
    lines += ['', 'The reward model accepts '
              f'{100 * report["modelled_success"]:.1f} % of final states '
              f'({played.between(report["modelled_interval"])}).']
  if 'reward_model' in report:
    values = report['reward_model']
    lines.append(
        'On all states that the policy reached it is right in '
        f'{100 * values["reward_model_accuracy"]:.1f} %; false positives '
        f'{100 * values["false_positives"]:.1f} %, false negatives '
        f'{100 * values["false_negatives"]:.1f} %.')
  return '\n'.join(lines)


def picture(episodes: Sequence[played.Episode],
            world: 'worlds.World') -> np.ndarray:
  """Returns a picture of the final states with captions, uint8 [H, W, 3]."""
  images = world.pixels(np.stack([episode.states[-1] for episode in episodes]))
  return rendering.contact_sheet(images, [
      f'{episode.instruction}: ' + (
          'no ground truth' if episode.truth is None else
          'reached' if episode.success else 'not reached')
      for episode in episodes])


def animate(episodes: Sequence[played.Episode],
            trained: 'trained_lib.Trained') -> Iterator[np.ndarray]:
  """Yields the frames of an animation, uint8 [H, W, 3], all of one size.

  The episodes are played side by side, each with D(c, s) as a number and a
  bar. An episode that has ended shows its last state.
  """
  texts = [episode.instruction for episode in episodes]
  model = None if trained.phi is None else trained.as_reward_model()
  length = max(len(episode.states) for episode in episodes)
  for i in np.linspace(0, length - 1, min(length, _FRAMES), dtype=int):
    images, captions = trained.world.pixels(np.stack(
        [episode.states[:i + 1][-1] for episode in episodes])), texts
    if model is not None:
      values = model(images, texts)
      captions = [f'D = {value:.2f}{", accepted" if value > 0.5 else ""}\n'
                  f'{text}' for value, text in zip(values, texts)]
      width = images.shape[2]
      bars = np.full((len(images), width // 14, width, 3), 255, np.uint8)
      for bar, value in zip(bars, values):
        bar[1:] = 225
        bar[1:, :int(np.ceil(width * value))] = 0 if value > 0.5 else 140
      images = np.concatenate([images, bars], axis=1)
    yield rendering.contact_sheet(images, captions, columns=3, scale=4)


def _define_flags() -> None:
  options.define_run()
  options.define_episodes(1000)
  options.define_play()
  flags.DEFINE_bool(
      'held_out', False, 'Play the instructions that the run held out, '
      'instead of those that it was trained on.')
  flags.DEFINE_enum(
      'physics', None, tuple(board.PHYSICS),
      "The physics of the episodes; default: the run's.")
  flags.DEFINE_bool(
      'solved_starts', None, 'Whether an episode may begin in a goal state; '
      'default: as in the run. For GridLU tasks with a ground truth.')
  program.define_path(
      'output', None, 'Write the report as JSON to this file too.')
  program.define_path(
      'picture', None, f'Write the final states of {options.PICTURED} episodes '
      f'to this PNG file, or animate {_ANIMATED} episodes in this GIF file.')


@program.main(_define_flags)
def main() -> None:
  """Evaluates a run."""
  values = flags.FLAGS
  if values.output:
    files.check_output('output', values.output)
  if values.picture:
    files.check_output('picture', values.picture, '.png', '.gif')
  trained = options.load(
      values, held_out=values.held_out, physics=values.physics or '',
      solved_starts=values.solved_starts)
  draws_starts = (  # So that they may leave goal states out.
      trained.world.compiled is not None and trained.world.has_ground_truth)
  if values.solved_starts is not None and not draws_starts:
    raise program.UserError(
        f'--{"" if values.solved_starts else "no"}solved_starts: '
        f'--world={trained.config.world} has no ground truth that says which '
        'starts are goal states. Leave the flag out.')
  episodes = options.play(trained, values)
  report = {
      'run_dir': values.run_dir, 'steps': trained.steps,
      'world': trained.config.world,
      'greedy': values.greedy, 'seed': values.seed,
      'held_out': values.held_out, 'instructions': values.instructions,
      'physics': trained.config.physics,
      'solved_starts': (
          trained.config.solved_starts if draws_starts else None),
      **summarize(episodes, solvable(episodes, trained.config))}
  if values.output:
    with files.replacing(values.output) as file:
      json.dump(report, file, indent=2)
  if values.picture:
    animated = values.picture.lower().endswith('.gif')
    shown = episodes[:_ANIMATED if animated else options.PICTURED]
    with files.replacing(values.picture, 'wb') as file:
      if animated:
        frames = list(animate(shown, trained))
        recording.save_frames(
            file, frames, [1, *[0.4] * (len(frames) - 2), 3])
      else:
        Image.fromarray(picture(shown, trained.world)).save(file, 'PNG')
    print(f'{values.picture}: {len(shown)} of {len(episodes)} episodes')
  print(f'{program.printable(values.run_dir)} at step {trained.steps}, '
        f'{"greedy" if values.greedy else "sampled"} actions' +
        {None: '', True: ', also from starts that are goal states',
         False: ', from no start that is a goal state'}[
             report['solved_starts']])
  print(program.printable(table(report)))


if __name__ == '__main__':
  main()
