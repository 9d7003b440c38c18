"""The report on judged episodes: success rates and agreement of the judges."""

from collections.abc import Sequence
from typing import Any

from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import played


def rates(cases: Sequence[judge_cases.Case],
          done: Sequence[bool]) -> dict[str, dict[str, Any]]:
  """Returns success rates by group.

  Args:
    cases: N cases.
    done: N verdicts of one judge, the person or the automatic one.

  Returns:
    For each group ('all', and on boards '4 blocks' and so on) the number of
    'episodes', the 'rate' and its 95 % confidence 'interval'.
  """
  groups: dict[tuple[int, str], list[bool]] = {}
  for case, value in zip(cases, done, strict=True):
    groups.setdefault((0, 'all'), []).append(value)
    if case.blocks is not None:
      groups.setdefault(
          (case.blocks, f'{case.blocks} blocks'), []).append(value)
  return {
      name: {
          'episodes': len(values),
          'rate': sum(values) / len(values),
          'interval': played.interval(sum(values), len(values)),
      } for (_, name), values in sorted(groups.items())}


def summarize(cases: Sequence[judge_cases.Case], answers: Sequence[bool] | None,
              judge: str) -> dict[str, Any]:
  """Returns the report of a person and of the automatic judge.

  Omits keys that cannot be computed. The verdicts of the automatic judge are
  withheld until every case is answered, so that they cannot influence the
  person.

  Args:
    cases: All cases of a series.
    answers: The person's answers to the first cases; None to report the
      automatic judge alone, on all cases.
    judge: The name of the automatic judge.

  Returns:
    A dictionary with these keys.
    'episodes', 'judged': how many there are, and how many are judged.
    'automatic_judge': its name.
    'person', 'automatic': the `rates` of each judge on the judged episodes.
    'agreement': on how many 'episodes' both judges agree, with 'rate' and
      'interval', and how many only one of them calls a success
      ('person_alone', 'automatic_alone').
  """
  if answers is not None:
    judged = cases[:len(answers)]
  else:
    judged = cases
  report: dict[str, Any] = {
      'episodes': len(cases), 'judged': len(judged), 'automatic_judge': judge}
  if not judged:
    return report
  if answers is not None:
    report['person'] = rates(judged, answers)
    if len(judged) < len(cases):
      return report
  verdicts = [case.verdict for case in judged if case.verdict is not None]
  if len(verdicts) < len(judged):
    return report
  report['automatic'] = rates(judged, verdicts)
  if answers is not None:
    pairs = list(zip(answers, verdicts))
    same = sum(one == other for one, other in pairs)
    report['agreement'] = {
        'episodes': same,
        'rate': same / len(pairs),
        'interval': played.interval(same, len(pairs)),
        'person_alone': pairs.count((True, False)),
        'automatic_alone': pairs.count((False, True)),
    }
  return report


def _percent(values: dict[str, Any]) -> tuple[str, str]:
  """Returns a rate and its interval as text."""
  return (f'{100 * values["rate"]:.1f} %',
          played.between(values['interval']))


def rows(report: dict[str, Any]) -> list[list[str]]:
  """Returns the rows of the report's table, headings first; [] if empty."""
  lines = []
  by_judge = [
      (name, report[key])
      for key, name in (('person', 'person'),
                        ('automatic', report['automatic_judge']))
      if key in report]
  for group in by_judge[0][1] if by_judge else ():
    for name, groups in by_judge:
      lines.append([group, name, str(groups[group]['episodes']),
                    *_percent(groups[group])])
  if not lines:
    return []
  return [['episodes', 'judge', 'count', 'success', '95 % interval'], *lines]


def notes(report: dict[str, Any]) -> list[str]:
  """Returns the sentences below the report's table."""
  lines = [f'{report["judged"]} of {report["episodes"]} episodes are judged.']
  if 'agreement' in report:
    values = report['agreement']
    judge = report['automatic_judge']
    rate, interval = _percent(values)
    lines.append(
        f'The person and the {judge} agree on {values["episodes"]} of them '
        f'({rate}; 95 % interval {interval}). A success for the person alone: '
        f'{values["person_alone"]}; for the {judge} alone: '
        f'{values["automatic_alone"]}.')
  return lines


def table(report: dict[str, Any]) -> str:
  """Returns a report as text for the terminal."""
  lines = []
  for group, judge, count, success, interval in rows(report):
    lines.append(
        f'{group:10} {judge:12} {count:>6} {success:>8}   {interval}')
  return '\n'.join([*lines, *notes(report)])
