"""Splits off held-out instructions, which an agent does not see in training.

The paper holds out a tenth of the instructions (section 3.3). But every one of
GridLU-Relations has a twin with the same meaning, and most twins remain in
training. The second way of splitting keeps them together.
"""

from collections.abc import Sequence

import numpy as np

from gridlu import language

WAYS = ('strings', 'meanings')


def split(
    instructions: Sequence[language.Instruction | str], way: str, share: float,
    seed: int
) -> tuple[tuple[language.Instruction, ...],
           tuple[language.Instruction, ...]]:
  """Returns the instructions for training and the held-out ones, at random.

  'strings' draws single instructions, and 'meanings' draws them together with
  their twins. `share` of them is held out. Both sides keep the order.
  """
  if way not in WAYS:
    raise ValueError(f'way is {way!r}: expected one of {WAYS}.')
  if not 0 < share < 1:
    raise ValueError(f'share is {share}: expected more than 0 and less than 1.')
  instructions = language.checked(instructions)
  members: dict[language.Instruction, list[int]] = {}
  for i, instruction in enumerate(instructions):
    key = instruction.canonical if way == 'meanings' else instruction
    members.setdefault(key, []).append(i)
  count = round(share * len(members))
  if not 0 < count < len(members):
    raise ValueError(
        f'{share:g} of {len(members)} {way} are {count}: a side would be '
        'empty. Take another share, or more instructions.')
  groups = list(members.values())
  chosen = np.random.default_rng(seed).permutation(len(groups))[:count]
  held_out = {i for group in chosen for i in groups[group]}
  return (
      tuple(x for i, x in enumerate(instructions) if i not in held_out),
      tuple(x for i, x in enumerate(instructions) if i in held_out))
