"""A run on several machines: a chief that trains, and servers that help it.

May import `agile_tf.training`, `agile_tf.agent`, `agile_tf.config` and
`gridlu`.
"""
