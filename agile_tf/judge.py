"""Lets people judge a policy by the final states of its episodes.

  python -m agile_tf.judge --run_dir=runs/arrangements --episodes=200

People judged GridLU-Arrangements in the paper (section 3.4). This program plays
episodes and writes judge.html, a page for one or several people with the keys
y, n and u (undo). The browser keeps the answers and saves answers.json at the
end. The verdicts of checker or ground truth and reward model are beside it.

  python -m agile_tf.judge --run_dir=runs/arrangements --answers=a.json,b.json

reports each person's success rate, and how often people and verdicts agree.
"""

from collections.abc import Sequence
import json
import os

from absl import flags

from agile_tf import config as config_lib
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import judge_report
from agile_tf.evaluation import options
from gridlu import files
from gridlu import program


def define_flags() -> None:
  """Defines the program's flags."""
  options.define_run(required=False)
  options.define_world()
  options.define_episodes(200)
  options.define_greedy()
  flags.DEFINE_string(
      'output', None, 'The page to write, with a file of cases beside it; '
      "default: judge.html in the run's directory.")
  flags.DEFINE_list('answers', [], 'Report on these files of answers.')
  flags.DEFINE_string(
      'cases', None, 'The file of cases for --answers; default: '
      "judge_cases.json in the run's directory.")


@program.main()
def main(argv: Sequence[str]) -> None:
  """Writes the page of a run, or reports on answers."""
  del argv
  values = flags.FLAGS
  if values.answers:
    cases = values.cases or os.path.join(values.run_dir, 'judge_cases.json')
    report = judge_report.report(cases, values.answers)
    print(json.dumps(report, indent=2) if values.json else
          judge_report.table(report))
    return
  if not values.run_dir:
    raise program.UserError('Give --run_dir, or --answers and --cases.')
  config_lib.load(os.path.join(values.run_dir, 'config.json'))
  output = values.output or os.path.join(values.run_dir, 'judge.html')
  files.check_output('output', output, '.html')
  if os.path.exists(output):
    raise program.UserError(
        f'--output={output} exists, and people may be answering it. Name '
        'another file, or remove it.')
  trained = options.load(values, world=values.world)
  episodes = options.play(trained, values)
  page, cases = judge_page.make(episodes, trained.world)
  beside = output.removesuffix('.html') + '_cases.json'
  for path, text in (beside, json.dumps(cases, indent=2)), (output, page):
    with files.replacing(path) as file:
      file.write(text)
  print(f'Open {output} or send it to others, but keep {beside}.')


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
