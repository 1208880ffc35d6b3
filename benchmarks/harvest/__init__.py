"""Workloads behind docs/harvest.md: what harvests cost others, and what is left when parts of them are killed."""
