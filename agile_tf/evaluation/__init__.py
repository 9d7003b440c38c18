"""What a run has learned: its networks as functions, playing and judging.

May import `agile_tf.training` and everything that it may import.
"""
