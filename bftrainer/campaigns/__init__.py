"""Campaigns of many runs: sweeps over settings, advice proven on held-out data, forecasts."""
