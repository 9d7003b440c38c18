"""The report on what people answered: success rates and agreement."""

from collections.abc import Sequence
import itertools
from typing import Any

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

  Returns:
    'success', by judge (the files, then those of the cases) and group, and
    'agreement' of each pair of 'judges', with Cohen's 'kappa'. Both have the
    values of `played.rate`. A file that cannot be used raises UserError.
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
