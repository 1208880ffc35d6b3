"""Recurring jobs simulated on traces: recurrences, groups, campaigns and their files."""
