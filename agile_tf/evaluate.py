"""Measures what a run has learned, on new episodes.

  python -m agile_tf.evaluate --run_dir=runs/relations --episodes=1000

An episode succeeds if its final state is a goal state. The report has the
success rate with its 95 % confidence interval (Wilson's), the share of episodes
that can be solved within the episode length (see `gridlu.solver`), the share of
all episodes that reached a goal state at some step, and the errors of the
reward model on all states that the policy reached, by the ground truth or the
checker. For GridLU it also has two tests. One has the share of goal states that
the reward model still accepts after two colours, two shapes, the direction or
the roles were exchanged, so that they are goal states no longer. The other has,
for each number of other blocks on the board, the share of goal states that it
accepts. For several thresholds the report has the share of the policy's states
that the reward model accepts, its errors where the truth is known, and what it
accepts of the goal examples that the run held out (--held_out_goals).
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import os
from typing import Any, TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np
from PIL import Image

from agile_tf import config as config_lib
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from agile_tf.recipe import settings
from gridlu import files
from gridlu import flagfiles
from gridlu import language
from gridlu import program
from gridlu import recording
from gridlu import rendering
from gridlu import solver
from gridlu import tasks
from gridlu import world as world_lib

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.agent import worlds
  from agile_tf.evaluation import trained as trained_lib

_ANIMATED = 6  # The most episodes that an animation shows.
_TESTED = 5000  # The most held-out goal examples that the report is about.
_FRAMES = 200  # The most frames of an animation: longer episodes skip some.


def _groups(episode: played.Episode) -> list[str]:
  """Returns the groups of the report that an episode belongs to."""
  try:
    instruction = language.parse(episode.instruction)
  except language.InstructionError:  # It is not GridLU's.
    root, bracket, _ = episode.instruction.partition('(')
    return ['all', root] if bracket else ['all']
  start = episode.states[0]
  is_board = start.shape == (world_lib.PACKED_SIZE,)
  return ['all', *tasks.find(instruction.task).groups(
      instruction, world_lib.unpack(start) if is_board else None)]


def solvable(episodes: Sequence[played.Episode], config: config_lib.Config
            ) -> np.ndarray | None:
  """Returns which episodes can be solved, by exact search, bool [episodes].

  It is None for a world other than GridLU, and for a task in which a block that
  the agent carries does not count: for the solver it does. An episode on which
  the solver gives up (see `gridlu.solver`) counts as one that cannot be solved.
  """
  if config.world not in tasks.TASKS or (
      not tasks.find(config.world).carried_counts):
    return None
  states = world_lib.unpack(
      np.array([episode.states[0] for episode in episodes]))
  steps = solver.shortest(
      [episode.instruction for episode in episodes], states,
      world_lib.PHYSICS[config.physics], max_steps=config.episode_length)
  return steps >= 0


def summarize(episodes: Sequence[played.Episode],
              possible: np.ndarray | None = None) -> dict[str, Any]:
  """Returns the report on played episodes.

  `possible`, bool [episodes], says which can be solved, if that is known.

  Returns:
    'success' has, for each group, `played.rate` and the share that is
    'solvable', None if it is not known. 'reached' has `played.rate` of the
    episodes with a goal state at any step. 'modelled_success' is the share of
    final states that the reward model accepts, 'modelled_interval' its
    confidence interval, and 'reward_model' has the shares of its errors in all
    decisions. The keys that need a truth or a reward model are left out without
    it.
  """
  report: dict[str, Any] = {'episodes': len(episodes)}
  truth = [
      episode.truth for episode in episodes if episode.truth is not None]
  if truth:
    first = ['all', *(group for task in tasks.TASKS.values()
                      for group in task.first_groups)]
    # The indices of the episodes of each group.
    members: dict[str, list[int]] = {group: [] for group in first}
    for i, episode in enumerate(episodes):
      for group in _groups(episode):
        members.setdefault(group, []).append(i)
    report['success'] = {
        group: {
            **played.rate([episodes[i].success for i in members[group]]),
            'solvable': (None if possible is None else
                         float(np.mean(possible[members[group]]))),
        } for group in [*first, *sorted(members.keys() - first)]
        if members[group]}
    report['reached'] = played.rate([bool(values.any()) for values in truth])
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


def held_out_goals(trained: 'trained_lib.Trained', run_dir: str
                  ) -> dict[str, np.ndarray]:
  """Returns D's probabilities of the goal examples that a run held out.

  They are by kind, as `held_out_goals.GoalTest` returns them; {} if the run
  held none out. If the file of its goal examples is missing or has changed, a
  warning says so, and {} is returned.
  """
  from agile_tf.recipe import variations
  from agile_tf.training import building
  from agile_tf.training import held_out_goals as held_out_goals_lib
  path = os.path.join(program.clean_path(run_dir), 'config.json')
  config, recipe = settings.load(path)
  if not config.held_out_goals or trained.phi is None:
    return {}
  variation = variations.make(config, recipe)
  # The settings of this plan have the hash of the file that is here now.
  plan = building.Plan(dataclasses.replace(config, world=trained.config.world))
  try:
    there, here = (values.get(config_lib.DATASET_SHA256) for values in (
        config_lib.read(path), plan.settings))
    # It is None here if they are generated, or if the file is missing, which
    # `make_goal_examples` will find out.
    if here not in (None, there):
      raise program.UserError(
          f'they are not those of the run, whose file has the SHA-256 {there}')
    _, goals = held_out_goals_lib.divide(
        building.make_goal_examples(
            config, trained.world, variation.carrying, variation.distractors),
        trained.world, config.held_out_goals)
  except (OSError, program.UserError) as error:
    logging.warning(
        'The goal examples that the run held out are left out of the report '
        '(%s).', error)
    return {}
  assert goals is not None
  return held_out_goals_lib.GoalTest(goals, _TESTED).probabilities(
      trained.discriminator_programs, trained.phi)


def judgement(episodes: Sequence[played.Episode], config: config_lib.Config,
              goals: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns how good the reward model is, from its probabilities.

  Args:
    episodes: The episodes that the policy played.
    config: The configuration of the run.
    goals: What `held_out_goals` returned.

  Returns:
    'thresholds' as of `judged.by_threshold`, of the policy's states and of the
    held-out goal examples; where a truth is known also 'reliability', as of
    `judged.reliability`. {} without a reward model.
  """
  from agile_tf.evaluation import judged
  found = [episode.probabilities for episode in episodes
           if episode.probabilities is not None]
  if not found:
    return {}
  values = np.concatenate(found)
  truths = [episode.truth for episode in episodes if episode.truth is not None]
  truth = np.concatenate(truths) if truths else None
  report: dict[str, Any] = {'thresholds': judged.by_threshold(
      {judged.POLICY_STATES: values, **goals}, truth,
      (*judged.THRESHOLDS, config.reward_threshold))}
  if truth is not None:
    report['reliability'] = judged.reliability(values, truth)
  return report


def table(report: dict[str, Any]) -> str:
  """Returns the report of `summarize` as text for the terminal."""
  lines = []
  if 'success' in report:
    known = any(row['solvable'] is not None
                for row in report['success'].values())
    lines.append(f'{"instructions":14} {"episodes":>8} {"success":>8}   95 % '
                 f'interval       {"solvable" if known else ""}'.rstrip())
    for group, row in report['success'].items():
      ceiling = (
          '' if row['solvable'] is None else f'{100 * row["solvable"]:5.1f} %')
      lines.append(
          f'{group:14} {row["episodes"]:8} {100 * row["rate"]:6.1f} %   '
          f'{played.between(row["interval"]):18} {ceiling}'.rstrip())
  if 'reached' in report:
    values = report['reached']
    lines += ['', 'A goal state was reached at some step, the last or another, '
              f'in {100 * values["rate"]:.1f} % of episodes '
              f'({played.between(values["interval"])}).']
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
  if 'thresholds' in report:
    lines += ['', *_thresholds_table(report['thresholds'])]
  if 'reliability' in report:
    lines += ['', "How often the policy's states are goal states, by the "
              'probability D that the reward model gives them:',
              f'{"D":10} {"states":>8} {"mean D":>8} {"goal states":>12}']
    lines += [
        f'{row["low"]:g} to {row["high"]:<3g} {row["states"]:8} '
        f'{row["mean_probability"]:8.3f} {100 * row["goal_states"]:10.1f} %'
        for row in report['reliability']]
  for key, title, column in (
      ('exchanges', 'Goal states in which something was exchanged, so that '
       'they are none any more:', 'exchanged'),
      ('crowds', 'Goal states by how many blocks there are besides those that '
       'the instruction needs:', 'other blocks')):
    if key in report:
      lines += ['', title, f'{column:18} {"states":>8} {"accepted":>9}']
      lines += [
          f'{name:18} {row["states"]:8} {100 * row["accepted"]:7.1f} %'
          for name, row in report[key].items()]
  return '\n'.join(lines)


# The table by thresholds has a column for each of these keys of the report. The
# values are the titles of the columns.
_BY_THRESHOLD = {
    'policy_states_accepted': "policy's states",
    'false_positives': 'wrongly accepted',
    'false_negatives': 'wrongly rejected',
    'held_out_goals_accepted': 'held-out goals',
    'mismatched_goals_accepted': 'mismatched goals',
}


def _thresholds_table(rows: Sequence[Mapping[str, float]]) -> list[str]:
  """Returns the lines of the table by thresholds."""
  there = {name: title for name, title in _BY_THRESHOLD.items()
           if name in rows[0]}
  goals = (' and of goal examples' if 'held_out_goals_accepted' in there else
           '')
  return [
      f"Shares of the policy's states{goals} that D accepts,",
      'and of its errors on the states, by the threshold that D must exceed.',
      ' '.join([f'{"D >":6}', *(f'{title:>16}' for title in there.values())]),
      *(' '.join([f'{row["threshold"]:<6g}', *(
          f'{100 * row[name]:14.1f} %' for name in there)]) for row in rows)]


def goal_tests(trained: 'trained_lib.Trained') -> dict[str, Any]:
  """Returns how many goal states the reward model accepts, in two tests.

  Returns:
    By exchange and by number of other blocks (see `diagnostics`) the number of
    'states' and the share 'accepted', as 'exchanges' and 'crowds'; {} without a
    reward model and for a world other than GridLU.
  """
  from agile_tf.training import diagnostics
  from agile_tf.worlds import gridlu_world
  if trained.phi is None or not isinstance(
      trained.world, gridlu_world.GridLUWorld):
    return {}
  return {
      name: test(trained.world).accepted(
          trained.discriminator_programs, trained.phi)
      for name, test in (('exchanges', diagnostics.ExchangeTest),
                         ('crowds', diagnostics.CrowdTest))}


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
  threshold = trained.config.reward_threshold
  length = max(len(episode.states) for episode in episodes)
  for i in np.linspace(0, length - 1, min(length, _FRAMES), dtype=int):
    images = trained.world.pixels(np.stack([
        episode.states[min(i, len(episode.states) - 1)]
        for episode in episodes]))
    captions = texts
    if model is not None:
      values = model(images, texts)
      captions = [
          f'D = {value:.2f}{", accepted" if value > threshold else ""}\n{text}'
          for value, text in zip(values, texts)]
      width = images.shape[2]
      # The first row of a bar is white, like the picture's background. The rest
      # is light grey, with D in black if the state is accepted, else in grey.
      bars = np.full((len(images), width // 14, width, 3), 255, np.uint8)
      for bar, value in zip(bars, values):
        bar[1:] = 225
        bar[1:, :int(np.ceil(width * value))] = (
            0 if value > threshold else 140)
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
      'physics', None, tuple(world_lib.PHYSICS),
      "The physics of the episodes; default: the run's.")
  flags.DEFINE_bool(
      'solved_starts', None, 'Whether an episode may begin in a goal state; '
      'default: as in the run. For GridLU tasks with a ground truth.')
  program.define_path(
      'output', None, 'Write the report as JSON to this file too.')
  program.define_path(
      'picture', None, f'Write the final states of {options.PICTURED} episodes '
      f'to this PNG file, or animate {_ANIMATED} episodes in this GIF file.')


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Evaluates a run."""
  values = flags.FLAGS
  if values.output:
    files.check_output('output', values.output)
    options.check_outside(values.run_dir, 'output', values.output)
    if values.picture and os.path.realpath(values.picture) == os.path.realpath(
        values.output):
      raise program.UserError(
          f'--picture={values.picture} is also --output: name two files.')
  if values.picture:
    files.check_output('picture', values.picture, '.png', '.gif')
  trained = options.load(
      values, held_out_instructions=values.held_out,
      physics=values.physics or '', solved_starts=values.solved_starts)
  from agile_tf.worlds import gridlu_world
  # Only these worlds know which starts are goal states, and can leave them out.
  knows_solved_starts = (
      isinstance(trained.world, gridlu_world.GridLUWorld) and
      trained.world.has_ground_truth)
  if values.solved_starts is not None and not knows_solved_starts:
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
          trained.config.solved_starts if knows_solved_starts else None),
      **summarize(episodes, solvable(episodes, trained.config))}
  report |= judgement(
      episodes, trained.config, held_out_goals(trained, values.run_dir))
  report |= {
      name: rows for name, rows in goal_tests(trained).items() if rows}
  if values.output:
    with files.replacing(values.output) as file:
      json.dump(report, file, indent=2)
  if values.picture:
    animated = values.picture.lower().endswith('.gif')
    shown = episodes[:_ANIMATED if animated else options.PICTURED]
    with files.replacing(values.picture, 'wb') as file:
      if animated:
        frames = list(animate(shown, trained))
        # The first frame is shown for one second, and the last for three.
        recording.save_frames(
            file, frames, [1, *[0.4] * (len(frames) - 2), 3])
      else:
        Image.fromarray(picture(shown, trained.world)).save(file, 'PNG')
    print(f'{program.printable(values.picture)}: {len(shown)} of '
          f'{len(episodes)} episodes')
  actions = 'greedy' if values.greedy else 'sampled'
  starts = ''  # Some tasks do not know which starts are goal states.
  if report['solved_starts'] is not None:
    starts = (', also from starts that are goal states'
              if report['solved_starts'] else
              ', from no start that is a goal state')
  print(program.printable(
      f'{values.run_dir} at step {trained.steps}: '
      f'{options.describe(trained, values.instructions)}, '
      f'{actions} actions{starts}'))
  print(program.printable(table(report)))


if __name__ == '__main__':
  main()
