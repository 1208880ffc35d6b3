"""Policies that choose batch sizes and power limits: bandits, pruning, baselines. No files."""
