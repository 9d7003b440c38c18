"""How a run is carried out: building, threads, metrics, checkpoints, locks.

May import `agile_tf.agent`, `agile_tf.config` and `gridlu`.
"""
