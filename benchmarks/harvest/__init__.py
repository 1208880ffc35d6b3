"""Workloads behind docs/harvest.md: what the controller costs, how far replays are from harvests, and kills."""
