"""What a run has learned: its networks as functions, playing and judging.

May import `agile_tf.training`, `agile_tf.agent`, `agile_tf.config` and
`gridlu`.
"""
