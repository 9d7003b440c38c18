"""The paper's table, curves and experiments as data, and runs compared to it.

Needs no TensorFlow. May import `agile_tf.config` and `gridlu` alone.
"""
