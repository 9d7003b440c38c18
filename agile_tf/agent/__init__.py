"""The paper's algorithm: networks, losses, rewards, gradients and updates.

Nothing here depends on a run or on another part of agile_tf; of this repository
it imports `gridlu` alone. Algorithms 1 and 2 are in `workers`; read on from
there.
"""
