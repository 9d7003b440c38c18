"""The networks of `agile_tf.agent.networks` once more, computed fast.

The paper needs none of it. Without this package and the line of
`training/building.py` that calls it, the same agent is trained, more slowly.
"""
