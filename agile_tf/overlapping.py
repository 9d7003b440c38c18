"""The paper's networks with a stem for images that have no grid of 8x8 cells.

    python -m agile_tf.launch --model=agile_tf.overlapping:make ...

    learner = agile_tf.RewardLearner(goals, model=agile_tf.overlapping.make)

The paper's stem looks at patches of 8x8 pixels that lie side by side, which
suits GridLU's cells of 8x8 pixels. Where things lie anywhere, or on a grid of
another size, a patch shows parts of several things, and the same thing looks
different from patch to patch. Here patches overlap, and no pixel is left out.
"""

import sonnet as snt
import tensorflow as tf

from agile_tf.agent import networks
from agile_tf.agent import worlds


class OverlappingStem(snt.Module):
  """The two convolutions of IMPALA's small network (Espeholt et al., 2018).

  The second has 64 channels instead of 32, as FiLM-NMN's modules have 64.
  """

  def __init__(self):
    super().__init__(name='stem')
    # This is the gain of He et al., 2015, as in `networks.HE`.
    w_init = snt.initializers.VarianceScaling(2.0)
    self._layers = [
        snt.Conv2D(16, 8, stride=4, w_init=w_init, name='near'),
        snt.Conv2D(networks.CHANNELS, 4, stride=2, w_init=w_init,
                   name='far')]

  def __call__(self, images: tf.Tensor) -> tf.Tensor:
    """Computes h_stem, float32 [B, ceil(H / 8), ceil(W / 8), 64]."""
    for layer in self._layers:
      images = tf.nn.relu(layer(images))
    return images


def make(world: worlds.World) -> networks.Pair:
  """Makes a FiLM-NMN on this stem, as policy and as discriminator.

  Weights before a ReLU start larger than in the paper, as with
  --initialization=he.
  """
  def features(merges: bool) -> networks.NmnFeatures:
    return networks.NmnFeatures(
        world.grammar, merges, networks.HE, OverlappingStem)

  return networks.Pair(
      networks.PolicyNetwork(
          lambda: features(merges=True), world.num_actions, networks.HE),
      networks.Discriminator(lambda: features(merges=False), networks.HE),
      tables=('gamma', 'beta'), lent=('features',))
