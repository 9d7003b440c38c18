"""The paper's table, curves and experiments as data, and runs compared to it.

Nothing here needs TensorFlow.
"""
