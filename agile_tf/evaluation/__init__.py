"""What a run has learned: its networks as functions, playing and judging."""
