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
import itertools
import json
import os
from typing import Any

from absl import flags

from agile_tf import config as config_lib
from agile_tf.evaluation import judge_page
from agile_tf.evaluation import options
from agile_tf.evaluation import played
from gridlu import files
from gridlu import program


def _read(path: str, keys: set[str]) -> dict[str, Any]:
  """Returns the content of a JSON file that has these keys."""
  try:
    with open(path, encoding='utf-8') as file:
      content = files.parse_json(file.read())
    if not isinstance(content, dict) or not content.keys() >= keys:
      raise ValueError(f'it is not an object with {", ".join(sorted(keys))}')
  except (OSError, ValueError) as error:
    raise program.UserError(
        f'{path} cannot be read: {error}. Expected a file that agile_tf.judge '
        'or its page has saved.') from error
  return content


def _kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
  """Returns Cohen's kappa; None if both always give the same verdict."""
  p, q = sum(one) / len(one), sum(other) / len(other)
  chance = p * q + (1 - p) * (1 - q)
  same = sum(a == b for a, b in zip(one, other)) / len(one)
  return None if chance == 1 else (same - chance) / (1 - chance)


def report(cases_path: str, paths: Sequence[str]) -> dict[str, Any]:
  """Returns the report on files of answers, one of each person.

  It has 'success', by judge (the files, then those of the cases) and group, and
  'agreement' of each pair of 'judges', with Cohen's 'kappa'; both with the
  values of `played.rate`.
  """
  content = _read(cases_path, {'page', 'cases'})
  cases = content['cases']
  people: dict[str, str] = {}
  judges = {}
  for path in paths:
    saved = _read(path, {'page', 'rater', 'answers'})
    answers, rater = str(saved['answers']), str(saved['rater'])
    if saved['page'] != content['page']:
      raise program.UserError(f'{path} has answers to another page than '
                              f'{cases_path}. Name its cases with --cases.')
    if len(answers) != len(cases) or {*answers} - {'y', 'n'}:
      raise program.UserError(
          f'{path} has {len(answers)} answers; expected y or n for each of '
          f'{len(cases)} episodes. Finish the page and save it again.')
    if rater in people:
      raise program.UserError(f'{people[rater]} and {path} have the answers of '
                              'one person. Leave out one of them.')
    people[rater] = path
    judges[path] = [answer == 'y' for answer in answers]
  for name in cases[0]['verdicts']:
    judges[name] = [case['verdicts'][name] for case in cases]
  groups = sorted({group for case in cases for group in case['groups']})
  return {
      'success': {
          name: {
              group: played.rate([
                  verdict for verdict, case in zip(verdicts, cases)
                  if group in case['groups']]) for group in groups
          } for name, verdicts in judges.items()},
      'agreement': [
          {'judges': [one, other], 'kappa': _kappa(judges[one], judges[other]),
           **played.rate([a == b for a, b in zip(judges[one], judges[other])])}
          for one, other in itertools.combinations(judges, 2)]}


def table(values: dict[str, Any]) -> str:
  """Returns a report as text for the terminal."""
  lines = ['judge                 episodes    success   95 % interval']
  for name, groups in values['success'].items():
    for group, row in groups.items():
      lines.append(
          f'{name:18} {group:>8} {row["episodes"]:4} {100 * row["rate"]:7.1f} '
          f'%   {played.between(row["interval"])}')
  for row in values['agreement']:
    kappa = '-' if row['kappa'] is None else f'{row["kappa"]:.2f}'
    lines.append(
        f'{" and ".join(row["judges"])} agree in {100 * row["rate"]:.1f} % '
        f'({played.between(row["interval"])}), kappa {kappa}')
  return '\n'.join(lines)


def define_flags() -> None:
  """Defines the program's flags."""
  options.define_run(required=False)
  options.define_world()
  options.define_episodes(200)
  options.define_greedy()
  program.define_path(
      'output', None, 'The page to write, with a file of cases beside it; '
      "default: judge.html in the run's directory.")
  flags.DEFINE_list('answers', [], 'Report on these files of answers.')
  program.define_path(
      'cases', None, 'The file of cases for --answers; default: '
      "judge_cases.json in the run's directory.")


@program.main()
def main(argv: Sequence[str]) -> None:
  """Writes the page of a run, or reports on answers."""
  del argv
  values = flags.FLAGS
  if values.answers:
    cases = values.cases or os.path.join(values.run_dir, 'judge_cases.json')
    found = report(cases, list(map(program.clean_path, values.answers)))
    print(json.dumps(found, indent=2) if values.json else
          program.printable(table(found)))
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
