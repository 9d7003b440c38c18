"""Carries runs out: their parts, threads, metrics, checkpoints and locks."""
