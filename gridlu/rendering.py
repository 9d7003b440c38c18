"""Renders states from a table of 8x8 tiles (appendix D, figures 3 and 6).

An image is 56x56 pixels: 7x7 cells of 8x8, and the outer ring is the wall. The
colours and the sprites' proportions are those of the paper's figures. The agent
is a square that fills the cell behind the block, dark grey if it is free and
white if it carries. An image thus shows the whole state.

`render` and `tile_indices` take any array module, like every function of
`world`. `contact_sheet` lays images out for people.
"""

from collections.abc import Sequence
import re
from typing import Any

import numpy as np
from PIL import Image
from PIL import ImageDraw

from gridlu import fonts
from gridlu import world

TILE_SIZE = 8  # Pixels on a side of a cell.
GRID_SIZE = world.SIZE + 2  # Cells on a side of the image, wall included.
IMAGE_SIZE = GRID_SIZE * TILE_SIZE  # Pixels on a side of the image.

FLOOR_COLOR = (0, 0, 0)
WALL_COLOR = (220, 220, 220)
BLOCK_COLORS = {'red': (255, 0, 0), 'green': (0, 255, 0), 'blue': (0, 0, 255)}
FREE_AGENT_COLOR = (64, 64, 64)
CARRYING_AGENT_COLOR = (255, 255, 255)

_BACKGROUNDS = (FLOOR_COLOR, FREE_AGENT_COLOR, CARRYING_AGENT_COLOR)
WALL_TILE = len(_BACKGROUNDS) * world.NUM_BLOCK_CODES


def _tiles() -> np.ndarray:
  """Builds `TILES`."""
  y, x = np.mgrid[:TILE_SIZE, :TILE_SIZE]
  center = (TILE_SIZE - 1) / 2
  # Each pixel's distances from the centre of the cell.
  distance_x, distance_y = np.abs(x - center), np.abs(y - center)
  sprites = {  # Each shape's pixels, bool [8, 8].
      'circle': distance_x**2 + distance_y**2 <= (TILE_SIZE / 2)**2,
      'rect': np.maximum(distance_x, distance_y) < TILE_SIZE / 4,
      'triangle': distance_x < y // 2 + 1,  # Widths 2, 2, 4, 4, 6, 6, 8, 8.
  }
  tiles = np.zeros((WALL_TILE + 1, TILE_SIZE, TILE_SIZE, 3), np.uint8)
  tiles[WALL_TILE] = WALL_COLOR
  for i, background in enumerate(_BACKGROUNDS):
    first = i * world.NUM_BLOCK_CODES
    tiles[first:first + world.NUM_BLOCK_CODES] = background
    for shape, sprite in sprites.items():
      for color, rgb in BLOCK_COLORS.items():
        tiles[first + world.block(shape, color)][sprite] = rgb
  tiles.flags.writeable = False
  return tiles


# uint8 [31, 8, 8, 3]: at 0 to 9 the block of that code (0: none), from 10 the
# same with a free agent, from 20 with a carrying one, at 30 the wall.
TILES = _tiles()

# [8 * 31, 8, 3]: the first pixel rows of all tiles, then their second rows, and
# so on.
_TILE_ROWS = np.ascontiguousarray(TILES.swapaxes(0, 1)).reshape(
    -1, TILE_SIZE, 3)
# [56]: the row of cells in which each pixel row of the image lies.
_CELL_ROW = np.arange(IMAGE_SIZE, dtype=np.int32) // TILE_SIZE
# [56, 1]: for each pixel row of the image, the index in `_TILE_ROWS` of the
# first of the tile rows that can appear in it.
_FIRST_TILE_ROW = len(TILES) * (
    np.arange(IMAGE_SIZE, dtype=np.int32)[:, None] % TILE_SIZE)

# [7]: the board's row or column at each of the grid's; the wall takes its
# neighbour.
_INSIDE = np.clip(np.arange(GRID_SIZE, dtype=np.int32) - 1, 0, world.SIZE - 1)
# [7, 7]: 1 on the board, 0 in the wall.
_BOARD = np.pad(np.ones((world.SIZE, world.SIZE), np.int32), 1)
# [7, 7]: the wall's tiles, 0 on the board.
_WALL = WALL_TILE * (1 - _BOARD)


def tile_indices(state: world.State,
                 xp: world.ArrayModule = np) -> world.Array:
  """Returns which of `TILES` each cell shows, int32 [..., 7, 7]."""
  blocks = xp.asarray(state.blocks, np.int32)
  cell = world.cell_index(xp.asarray(state.agent, np.int32))
  carrying = world.numbers(state.carrying, np.int32, xp)
  # The agent's cell has a tile of the second or the third background.
  first_tile = world.NUM_BLOCK_CODES * (1 + carrying)
  board = blocks + world.cell_mask(cell, xp) * first_tile[..., None, None]
  grid = world.take(
      world.take(board, _INSIDE, -2, xp), _INSIDE, -1, xp)
  return grid * _BOARD + _WALL


def render(state: world.State, xp: world.ArrayModule = np) -> world.Array:
  """Returns images of states, uint8 [..., 56, 56, 3]."""
  tiles = world.take(tile_indices(state, xp), _CELL_ROW, -2, xp)
  # [..., 56, 7, 8, 3]
  strips = world.take(_TILE_ROWS, tiles + _FIRST_TILE_ROW, 0, xp)
  if xp is np:  # With all sizes known, this copies nothing.
    return strips.reshape(strips.shape[:-3] + (IMAGE_SIZE, 3))
  return xp.concatenate(
      [strips[..., column, :, :] for column in range(GRID_SIZE)], axis=-2)


def wrap(text: str, width: int, font: Any = None) -> list[str]:
  """Breaks text into lines of at most `width` pixels, if possible."""
  font = font or fonts.load('')
  lines = ['']
  # Instructions have few spaces: a line may also end after a bracket.
  for piece in re.split(r'(?<=[( ])|(?=\n)', text):
    if piece[:1] == '\n' or lines[-1] and (
        font.getlength((lines[-1] + piece).rstrip()) > width):
      lines.append('')
    lines[-1] += piece.removeprefix('\n')
  return [line.rstrip() for line in lines]


def contact_sheet(images: np.ndarray, captions: Sequence[str] | None = None,
                  columns: int = 8, scale: int = 3, title: str = '',
                  lines: int = 1) -> np.ndarray:
  """Arranges images, uint8 [N, H, W, 3], in rows on one large image.

  Captions, such as instructions, stand below the images and are wrapped to an
  image's width. Every caption has as much space as the longest one needs, and
  space for at least `lines` lines; without captions no space is left. The title
  stands over all images. The scale enlarges each pixel to a square.

  Returns:
    The large image, uint8 [height, width, 3].
  """
  if images.ndim != 4 or images.dtype != np.uint8 or not len(images):
    raise ValueError(
        f'images are {images.dtype} {list(images.shape)}: expected uint8 '
        '[N, H, W, 3]. Give a single image a leading dimension of 1.')
  columns = min(columns, len(images))
  num_rows = -(-len(images) // columns)
  height, width = images.shape[1] * scale, images.shape[2] * scale
  margin = 8
  cell_width = width + margin
  line_height = 14
  path, (title, *captions) = fonts.choose([title, *(captions or ())])
  font = fonts.load(path)
  texts = [wrap(text, width, font) for text in captions]
  caption_height = (
      2 + line_height * max(lines, *map(len, texts)) if texts else 0)
  titles = (
      wrap(title, columns * cell_width - margin, font) if title else [])
  cell_height = height + caption_height + margin
  top = margin + line_height * len(titles) + (2 if titles else 0)

  sheet = Image.new(
      'RGB', (margin + columns * cell_width, top + num_rows * cell_height),
      (255, 255, 255))
  draw = ImageDraw.Draw(sheet)

  def write(text: Sequence[str], x: int, y: int) -> None:
    for i, line in enumerate(text):
      draw.text((x, y + i * line_height), line, (0, 0, 0), font)

  write(titles, margin, margin)
  for i, image in enumerate(images):
    x = margin + i % columns * cell_width
    y = top + i // columns * cell_height
    sheet.paste(
        Image.fromarray(image).resize((width, height),
                                      Image.Resampling.NEAREST), (x, y))
    if texts:
      write(texts[i], x, y + height + 2)
  return np.asarray(sheet)


def pad(image: np.ndarray, height: int, width: int) -> np.ndarray:
  """Adds white to the right of an image and below it, to this size."""
  rows, columns = height - image.shape[0], width - image.shape[1]
  return np.pad(image, ((0, rows), (0, columns), (0, 0)), constant_values=255)
