"""How a run is carried out: its parts, threads, metrics, checkpoints, lock."""
