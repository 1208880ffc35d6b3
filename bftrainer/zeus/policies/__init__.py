"""How batch sizes and power limits are chosen: bandits, pruning, baselines; no files."""
