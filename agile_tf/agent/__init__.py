"""The paper: networks, losses, rewards, rollouts, gradients and updates.

Knows no run and no flags, and may import `gridlu` alone. Algorithms 1 and 2
are in `workers`; read on from there.
"""
