"""Lets a person judge a policy by the final states of its episodes.

  python -m agile_tf.judge --run_dir=runs/arrangements --episodes=200

The paper has no reward function for GridLU-Arrangements: people looked at the
final states of 200 episodes (section 3.4). This plays such episodes and shows
them in a web page of this machine alone, without any automatic verdict: y if
the instruction was done, n if not, u takes the last answer back. Every answer
is in a file of the run directory at once; the same command goes on with the
first episode that has none. In the end it reports the success, for 4 and for 8
blocks too, and the agreement with the world's own judge; at Ctrl-C, what the
person has answered.
`--automatic` reports that judge's verdicts alone.

For a run on another machine, forward the port: with --port=8000 there, `ssh -L
8000:127.0.0.1:8000 MACHINE` here.
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
from agile_tf.evaluation import trained as trained_lib
from agile_tf.training import machine
from gridlu import program


def define_flags() -> None:
  """Defines the program's flags."""
  options.define_flags(episodes=200)
  flags.DEFINE_bool(
      'automatic', False, "Report what the world's ground truth or checker "
      'says, without a page and without a person.')
  flags.DEFINE_integer(
      'port', 0, 'Where the page is served, on 127.0.0.1; 0 takes any free '
      'port.', lower_bound=0, upper_bound=65535)


def _say(text: str) -> None:
  """Tells the person at the terminal; the report alone goes to stdout."""
  print(text, file=sys.stderr, flush=True)


def judge(run_dir: str, checkpoint: int | None, series: judge_cases.Series,
          automatic: bool, port: int) -> dict[str, Any]:
  """Plays the episodes of a run and has them judged.

  Args:
    run_dir: The run's directory, where the answers are kept.
    checkpoint: Its step; None for the newest.
    series: Which episodes; its step is replaced by the checkpoint's.
    automatic: Whether to ask the world's judge alone.
    port: See `make_server`.

  Returns:
    The report.

  Raises:
    ConfigError, CheckpointError, WorldError or JudgeError: if that is not
      possible.
  """
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
        'neither a ground truth nor a checker. Leave --automatic out and '
        'judge yourself.')
  episodes = trained._replace(phi=None).play(  # Asks no reward model.
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
        f'{len(answers.values)} of them answered. Ctrl-C ends this; '
        f'{answers.path} has every answer.'))
  return {**report, 'answers': answers.path, **session.report()}


@program.main()
def main(argv: Sequence[str]) -> None:
  """Has a run judged and prints the report."""
  del argv
  values = flags.FLAGS
  machine.prepare(config_lib.Config())
  try:
    report = judge(
        values.run_dir, values.checkpoint,
        judge_cases.Series(-1, values.seed, values.episodes, values.greedy),
        values.automatic, values.port)
  except KeyboardInterrupt:
    sys.exit('Stopped before there was anything to judge; the answers are as '
             'they were.')
  if values.json:
    print(json.dumps(report, indent=2))
  else:
    print(f'{values.run_dir} at step {report["steps"]}, '
          f'{"greedy" if values.greedy else "sampled"} actions')
    print(judge_report.table(report))


if __name__ == '__main__':
  program.run(main, define_flags)
