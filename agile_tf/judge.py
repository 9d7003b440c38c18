"""Lets people judge a policy by the final states of its episodes.

  python -m agile_tf.judge --run_dir=runs/arrangements --episodes=200

People judged GridLU-Arrangements in the paper (section 3.4). This program plays
episodes and writes judge.html, a page for one or several people with the keys
y, n and u (undo). The browser keeps the answers and saves answers.json at the
end. judge_cases.json, beside the page, has the verdicts of the reward model and
of the checker or the ground truth; --answers needs it.

  python -m agile_tf.judge --run_dir=runs/arrangements --answers=a.json,b.json

reports each person's success rate, and how often people and verdicts agree.
"""

from collections.abc import Sequence
import itertools
import json
import os
from typing import Any

from absl import flags

from agile_tf import records
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from agile_tf.recipe import settings
from gridlu import files
from gridlu import flagfiles
from gridlu import program
from gridlu import schema

_CASES = schema.named({'page': schema.TEXT, 'cases': schema.each(schema.named({
    'groups': schema.each(schema.TEXT),
    'verdicts': schema.by_name(schema.BOOL)}))})
_ANSWERS = schema.named({
    'page': schema.TEXT, 'answers': schema.TEXT,
    'rater': schema.either(schema.TEXT, schema.whole(0))})


def _read(path: str, check: schema.Check) -> dict[str, Any]:
  """Returns the content of a JSON file that fits a check."""
  try:
    return records.json_file(path, check, 2**26)
  except (OSError, ValueError, MemoryError) as error:
    raise program.UserError(
        f'{path} cannot be read: {error}. Expected a file that agile_tf.judge '
        'or its page has saved. The cases are beside the page, which --output '
        'names.') from error


def _read_cases(path: str) -> tuple[str, list[dict[str, Any]]]:
  """Returns the page and the cases of a file that `judge_page.make` made."""
  content = _read(path, _CASES)
  cases = content['cases']
  if not cases:
    raise program.UserError(f'{path} has no cases: expected at least one.')
  names = list(cases[0]['verdicts'])
  for i, case in enumerate(cases):
    if {*case['verdicts']} != {*names}:
      raise program.UserError(
          f'{path}: cases[{i}].verdicts has {", ".join(case["verdicts"])}; '
          f'expected {", ".join(names)}, as in cases[0].')
  return content['page'], cases


def report(cases_path: str, paths: Sequence[str]) -> str:
  """Returns the report on files of answers, one of each person, as text.

  It has the success rates of these people and of the verdicts in the cases, by
  group, and how often each pair of these judges agrees.
  """
  page, cases = _read_cases(cases_path)
  people: dict[str, str] = {}
  judges = {}
  for path in paths:
    saved = _read(path, _ANSWERS)
    answers, rater = saved['answers'], str(saved['rater'])
    if saved['page'] != page:
      raise program.UserError(f'{path} has answers to another page than '
                              f'{cases_path}. Name its page with --output.')
    if len(answers) != len(cases) or {*answers} - {'y', 'n'}:
      raise program.UserError(
          f'{path} has {len(answers)} answers; expected y or n for each of '
          f'{len(cases)} episodes. Finish the page and save it again.')
    if rater in people:
      raise program.UserError(f'{people[rater]} and {path} have the answers of '
                              'one person. Leave out one of them.')
    if path in cases[0]['verdicts']:
      raise program.UserError(
          f'{path} has the name of a verdict in {cases_path}, so the report '
          'could not tell them apart. Rename the file of answers.')
    people[rater] = path
    judges[path] = [answer == 'y' for answer in answers]
  for name in cases[0]['verdicts']:
    judges[name] = [case['verdicts'][name] for case in cases]
  width = max(18, *map(len, judges))
  lines = [f'{"judge":{width}}    episodes    success   95 % interval']
  for name, verdicts in judges.items():
    for group in sorted({group for case in cases for group in case['groups']}):
      row = played.rate([verdict for verdict, case in zip(verdicts, cases)
                         if group in case['groups']])
      lines.append(
          f'{name:{width}} {group:>8} {row["episodes"]:4} '
          f'{100 * row["rate"]:7.1f} %   {played.between(row["interval"])}')
  for one, other in itertools.combinations(judges, 2):
    row = played.rate([a == b for a, b in zip(judges[one], judges[other])])
    lines.append(f'{one} and {other} agree in {100 * row["rate"]:.1f} % '
                 f'({played.between(row["interval"])})')
  return '\n'.join(lines)


def _define_flags() -> None:
  options.define_run()
  options.define_episodes(200)
  options.define_play()
  program.define_path(
      'output', None, 'The page, with a file of cases beside it; default: '
      "judge.html in the run's directory.")
  flags.DEFINE_list(
      'answers', [], 'Report on these files of answers to the page.')


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Writes the page of a run, or reports on answers."""
  values = flags.FLAGS
  output = values.output or os.path.join(values.run_dir, 'judge.html')
  cases_path = output.removesuffix('.html') + '_cases.json'
  if values.answers:
    print(program.printable(
        report(cases_path, list(map(program.clean_path, values.answers)))))
    return
  settings.load(os.path.join(values.run_dir, 'config.json'))
  files.check_output('output', output, '.html')
  files.check_output('output', cases_path, '.json')
  for path in output, cases_path:
    if os.path.exists(path):
      raise program.UserError(
          f'{path} exists, and people may be answering this page. Name another '
          '--output, or remove it.')
  trained = options.load(values)
  episodes = options.play(trained, values)
  page, cases = judge_page.make(episodes, trained.world)
  # If the disk is full, neither file is written.
  with files.replacing(cases_path) as cases_file, (
      files.replacing(output)) as page_file:
    cases_file.write(json.dumps(cases, indent=2))
    cases_file.flush()
    page_file.write(page)
  print(program.printable(
      f'Open {output} or send it to others, but keep {cases_path}.'))


if __name__ == '__main__':
  main()
