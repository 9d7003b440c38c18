"""Selects the instructions of GridLU that a run trains on or holds out."""

import re
from typing import Any

from agile_tf import config as config_lib
from gridlu import language
from gridlu import splits
from gridlu import tasks


def instructions(config: config_lib.Config, held_out: bool = False,
                 selected: tuple[str, ...] | None = None
                ) -> tuple[tuple[language.Instruction, ...],
                           tuple[language.Instruction, ...]]:
  """Returns all instructions of a GridLU run, and those to train on.

  With `held_out` the second are those that the run held out. `selected` are the
  instructions that match --instructions, if a run has saved them.
  """
  known = tasks.find(config.world).instructions()
  if selected is None:
    known = matching(config.instructions, known)
  else:
    texts = {*selected}
    known = tuple(each for each in known if str(each) in texts)
    if len(known) != len(selected) or not known:
      unknown = sorted(texts - {*map(str, known)})
      wrong = (f'{unknown[0]!r:.100}' if unknown else
               'an instruction twice' if selected else 'no instruction')
      raise config_lib.ConfigError(
          f"{config_lib.SELECTED} in the run's config.json has {wrong}: "
          f'expected different instructions of --world={config.world}.')
  if config.held_out == 'none':
    if held_out:
      raise config_lib.ConfigError(
          'The run held no instructions out, because it has --held_out=none. '
          'Use a run with --held_out=strings or --held_out=meanings.')
    return known, known
  try:
    training, kept_out = splits.split(
        known, config.held_out, config.held_out_share, config.held_out_seed)
  except ValueError as error:
    raise config_lib.ConfigError(
        f'--held_out={config.held_out}: {error}') from error
  return known, kept_out if held_out else training


def saved(settings: dict[str, Any], path: str
         ) -> tuple[str, ...] | None:
  """Returns the instructions that a run has saved, for `instructions`.

  A run may come from others, and the search for some patterns takes for ever.
  So no pattern is used that was read from a file.
  """
  if not settings['instructions'] or settings['world'] not in tasks.TASKS:
    return None
  if config_lib.SELECTED not in settings:
    raise config_lib.ConfigError(
        f'{path} has a pattern of instructions, which is not used when a run '
        f'is loaded, but no {config_lib.SELECTED}. If you trained the run, '
        'give the command that did so again: it adds them.')
  return tuple(settings[config_lib.SELECTED])


def matching(pattern: str, known: tuple[language.Instruction, ...]
            ) -> tuple[language.Instruction, ...]:
  """Returns the instructions whose text contains a match of a pattern."""
  try:
    chosen = tuple(
        each for each in known if re.search(pattern, str(each)))
  except (re.error, OverflowError, RecursionError) as error:
    raise config_lib.ConfigError(
        f'--instructions={pattern:.200} is not a regular expression: {error}.'
        ) from error
  if not chosen:
    raise config_lib.ConfigError(
        f'--instructions={pattern:.200} matches none of the {len(known)} '
        f'instructions. One of them is {known[0]}.')
  return chosen
