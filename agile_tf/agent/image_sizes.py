"""Sizes of images that the networks can see. This needs no TensorFlow."""

SMALLEST = 24  # The least height and width of an image.
PATCH = 8  # The paper's networks see patches of 8x8 pixels.


def unseen_pixels(height: int, width: int) -> str:
  """Says which pixels of an image are in no whole patch; '' if none."""
  return ' and '.join(
      f'the last {count} {what} of pixels' for count, what in (
          (height % PATCH, 'rows'), (width % PATCH, 'columns')) if count)
