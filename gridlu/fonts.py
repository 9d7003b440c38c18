"""Fonts for pictures: one that has the letters of their texts.

Pillow's own font has the letters of English. For other letters the fonts of
Matplotlib, if it is installed, and of the system are tried.
"""

from collections.abc import Iterator, Sequence
import functools
import glob
import importlib.util
import os
import re
from typing import Any
import unicodedata

from absl import logging
from PIL import ImageFont

from gridlu import program

SIZE = 11  # How large all texts are, in pixels.
_MOST = 1000  # How many fonts are tried.
_FOLDERS = (
    '~/.fonts', '~/.local/share/fonts', '/usr/local/share/fonts',
    '/usr/share/fonts', '~/Library/Fonts', '/Library/Fonts',
    '/System/Library/Fonts', r'C:\Windows\Fonts')
# Fonts with such names are tried last.
_SPECIAL = re.compile('bold|italic|oblique|light|thin|black|condensed|narrow|'
                      'mono|symbol|emoji', re.IGNORECASE)
# This is no character: a font draws it as it draws all that it lacks.
_NO_CHARACTER = '\U0010ffff'


def choose(texts: Sequence[str]) -> tuple[str, list[str]]:
  """Chooses a font for texts.

  Returns:
    The path of a font for `load`, '' for Pillow's own, and the texts in the
    form NFC. Letters that this font lacks are escaped in them; the first time,
    a warning says so.
  """
  texts = [program.printable(unicodedata.normalize('NFC', text))
           for text in texts]
  letters = {x for text in texts for x in text
             if not x.isascii() and not x.isspace()}
  path, missing = _choose(''.join(sorted(letters)))
  if missing:
    _warn()
  return path, [''.join(
      x.encode('unicode_escape').decode() if x in missing else x for x in text)
                for text in texts]


@functools.lru_cache(maxsize=8)
def load(path: str) -> Any:
  """Returns a font that `choose` chose, for Pillow."""
  return ImageFont.truetype(path, SIZE) if path else (
      ImageFont.load_default(SIZE))


@functools.lru_cache(maxsize=1000)
def _choose(letters: str) -> tuple[str, frozenset[str]]:
  """Returns the font that lacks fewest letters, and the letters it lacks."""
  best, missing = '', _missing('', letters)
  if missing:
    for path in _candidates():
      lacking = _missing(path, letters)
      if len(lacking) < len(missing):
        best, missing = path, lacking
      if not missing:
        break
  return best, missing


def _missing(path: str, letters: str) -> frozenset[str]:
  """Returns the letters that a font lacks; all if it cannot be read."""
  if not letters:
    return frozenset()
  try:
    font = load(path)
    lacking = [_drawn(font, x) == _drawn(font, _NO_CHARACTER) for x in letters]
  except (OSError, ValueError):
    return frozenset(letters)
  return frozenset(x for x, lacks in zip(letters, lacking) if lacks)


def _drawn(font: Any, letter: str) -> tuple[Any, bytes]:
  """Returns the size and the pixels of a letter, to compare it with others."""
  mask = font.getmask(letter)
  return mask.size, bytes(mask)


@functools.cache
def _candidates() -> tuple[str, ...]:
  """Returns the paths of fonts, the plainest first."""
  return tuple(_found())[:_MOST]


def _found() -> Iterator[str]:
  """Yields the paths of the fonts of Matplotlib and of the system."""
  # Matplotlib itself is not imported, which would take a second.
  if (there := importlib.util.find_spec('matplotlib')) and there.origin:
    yield os.path.join(os.path.dirname(there.origin), 'mpl-data', 'fonts',
                       'ttf', 'DejaVuSans.ttf')
  paths = {path for folder in _FOLDERS for path in glob.iglob(
      os.path.join(os.path.expanduser(folder), '**', '*'), recursive=True)
           if path.lower().endswith(('.ttf', '.otf', '.ttc'))}
  yield from sorted(paths, key=lambda path: (
      bool(_SPECIAL.search(os.path.basename(path))),
      'sans' not in path.lower(), path))


@functools.cache
def _warn() -> None:
  """Warns, but only once."""
  logging.warning(
      'No font here has all letters of the texts in pictures. The letters that '
      'are missing are shown as numbers. Install a font that has them, such as '
      'those of the package fonts-noto.')
