"""The page on which people judge the final states of played episodes."""

import base64
from collections.abc import Sequence
import hashlib
import io
import json
import pathlib
from typing import Any, TYPE_CHECKING

import numpy as np
from PIL import Image

from agile_tf.evaluation import played
from gridlu import language
from gridlu import pictures
from gridlu import rendering
from gridlu import world as world_lib

# The programs import what needs TensorFlow after they have read their flags.
if TYPE_CHECKING:
  from agile_tf.agent import worlds

_AGENT = ('<p>The dark grey square is the agent. If it is white, the agent '
          'carries the block in it.</p>')
_FORMS = ('<p>A form may be anywhere on the board, rotated or mirrored. Its '
          'colours in the picture mean nothing. Connected and Disconnected '
          'mean the forms that have these names in the picture, and no '
          'others. SCENE: all blocks make the form. Color(...): the blocks of '
          'that colour make it; the others may be anywhere.</p>')


def _png(pixels: np.ndarray) -> str:
  """Returns uint8 [H, W, 3] as the address of an inlined PNG."""
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, 'PNG')
  return ('data:image/png;base64,' +
          base64.b64encode(buffer.getvalue()).decode())


def _legend() -> str:
  """Returns what explains the words of GridLU-Arrangements, as HTML.

  It is a picture of each form, as in figure 3, and a text.
  """
  words, states = zip(*pictures.figure_3_vocabulary())
  sheet = rendering.contact_sheet(
      pictures.render(states), words, columns=4, scale=2)
  return f'<img src="{_png(sheet)}" alt="Examples of each form">{_FORMS}'


def make(episodes: Sequence[played.Episode], world: 'worlds.World'
        ) -> tuple[str, dict[str, Any]]:
  """Returns the page as HTML, and what must not be on it, for `judge.report`.

  This is 'page', a hash of all that is shown, and 'cases', each with its
  'groups' and the 'verdicts' of the ground truth or checker and of the reward
  model, as far as these exist.
  """
  has_board = world.observation_shape == (world_lib.PACKED_SIZE,)
  judge = 'ground truth' if world.has_ground_truth else 'checker'
  shown, cases = [], []
  for episode in episodes:
    image, = world.pixels(episode.states[-1:])
    shown.append({'instruction': episode.instruction, 'image': _png(image)})
    groups, verdicts = ['all'], {}
    if has_board:
      count = np.count_nonzero(world_lib.unpack(episode.states[-1]).blocks)
      groups.append(f'{count} blocks')
    if episode.truth is not None:
      verdicts[judge] = episode.success
    if episode.decisions is not None:
      verdicts['reward model'] = bool(episode.decisions[-1])
    cases.append({'groups': groups, 'verdicts': verdicts})
  page = hashlib.sha256(json.dumps(shown).encode()).hexdigest()
  legend = _AGENT if has_board else ''
  if all(episode.instruction.split('(')[0] in language.Arrangement.words
         for episode in episodes):
    legend = _legend() + legend
  # A '<' could end the page's script.
  data = json.dumps({'page': page, 'cases': shown}).replace('<', r'\u003c')
  text = pathlib.Path(__file__).with_suffix('.html').read_text('utf-8')
  return (text.replace('<!--legend-->', legend).replace('<!--data-->', data),
          {'page': page, 'cases': cases})
