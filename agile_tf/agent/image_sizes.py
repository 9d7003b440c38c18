"""Sizes of images that the networks can see. This needs no TensorFlow."""

PATCH = 8  # The paper's networks see patches of 8x8 pixels.
# The least height and width of an image. It has 3x3 patches, as many as the
# 3x3 convolution after them needs.
SMALLEST = 24


def unseen_pixels(height: int, width: int) -> str:
  """Says which pixels of an image are in no whole patch; '' if none."""
  return ' and '.join(
      f'the last {count} {what} of pixels' for count, what in (
          (height % PATCH, 'rows'), (width % PATCH, 'columns')) if count)
