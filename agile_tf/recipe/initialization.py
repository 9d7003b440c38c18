"""Weights that start larger than the paper's (He et al., 2015).

The variance is 2 / fan_in before a ReLU. A module with one operand sees 64 of
W_m's input channels. The features are then so large that with a gain of 1 the
first policy would walk to one wall, where the discriminator would tell its
states from goal states by that alone. With a small gain it is uniform.
"""

from agile_tf.agent import modules

# The standard deviation of a standard normal that is truncated at 2.
_TRUNCATED = 0.87962566

HE = modules.Initialization(2**0.5 / _TRUNCATED, 0.01, modules.CHANNELS)
