"""What we add to the paper, so that an agent learns in an evening.

`builder` makes the parts of a run with it; `settings` has its settings. Nothing
in `agile_tf.agent` or `agile_tf.training` imports this package.
"""
