"""How fast everything is: what `agile_tf.benchmark` measures and simulates.

May import `agile_tf.training`, `agile_tf.agent`,
`agile_tf.config` and `gridlu`.
"""
