"""A run's networks as functions of images and instructions."""

from collections.abc import Callable, Mapping, Sequence, Set
import contextlib
from typing import Any

import numpy as np

from agile_tf import numpy_networks
from gridlu import program

# So many images are computed at a time; TensorFlow then takes 1 GB.
_LARGEST = 1000

# A network maps images, float32 [N, H, W, 3] in [0, 1], and N instructions to
# logits, float32 [N, ...].
Network = Callable[[np.ndarray, Sequence[str]], np.ndarray]


def checked(images: Any, instructions: Sequence[str],
            image_shape: Sequence[int]) -> np.ndarray:
  """Returns images as uint8 [N, *image_shape] of N instructions.

  Anything else is a ValueError.
  """
  count = _count(instructions)
  shape = [count, *image_shape]
  try:
    images = np.asarray(images)
  except ValueError as error:  # They are lists of different lengths.
    raise ValueError(
        f'images is no array ({error}); expected uint8 {shape}.') from error
  if not count and images.shape[:1] == (0,):
    return np.zeros(shape, np.uint8)
  if images.dtype != np.uint8 or list(images.shape) != shape:
    raise ValueError(
        f'images is {images.dtype} {list(images.shape)}; expected uint8 '
        f'{shape}, because there are {len(instructions)} instructions.')
  return images


def _count(instructions: Any) -> int:
  """Returns how many instructions there are; ValueError if they are no list."""
  is_list = not isinstance(instructions, str | bytes | Mapping | Set)
  with contextlib.suppress(TypeError):  # They may have no length.
    if is_list:
      return len(instructions)
  kind = 'the string ' if isinstance(instructions, str) else ''
  raise ValueError(
      f'instructions is {kind}{instructions!r:.100}; expected a list of '
      'strings, one for each image.')


class Function:
  """Checks images and instructions, and gives a network's answer to them."""

  def __init__(self, network: Network, answer: Callable[
      [np.ndarray], np.ndarray], image_shape: Sequence[int], dtype: type):
    """Takes a network and what turns its logits into answers of this type."""
    self._network = network
    self._answer = answer
    self._image_shape = image_shape
    self._dtype = dtype

  def __call__(self, images: Any, instructions: Sequence[str]) -> np.ndarray:
    images = checked(images, instructions, self._image_shape)
    if not len(images):
      return np.zeros([0], self._dtype)
    texts = list(instructions)  # Not all lists, such as deques, have slices.
    logits = np.concatenate([
        self._network(images[i:i + _LARGEST].astype(np.float32) / 255,
                      texts[i:i + _LARGEST])
        for i in range(0, len(images), _LARGEST)])
    return self._answer(logits).astype(self._dtype)


def reward_model(network: Network, image_shape: Sequence[int]) -> Function:
  """Returns a function that gives D's probabilities, float32 [N]."""
  return Function(network, numpy_networks.sigmoid, image_shape, np.float32)


def policy(network: Network, image_shape: Sequence[int], seed: Any = None,
           greedy: bool = False) -> Function:
  """Returns a function that gives actions, int32 [N].

  They are samples, drawn by a generator of this seed, or the likeliest ones.
  """
  return Function(network, _Choice(seed, greedy), image_shape, np.int32)


class _Choice:
  """Chooses actions from logits [N, actions]."""

  def __init__(self, seed: Any, greedy: bool):
    if not isinstance(greedy, bool):
      raise ValueError(f'greedy is {greedy!r:.100}; expected True or False.')
    try:
      self._rng = None if greedy else np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
      raise ValueError(
          f'seed is {program.shown(seed)}; expected a whole number of at least '
          '0, or None.') from error

  def __call__(self, logits: np.ndarray) -> np.ndarray:
    if self._rng is not None:  # With Gumbel noise, the argmax is a sample.
      logits = logits + self._rng.gumbel(size=logits.shape)
    return logits.argmax(axis=-1)
