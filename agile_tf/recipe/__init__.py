"""The recipe: we add it to the paper, so that an agent learns in an evening.

`settings` has its settings, and `variations` makes a `Variation` of the paper's
run from them. Nothing in `agile_tf.agent` or `agile_tf.training` imports this
package.
"""
