"""Finds the checkpoint with the most modelled reward among several runs.

  python -m agile_tf.choose runs/arrangements_seed0 runs/arrangements_seed1

The paper trained ten seeds on GridLU-Arrangements, which has no ground truth,
and judged the policy and reward model with the most modelled reward (section
3.4). An early reward model may accept too much, so each row also has the reward
of the same episodes under the run's last one. The default seed differs from
that of agile_tf.evaluate and agile_tf.judge: the best of many checkpoints looks
better than it is on the episodes that it was chosen by.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import json
from typing import Any, TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import program

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.evaluation import trained as trained_lib


def _reward(episodes: Iterable[played.Episode]) -> float:
  """Returns the share of states that D accepts, a mean over episodes."""
  return float(np.mean([
      episode.decisions.mean() for episode in episodes
      if episode.decisions is not None]))  # Never None here, for mypy.


def _row(run_dir: str, trained: 'trained_lib.Trained',
         last: 'trained_lib.Trained', count: int, seed: int) -> dict[str, Any]:
  """Measures a checkpoint; `last` is the newest one of its run."""
  episodes = list(trained.play(count, seed, greedy=False))
  reward = final = _reward(episodes)
  if trained.steps != last.steps:
    # Same policy and seed, so the same episodes.
    final = _reward(trained._replace(phi=last.phi).play(count, seed, False))
  row = {'run_dir': run_dir, 'step': trained.steps, 'modelled_reward': reward,
         'final_modelled_reward': final, 'success': None, 'interval': None}
  if episodes[0].truth is not None:
    success = played.rate([episode.success for episode in episodes])
    row |= {'success': success['rate'], 'interval': success['interval']}
  return row


def compare(run_dirs: Sequence[str], count: int, seed: int, world: str = ''
           ) -> list[dict[str, Any]]:
  """Measures every checkpoint of the runs.

  Returns:
    A row for each checkpoint, the one with the most modelled reward first:
    'run_dir', 'step', 'modelled_reward' under the checkpoint's own reward
    model, 'final_modelled_reward' under the run's last one (both as the share
    of states that are accepted, 0 to 1), 'success' by the ground truth or the
    checker, and its 'interval'. The last two are None if the world has neither.

  Raises:
    ConfigError, CheckpointError or WorldError: if a run or its newest
      checkpoint cannot be loaded, or it has no reward model. An older
      checkpoint that cannot be loaded is left out.
  """
  from agile_tf.evaluation import trained as trained_lib
  steps = {}
  for run_dir in run_dirs:
    config = config_lib.load(f'{run_dir}/config.json')
    if config.reward == 'environment':
      raise config_lib.ConfigError(
          f'{run_dir} has no reward model: it was trained on the ground truth. '
          'Name AGILE runs.')
    steps[run_dir] = checkpoints.steps(run_dir)
    if not steps[run_dir]:
      raise checkpoints.CheckpointError(
          f'{run_dir} has no checkpoint yet. Wait for its first one, or leave '
          'out this run.')
  rows = []
  loaded: list[trained_lib.Trained] = []
  with tqdm.tqdm(total=sum(map(len, steps.values())), unit=' checkpoints',
                 leave=False) as bar:
    for run_dir in steps:
      last = trained_lib.load(run_dir, steps[run_dir][-1], world=world)
      for other in loaded:
        if not config_lib.differences(*(
            dataclasses.asdict(each.config) | {'seed': 0}
            for each in (last, other))):
          last = last._replace(programs=other.programs)
      loaded.append(last)
      for step in steps[run_dir]:
        try:
          trained = trained_lib.at(last, run_dir, step)
          rows.append(_row(run_dir, trained, last, count, seed))
        except checkpoints.CheckpointError as error:
          logging.warning('Left out: %s', error)
        bar.update()
  return sorted(rows, key=lambda row: -row['modelled_reward'])


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns the rows of `compare` as text for the terminal."""
  width = max(len('run'), *(len(row['run_dir']) for row in rows))
  lines = [f'{"run":{width}} {"step":>12} {"modelled":>9} '
           f'{"by the last":>12} {"success":>8}   95 % interval']
  for row in rows:
    success = ''
    if row['success'] is not None:
      rate = f'{100 * row["success"]:.1f} %'
      success = f'{rate:>8}   {played.between(row["interval"])}'
    lines.append(
        f'{row["run_dir"]:{width}} {row["step"]:12} '
        f'{100 * row["modelled_reward"]:7.1f} % '
        f'{100 * row["final_modelled_reward"]:10.1f} % {success}'.rstrip())
  return '\n'.join(lines)


def define_flags() -> None:
  """Defines the program's flags."""
  options.define_world()
  options.define_episodes(200, seed=2_000_003)


@program.main(arguments=True)
def main(argv: Sequence[str]) -> None:
  """Compares the runs given as arguments and prints the table."""
  if len(argv) < 2:
    raise program.UserError(
        'Name the directories of one or more AGILE runs, such as '
        'runs/arrangements_seed*.')
  values = flags.FLAGS
  machine.prepare(config_lib.Config())
  rows = compare(argv[1:], values.episodes, values.seed, values.world)
  if values.json:
    print(json.dumps(rows, indent=2))
    return
  best = rows[0]
  print("Share of states that the checkpoint's own reward model (modelled) and "
        "the run's last one (by the last) accept.")
  print(table(rows))
  print(f'Most modelled reward: --run_dir={best["run_dir"]} '
        f'--checkpoint={best["step"]}')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
