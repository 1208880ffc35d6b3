"""Recurring jobs simulated on traces: recurrences, groups, campaigns, their files and figures."""
