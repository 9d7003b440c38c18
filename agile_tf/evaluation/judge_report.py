"""What a person's answers say: success, and agreement with another judge."""

from collections.abc import Sequence
from typing import Any

from agile_tf.evaluation import judge_cases
from agile_tf.evaluation import played


def rates(cases: Sequence[judge_cases.Case],
          done: Sequence[bool]) -> dict[str, dict[str, Any]]:
  """Counts successes.

  Args:
    cases: Any number of cases.
    done: One verdict for each, of whomever.

  Returns:
    By group ('all', and '4 blocks' and so on where there are boards) the
    episodes, the rate and its 95 % confidence interval.
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
  """Reports what a person and the world's judge say.

  Args:
    cases: All of a series.
    answers: A person's, to the first of them; None to ask the world's judge
      alone, about all.
    judge: What the world's judge is called.

  Returns:
    'episodes' and 'judged', how many; 'person' and 'automatic', their
    `rates` over the judged episodes; and 'agreement': on how many of these
    they agree, with rate and interval, and how many are a success to the
    person alone and to the automatic judge alone. What nobody can say is
    left out, and what the world's judge says as long as the person is not
    done, who may go on and shall stay blind to it.
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
  """Returns a rate and its interval for people."""
  return (f'{100 * values["rate"]:.1f} %',
          played.between(values['interval']))


def rows(report: dict[str, Any]) -> list[list[str]]:
  """Lays a report out as a table, its headings first; [] if it is empty."""
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
  """Returns what a report says beside its table, in sentences."""
  lines = [f'{report["judged"]} of {report["episodes"]} episodes are judged.']
  if 'agreement' in report:
    values = report['agreement']
    judge = report['automatic_judge']
    rate, interval = _percent(values)
    lines.append(
        f'The person and the {judge} agree on {values["episodes"]} of them '
        f'({rate}; 95 % interval {interval}). A success to the person alone: '
        f'{values["person_alone"]}; to the {judge} alone: '
        f'{values["automatic_alone"]}.')
  return lines


def table(report: dict[str, Any]) -> str:
  """Formats a report for a terminal."""
  lines = []
  for group, judge, count, success, interval in rows(report):
    lines.append(
        f'{group:10} {judge:12} {count:>6} {success:>8}   {interval}')
  return '\n'.join([*lines, *notes(report)])
