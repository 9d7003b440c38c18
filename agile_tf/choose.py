"""Finds the checkpoint with the most modelled reward among several runs.

  python -m agile_tf.choose runs/arrangements_seed0 runs/arrangements_seed1

The modelled reward is the share of states that the reward model accepts. The
paper trained ten seeds on GridLU-Arrangements, which has no ground truth, and
judged the policy and reward model with the most modelled reward (section 3.4).
The default seed differs from that of agile_tf.evaluate and
agile_tf.judge: the best of many checkpoints looks better than it is on the
episodes that it was chosen by.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags
from absl import logging
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import flagfiles
from gridlu import program


class Row(NamedTuple):
  """What the networks of a checkpoint do in new episodes."""
  run_dir: str
  step: int
  # The share of states that its reward model accepts, a mean over episodes.
  modelled_reward: float
  # `played.rate`, by the ground truth or checker; None if there is neither.
  success: dict[str, Any] | None


def compare(run_dirs: Sequence[str], count: int, seed: int, world: str = '',
            model: str = '') -> list[Row]:
  """Measures every checkpoint; the first row has the most modelled reward.

  Raises:
    ConfigError, CheckpointError or WorldError: if a run or its newest
      checkpoint cannot be loaded, or it has no reward model. An older
      checkpoint that cannot be loaded is left out.
  """
  from agile_tf.evaluation import trained as trained_lib  # It loads TensorFlow.
  newest = {run_dir: trained_lib.load(run_dir, world=world, model=model)
            for run_dir in run_dirs}
  for run_dir, trained in newest.items():
    if trained.phi is None:
      raise config_lib.ConfigError(
          f'{run_dir} has no reward model: it was trained on the ground truth. '
          'Name AGILE runs.')
  rows = []
  for run_dir, loaded in newest.items():
    for step in tqdm.tqdm(checkpoints.steps(run_dir), run_dir, leave=False,
                          unit=' checkpoints', disable=None):
      try:
        trained = trained_lib.at(loaded, run_dir, step)
      except checkpoints.CheckpointError as error:
        logging.warning('Left out: %s', error)
        continue
      episodes = list(trained.play(count, seed, greedy=False))
      rows.append(Row(
          run_dir, step, float(np.mean([
              np.mean(episode.decisions) for episode in episodes
              if episode.decisions is not None])),  # It is never None here.
          None if episodes[0].truth is None else
          played.rate([episode.success for episode in episodes])))
  return sorted(rows, key=lambda row: -row.modelled_reward)


def table(rows: Sequence[Row]) -> str:
  """Returns the rows of `compare` as text for the terminal."""
  width = max(len('run'), *(len(row.run_dir) for row in rows))
  lines = [f'{"run":{width}} {"step":>12} {"modelled":>9}  success   95 % '
           'interval']
  for row in rows:
    success = row.success and (f'{100 * row.success["rate"]:6.1f} %   '
                               f'{played.between(row.success["interval"])}')
    lines.append(f'{row.run_dir:{width}} {row.step:12} '
                 f'{100 * row.modelled_reward:7.1f} % {success or ""}'.rstrip())
  return '\n'.join(lines)


def _define_flags() -> None:
  options.define_code()
  options.define_episodes(200, seed=2_000_003)


@program.main(_define_flags, arguments=True, expand=flagfiles.expand)
def main(run_dirs: Sequence[str]) -> None:
  """Compares the runs given as arguments and prints the table."""
  if not run_dirs:
    raise program.UserError(
        'Name the directories of one or more AGILE runs, such as '
        'runs/arrangements_seed*.')
  values = flags.FLAGS
  run_dirs = list(map(program.clean_path, run_dirs))
  for run_dir in run_dirs:
    options.check(run_dir, world=values.world, model=values.model)
  machine.prepare(config_lib.Config())  # It reads only `devices`, here 'auto'.
  rows = compare(
      run_dirs, values.episodes, values.seed, values.world, values.model)
  print("Share of states that the checkpoint's own reward model accepts "
        '(modelled).')
  print(program.printable(
      f'{table(rows)}\nMost modelled reward: --run_dir={rows[0].run_dir} '
      f'--checkpoint={rows[0].step}'))


if __name__ == '__main__':
  main()
