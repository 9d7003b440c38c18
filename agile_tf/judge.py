"""Lets a person judge a policy by the final states of its episodes.

  python -m agile_tf.judge --run_dir=runs/arrangements --episodes=200

The paper has no reward function for GridLU-Arrangements: people looked at the
final states of 200 episodes (section 3.4). This program plays episodes and
shows their final states on a web page that only this machine can open. Press y
if the instruction was carried out, n if not, and u to undo the last answer.

Each answer is saved in the run directory at once. The same command continues
with the first episode that has no answer. The automatic judge (the ground truth
or the checker) stays hidden until all episodes are answered. Then the report
has the success rates by the person and by the automatic judge, also by the
number of blocks, and how often both agree. After Ctrl-C it has the person's
answers so far. `--automatic` reports the automatic judge alone.

If the run is on another machine, start this program there with --port=8000 and
forward the port: `ssh -L 8000:127.0.0.1:8000 MACHINE`.
"""

from collections.abc import Sequence
import json
import sys
from typing import Any

from absl import flags
import tqdm

from agile_tf import config as config_lib
from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import judge_report
from agile_tf.evaluation import options
from agile_tf.training import machine
from gridlu import program


def define_flags() -> None:
  """Defines the program's flags."""
  options.define_flags(episodes=200)
  flags.DEFINE_bool(
      'automatic', False, "Report the verdicts of the world's ground truth or "
      'checker; no person judges.')
  flags.DEFINE_integer(
      'port', 0, 'The port of the page, on 127.0.0.1; 0 takes any free port.',
      lower_bound=0, upper_bound=65535)


def _say(text: str) -> None:
  """Prints to stderr, because stdout is for the report."""
  print(text, file=sys.stderr, flush=True)


def judge(run_dir: str, checkpoint: int | None, series: judge_cases.Series,
          automatic: bool, port: int) -> dict[str, Any]:
  """Plays the episodes of a run, has them judged and returns the report.

  Args:
    run_dir: The run's directory, where the answers are saved.
    checkpoint: The checkpoint's step; None for the newest.
    series: Which episodes to play. Its `step` is ignored; the checkpoint's
      step takes its place.
    automatic: Whether to use the automatic judge alone, without a person.
    port: See `judge_page.make_server`.

  Returns:
    The report of `judge_report.summarize`, with 'run_dir', 'steps', 'greedy',
    'seed' and, if a person judged, 'answers', the path of the answers.

  Raises:
    ConfigError, CheckpointError or WorldError: if the run cannot be loaded.
    JudgeError: if the episodes cannot be judged.
  """
  # Needs TensorFlow, which is imported after the flags are read.
  from agile_tf.evaluation import trained as trained_lib  # pylint: disable=g-import-not-at-top
  trained = trained_lib.load(run_dir, checkpoint)
  world = trained.world
  series = series._replace(step=trained.steps)
  name = 'ground truth' if world.has_ground_truth else 'checker'
  answers = None
  if not automatic:
    for note in judge_cases.other_answers(run_dir, series):
      _say(f'Note: {note}')
    answers = judge_cases.Answers(series.path(run_dir), series)
  elif not world.has_ground_truth and world.checker is None:
    raise judge_cases.JudgeError(
        f'--automatic: the world of {run_dir}, {trained.config.world!r}, has '
        'neither a ground truth nor a checker. Leave out --automatic and judge '
        'the episodes yourself.')
  episodes = trained._replace(phi=None).play(  # Without a reward model.
      series.episodes, series.seed, series.greedy)
  cases = judge_cases.make_cases(
      list(tqdm.tqdm(episodes, total=series.episodes, unit=' episodes',
                     disable=None, leave=False)), world)
  report = {'run_dir': run_dir, 'steps': trained.steps,
            'greedy': series.greedy, 'seed': series.seed}
  if answers is None:
    return {**report, **judge_report.summarize(cases, None, name)}
  session = judge_page.Session(cases, answers, name)
  if not session.complete:
    judge_page.serve(session, port, lambda address: _say(
        f'Open {address} to judge {series.episodes} episodes, '
        f'{len(answers.values)} of them answered. Ctrl-C stops. Each answer is '
        f'saved at once, in {answers.path}.'))
  return {**report, 'answers': answers.path, **session.report()}


@program.main()
def main(argv: Sequence[str]) -> None:
  """Judges a run and prints the report."""
  del argv
  values = flags.FLAGS
  machine.prepare(config_lib.Config())
  try:
    report = judge(
        values.run_dir, values.checkpoint,
        judge_cases.Series(-1, values.seed, values.episodes, values.greedy),
        values.automatic, values.port)
  except KeyboardInterrupt:
    sys.exit('Stopped before the first answer. Earlier answers are '
             'unchanged.')
  if values.json:
    print(json.dumps(report, indent=2))
  else:
    print(f'{values.run_dir} at step {report["steps"]}, '
          f'{"greedy" if values.greedy else "sampled"} actions')
    print(judge_report.table(report))


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
