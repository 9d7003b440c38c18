"""Finds the image and the instruction of a state that an environment shows.

Gymnasium has no rule for where they are. So whoever brings an environment names
them, by keys or by functions.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from gridlu import program

# A source is a key of the observation; several keys, of which the first one
# that is there counts; or a function of one environment's observation and info.
Source: TypeAlias = (
    str | tuple[str, ...] | Callable[[Any, Mapping[str, Any]], Any])


def is_source(value: Any) -> bool:
  """Returns whether a value is a source; a list of keys is one too."""
  keys = [value] if isinstance(value, str) else value
  return callable(value) or bool(
      isinstance(keys, list | tuple) and keys and
      all(isinstance(key, str) for key in keys))


class Reading:
  """Finds the image and the instruction of a state."""

  def __init__(self, image: Source, instruction: Source):
    for name, source in ('image', image), ('instruction', instruction):
      if not is_source(source):
        raise program.UserError(
            f'{name} is {source!r:.100}: expected a key of the observation, a '
            'tuple of keys, or a function of observation and info.')
    self._image = image
    self._instruction = instruction

  def __call__(self, observation: Any, info: Mapping[str, Any]
              ) -> tuple[np.ndarray, str]:
    """Returns the image and the text, or raises UserError."""
    found = _found('image', self._image, observation, info)
    try:
      image = np.asarray(found)
    except ValueError as error:  # It is lists of different lengths.
      raise program.UserError(
          f'The image is no array ({error}): expected uint8 [H, W, 3].'
      ) from error
    if image.dtype != np.uint8 or len(image.shape) != 3:
      raise program.UserError(
          f'The image is {image.dtype} {list(image.shape)}: expected uint8 '
          '[H, W, 3]. Name what has it by image=..., a key of the observation '
          'or a function of observation and info.')
    text = _found('instruction', self._instruction, observation, info)
    if not isinstance(text, str):
      shown = ' '.join(repr(text).split())
      raise program.UserError(
          f'The instruction is {shown:.100}: expected a text. Name what has it '
          'by instruction=..., a key of the observation or a function of '
          'observation and info.')
    if not text.strip():
      raise program.UserError(
          f'The instruction is a blank text of {len(text)} characters: '
          'expected words. Make an AsyncVectorEnv with shared_memory=False, '
          'because Gymnasium 1.4 returns blank texts from shared memory.')
    return image, text


def _found(name: str, source: Source, observation: Any,
           info: Mapping[str, Any]) -> Any:
  """Returns what a source gives for an observation and info, or UserError."""
  if callable(source):
    return source(observation, info)
  keys = (source,) if isinstance(source, str) else source
  if isinstance(observation, Mapping):
    for key in keys:
      if key in observation:
        return observation[key]
  there = (f'a dict with {", ".join(map(str, observation))}'
           if isinstance(observation, Mapping) else
           f'a {type(observation).__name__}')
  raise program.UserError(
      f'The observation has no {" or ".join(map(repr, keys))}; it is {there}. '
      f'Name what has the {name} by {name}=..., a key of the observation or a '
      'function of observation and info.')
