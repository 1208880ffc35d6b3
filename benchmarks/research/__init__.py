"""Comparisons of ways to decide on real logs, as tables for the documentation."""
